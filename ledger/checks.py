"""Three guards keep the ledger append-only; a check at the start says which of them is missing.

The queryset refuses, triggers refuse, and the runtime's role has no right to (ledger/rights.py).
"""

import logging
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import ERROR, CheckMessage, Error, Tags, Warning, register  # noqa: A004
from django.db import DatabaseError, connections

from ledger import rights
from ledger.models import Event
from ledger.models.events import AppendOnly

logger = logging.getLogger(__name__)

# Two triggers on the table and each partition: one for rows, one against TRUNCATE.
UNGUARDED = """
SELECT c.relname FROM pg_class c
WHERE (c.oid = 'ledger_event'::regclass
       OR c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'ledger_event'::regclass))
  AND (SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgenabled IN ('O', 'A')
       AND t.tgfoid = 'ledger_event_only_grows'::regproc) < 2
ORDER BY 1"""


@register(Tags.database)
def append_only(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """What is missing of the append-only guards, as far as the database can be asked."""
    if "default" not in (databases or ()):
        return []
    try:
        return missing_guards()
    except DatabaseError:
        return []  # other checks say that the database is away


@register(Tags.database)
def durable(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Whether what is told as accepted is on the disk by then."""
    if "default" not in (databases or ()):
        return []
    try:
        return not_durable()
    except DatabaseError:
        return []


@register(Tags.security, deploy=True)
def heads_are_kept_outside(**_: Any) -> list[CheckMessage]:
    """Whether a database that went back would be noticed after a restart."""
    if settings.AMENDS_HEADS_FOLDER:
        return []
    return [
        Warning(
            "AMENDS_HEADS_FOLDER is empty: no head of the logs is kept outside the database.",
            hint="A database that is restored to an earlier day, or rewritten with its own key,"
            " is then noticed only while the sealer still runs: after a restart it signs on over"
            " what is left. Name a folder on another disk, mounted from elsewhere at best.",
            id="ledger.W004",
        )
    ]


def not_durable() -> list[CheckMessage]:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT current_setting('synchronous_commit')")
        (found,) = cursor.fetchone()
    if found != "off":
        return []
    return [
        Error(
            "PostgreSQL answers before what we wrote is on its disk: synchronous_commit is off.",
            hint="Set it to on for the server, the database and the role of DATABASE_URL:"
            " an accepted event or an intent could be lost with the server.",
            id="ledger.E003",
        )
    ]


def missing_guards() -> list[CheckMessage]:
    found = [] if _queryset_refuses() else [_queryset_error()]
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT to_regclass('ledger_event')")
        if cursor.fetchone()[0] is None:
            return found
        cursor.execute(UNGUARDED)
        unguarded = [name for (name,) in cursor.fetchall()]
        changeable = rights.changeable(cursor)
    if unguarded:
        found.append(_trigger_error(unguarded))
    if changeable:
        found.append(_rights_warning(changeable))
    return found


class GuardMissing(Exception):
    """We stopped because something no longer refuses changes of the ledger; the text says what."""


def look() -> None:
    """Say in the log what is missing; raise `GuardMissing`, and so tell /statusz, of a removed one
    and of a server that forgets.

    A role that is allowed too much is how somebody chose to run it, and only said.
    """
    found = missing_guards() + not_durable()
    for message in found:
        logger.log(message.level, "%s %s", message.msg, message.hint)
    if removed := [str(message.msg) for message in found if message.level >= ERROR]:
        raise GuardMissing(" ".join(removed))


def _queryset_refuses() -> bool:
    for name in ("delete", "update"):
        change: Any = getattr(Event.objects.none(), name)
        try:
            change()
        except AppendOnly:
            continue
        return False
    return True


def _queryset_error() -> CheckMessage:
    return Error(
        "The queryset of events no longer refuses update() and delete().",
        hint="ledger.models.Event must keep EventQuerySet as its manager.",
        id="ledger.E002",
    )


def _trigger_error(unguarded: list[str]) -> CheckMessage:
    return Error(
        f"No trigger refuses changes to {', '.join(unguarded)}.",
        hint="Find out who removed it; `manage.py migrate` does not make it again.",
        id="ledger.E001",
    )


def _rights_warning(changeable: list[str]) -> CheckMessage:
    return Warning(
        f"The runtime's database role has the right to change {', '.join(changeable)}.",
        hint="Set DATABASE_OWNER_URL to the owner's role and DATABASE_URL to another one;"
        " `manage.py prepare` gives that one the rights it needs and no more.",
        id="ledger.W001",
    )
