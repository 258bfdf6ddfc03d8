"""The desk's own voice: events that people and the desk's parts put into the ledger.

Call it in the transaction of the deed, so that the row and what the ledger tells of it are one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.db import connection, transaction
from psycopg import Connection

from ledger import bells, drivers, noting, undoing
from ledger.fold.meaning import FAILED, SETTLED, SUCCEEDED
from ledger.folding import Name
from ledger.ids import new_id
from ledger.masking import MaskingKey
from ledger.models import Attempt, Event
from ledger.record import record
from ledger.said import Fact, Said, Speaker
from ledger.wire import of_desk
from workspaces.models import User, Workspace
from workspaces.models.workspace import opened_masking_key


class Saying(NamedTuple):
    """One event of the desk, before it has an id."""

    type: str
    run: str = ""
    action: str = ""
    data: dict[str, Any] = {}


def say(
    workspace: Workspace,
    type: str,  # noqa: A002 - the wire's word
    *,
    run: str = "",
    action: str = "",
    data: dict[str, Any] | None = None,
    by: User | None = None,
    part: str = "engine",
) -> str:
    """Record one event of the desk, fold it, and return its id.

    With `by` the actor is that person, else the desk's `part`. `data` must be JSON; secrets in it
    are masked like anybody's.
    """
    said = dict(data or {})
    if type == SETTLED:
        said = _of_what_is_known(workspace, run, action) | said
    return say_all(workspace, [Saying(type, run, action, said)], by=by, part=part)[0]


def say_all(
    workspace: Workspace,
    sayings: Sequence[Saying],
    *,
    by: User | None = None,
    part: str = "engine",
) -> list[str]:
    """Record several events in one breath, for the price of little more than one."""
    who = speaker(workspace, by=by, part=part)
    said = [_read(who, one) for one in sayings]
    with transaction.atomic(savepoint=False), connection.wrap_database_errors:
        recorded = drivers.run(record(who, said), plain_connection())
        if recorded.runs:
            transaction.on_commit(lambda: bells.ring(recorded.runs), robust=True)
    return [one.id for one in said]


def read_all(
    workspace: Workspace, sayings: Sequence[Saying], *, part: str = "engine"
) -> list[Said]:
    """The events as they will be kept; asks the database nothing."""
    who = speaker(workspace, part=part)
    return [_read(who, one) for one in sayings]


def note_all(workspace: Workspace, said: Sequence[Said], *, part: str = "engine") -> list[Fact]:
    """Record several events that are folded with the next one of their action; see `noting`."""
    with connection.wrap_database_errors:
        return noting.note(plain_connection(), speaker(workspace, part=part), said)


def end_all(
    workspace: Workspace,
    said: Sequence[Said],
    told: Mapping[Name, Sequence[Fact]],
    *,
    part: str = "engine",
) -> None:
    """Record the last events of several actions in the transaction that is open; see `undoing`.

    `told` has, of actions that have no row yet, all that was noted of them before.
    """
    who = speaker(workspace, part=part)
    with connection.wrap_database_errors:
        plain = plain_connection()
        runs = drivers.run(undoing.end(who, said, told), plain)
        if runs is None:
            runs = drivers.run(record(who, said), plain).runs
    transaction.on_commit(lambda: bells.ring(runs), robust=True)


def _read(who: Speaker, one: Saying) -> Said:
    event = {"id": new_id(), "type": one.type, "run": one.run, "action": one.action or None}
    return of_desk(who, event | {"data": one.data})


def _of_what_is_known(workspace: Workspace, run: str, action: str) -> dict[str, Any]:
    """Which statements a settlement has seen and so overrules, and which attempts it settles."""
    events = Event.objects.filter(workspace=workspace, run=run, action=action)
    attempts = Attempt.objects.filter(
        action__run__workspace=workspace, action__run__run=run, action__action=action
    )
    return {
        "seen": list(
            events.filter(type__in=[SUCCEEDED, FAILED, SETTLED]).values_list("event_id", flat=True)
        ),
        "attempts": list(
            attempts.filter(state__in=["running", "unknown", "contradiction"]).values_list(
                "attempt", flat=True
            )
        ),
    }


def speaker(workspace: Workspace, *, by: User | None = None, part: str = "engine") -> Speaker:
    kind, name = ("desk", part) if by is None else ("person", str(by.pk))
    return Speaker(
        workspace.pk, workspace.slug, kind, name, mask=tuple(workspace.mask),
        masking_key=masking_key(workspace),
    )  # fmt: skip


def masking_key(workspace: Workspace) -> MaskingKey:
    """What makes the workspace's placeholders. Raises `crypt.CannotOpen`."""
    secret = opened_masking_key(bytes(workspace.masking_key))
    return MaskingKey(secret, shows_last4=workspace.mask_shows_last4)


def plain_connection() -> Connection[Any]:
    """psycopg's own connection under Django's, with the transaction that is open on it."""
    connection.close_if_health_check_failed()  # as Django's own cursors do
    connection.ensure_connection()
    plain: Connection[Any] = connection.connection
    return plain
