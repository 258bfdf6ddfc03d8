"""Whose accounts the credentials of a connection open, and whether it leads where it led.

Settings say which system is reached, a credential as whom: another one of the same host may open
another customer's account, or another role of the database. So people approve both, and a secret
that was renewed for the same account goes on working.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar, get_args

import msgspec
from django.db.models import QuerySet

from amends.protocol.vocabulary import EventType
from connectors import registry
from connectors.call_pool import ConnectionKey, asked
from connectors.contract import CannotRead, Connector, Purpose, Refused, Session
from connectors.models import Connection, digest_of_settings
from connectors.outbound import Deadline, Outbound
from ledger.canonical import digest
from workspaces import formatting
from workspaces.encryption import CannotOpen
from workspaces.models import Act, Secret

A = TypeVar("A")
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
FIELDS = [f"{purpose}_secret" for purpose in PURPOSES]
ASKING_SECONDS = 4.0
ACCOUNT_CHARACTERS_MAX = 200
NONE = "no credential"
OVER, AS = "Over", "As"
"""What a card calls the system that is reached, and whose account."""
UNREADABLE = "a credential that cannot be opened"
DIGITS = 16
"""Of the digest of an account that is longer."""
KNOWN_MAX = 1_000
# By connector, digest of the settings and sealed credential: opening one takes as long as a read.
_known: dict[tuple[str, str, bytes], str | None] = {}


def accounts(connection: Connection) -> dict[str, str]:
    """By purpose, whose account its credential opens; a purpose is missing where the settings alone
    say it. Where nobody can tell, it is the credential itself. Raises Refused.
    """
    plug = registry.opened(connection)
    found = {purpose: _account(connection, purpose, *plug) for purpose in PURPOSES}
    return {purpose: account for purpose, account in found.items() if account}


def opened(connection: Connection, purpose: Purpose) -> str:
    """Whose account one of them opens; empty where the settings say it, or fit no connector."""
    try:
        return _account(connection, purpose, *registry.opened(connection))
    except Refused:
        return ""


def in_words(connection: Connection, purpose: Purpose) -> str:
    """“opens desk; ”, of a credential that is there."""
    is_there = getattr(connection, f"{purpose}_secret_id") is not None
    account = opened(connection, purpose) if is_there else ""
    return f"opens {account}; " if account else ""


def counts_as(connection: Connection, purpose: Purpose) -> str:
    """What is told of one that was entered in the place of another account's, or of one that nobody
    can tell from such.
    """
    account = opened(connection, purpose)
    return f"It counts as another account ({account}): plans approved over the old one will stop."


def on_card(connection: Connection, rows: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Rows of a card, with which system is reached and as whom. Raises Refused."""
    return [*rows, *_in_words(connection)]


def _in_words(connection: Connection) -> Iterator[tuple[str, str]]:
    connector, settings = registry.opened(connection)
    question = partial(connector.place, settings)
    place = _asked(connection, connector, question, "place")
    if place:
        yield OVER, str(place)
    opens = accounts(connection)
    reads, writes = (opens.get(purpose, "") for purpose in PURPOSES)
    if reads or writes:
        also = "" if reads == writes else f"; reads as {reads or 'nobody'}"
        yield AS, f"{writes or 'nobody'}{also}"


def _account(connection: Connection, purpose: Purpose, connector: Connector, settings: Any) -> str:
    if not connector.credential_schema.__struct_fields__:
        return ""
    secret = _secret(connection, f"{purpose}_secret")
    try:
        told = _told(connection, connector, settings, secret)
    except CannotOpen:
        return UNREADABLE
    except msgspec.ValidationError:
        return NONE
    if told is not None:
        return told
    if secret is None:
        return NONE
    since = secret.created_at.astimezone(UTC)
    return secret.account or f"credential {secret.pk}, set {since:%Y-%m-%d %H:%M} UTC"


def _secret(connection: Connection, field: str) -> Secret | None:
    """The one that is there now, where somebody has entered another since the row was read. Raises
    Refused where the settings are others by now: it was entered for those.
    """
    found: Secret | None
    try:
        found = getattr(connection, field)
    except Secret.DoesNotExist:
        now = Connection.objects.select_related(field).get(pk=connection.pk)
        if now.settings != connection.settings:
            raise Refused(f"{connection.name} was changed meanwhile.") from None
        found = getattr(now, field)
        setattr(connection, field, found)
    return found


def _told(
    connection: Connection, connector: Connector, settings: Any, secret: Secret | None
) -> str | None:
    """What the credential says by itself, or a connector of having none."""
    settings_digest = digest_of_settings(connector.name, connection.settings)
    key = (connector.name, settings_digest, bytes(secret.sealed) if secret else b"")
    with suppress(KeyError):  # and not asked first: another thread may forget it in between
        return _known[key]
    told = _of(connection, connector, settings, secret.open() if secret else {})
    if len(_known) >= KNOWN_MAX:
        _known.clear()
    _known[key] = told
    return told


def _of(
    connection: Connection, connector: Connector, settings: Any, clear: Mapping[str, Any]
) -> str | None:
    credentials = msgspec.convert(dict(clear), connector.credential_schema)
    question = partial(_said, connector, settings, credentials)
    return _asked(connection, connector, question, "account")


def _said(connector: Connector, settings: Any, credentials: Any) -> str | None:
    """What the connector says; of what is long, or cannot be shown, how it begins and a digest."""
    told = connector.account(settings, credentials)
    if told is None:
        return None
    if not isinstance(told, str):
        raise TypeError("an account is a text")
    if told.isprintable() and len(told) <= ACCOUNT_CHARACTERS_MAX:
        return told
    begins = "".join(filter(str.isprintable, told))[: ACCOUNT_CHARACTERS_MAX - DIGITS]
    return f"{begins}…{digest(told)[:DIGITS]}"


def ask(connection: Connection, purpose: Purpose, clear: Mapping[str, Any]) -> str:
    """Whose account a credential that is entered opens, asked of the system; empty where the
    credential tells it by itself, or the system does not say. It makes a call, of a few seconds at
    most.
    """
    try:
        connector, settings = registry.opened(connection)
        if connection.is_disabled or _of(connection, connector, settings, clear) is not None:
            return ""
        session = Session(
            connection=connection.name,
            purpose=purpose,
            settings=settings,
            credentials=msgspec.convert(dict(clear), connector.credential_schema),
            outbound=Outbound(Deadline(ASKING_SECONDS)),
        )
        question = partial(connector.asked_account, session)
        found = _asked(connection, connector, question, "asked_account")
    except (Refused, msgspec.ValidationError):
        return ""
    told = str(found) if type(found) in {str, int} else ""
    return told if told.isprintable() and len(told) <= ACCOUNT_CHARACTERS_MAX else ""


def asked_anew(connection: Connection, changed: Sequence[str]) -> dict[str, Secret]:
    """By field, what takes the place of credentials of which the system said whose they are. Where
    other settings say which system is reached, the same token may open another account there (a
    header of them says whose, say): each is its own until it is entered anew. A desk alters none
    of its credentials (`ledger/rights.py`).
    """
    fields = FIELDS if _leading(connection, changed) else []
    there = {field: getattr(connection, field) for field in fields}
    return {
        field: Secret.objects.create(
            workspace_id=old.workspace_id, name=old.name, sealed=old.sealed
        )
        for field, old in there.items()
        if old is not None and old.account
    }


def reads_alike(approved: str, now: str) -> bool:
    """Whether a connector of one version finds what was done with the other one: of two versions
    `name@2.1+more` the name, the first number and what follows the + are the same; of one that was
    cut, as its column is short, all is.
    """
    return approved == now or ("…" not in approved and _parts(approved) == _parts(now))


def _parts(version: str) -> tuple[str, str, str]:
    name, _, number = version.partition("@")
    number, _, more = number.partition("+")
    return name, number.partition(".")[0], more


def led_elsewhere(
    connection: Connection, at: datetime, purposes: Sequence[Purpose] = PURPOSES
) -> str:
    """Why it may not have led at that moment where it leads now, in words; empty where it did."""
    for one in _acts(connection, at).order_by("pk"):
        changed = _leading(connection, one.data.get("changed", ()))
        changed += [f"the account to {each}" for each in _of_other_accounts(one, purposes)]
        if changed:
            return f"{', '.join(changed)}, {_changed(one)}"
    return ""


def _leading(connection: Connection, changed: Sequence[str]) -> list[str]:
    """Those of changed settings that say which system is reached."""
    plug = registry.installed(connection.connector)
    where = plug.where if plug else frozenset()
    return [name for name in changed if not where or name in where]


def changed_account(connection: Connection, purpose: str, at: datetime) -> str:
    """“changed by Ada at …”: who last changed whose account it opens; empty if nobody has since."""
    found = _acts(connection, at).order_by("-pk")
    last = next((one for one in found if _of_other_accounts(one, [purpose])), None)
    return _changed(last) if last else ""


def _acts(connection: Connection, at: datetime) -> QuerySet[Act]:
    return Act.objects.filter(
        workspace=connection.workspace_id,
        type__in=(EventType.CONNECTION_UPDATED, EventType.CONNECTION_SECRET_SET),
        at__gt=at,
        data__connection=connection.name,
    ).select_related("person")


def _of_other_accounts(act: Act, purposes: Sequence[str]) -> list[str]:
    """Those of which it may have changed the account: one that is removed is entered anew, and an
    older version did not say.
    """
    told: Sequence[str] = act.data.get("credentials_removed", ())
    if act.type == EventType.CONNECTION_SECRET_SET and act.data.get("other_account", True):
        told = [act.data["purpose"]]
    return [one for one in told if one in purposes]


def _changed(act: Act) -> str:
    return f"changed by {act.person or 'the desk'} at {formatting.absolute(act.at)}"


def _asked(
    connection: Connection, connector: Connector, question: Callable[[], A], method: str
) -> A:
    asker = ConnectionKey(connection.workspace_id, connection.name)
    try:
        return asked(asker, connector, f"its {method}", question, method)
    except CannotRead as unread:
        raise Refused(str(unread)) from unread
