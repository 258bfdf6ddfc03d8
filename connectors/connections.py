"""The verbs of connections: create, update, set_secret, disable, enable, rehearse. Each is a
recorded act.

A connection's digest is part of what people approve, so `update` is the only way to change
settings: it raises the revision, and a plan that was approved over the old ones stops.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from django.core.exceptions import ValidationError
from django.core.validators import validate_slug
from django.db import transaction

from amends.protocol.masking import masked
from amends.protocol.vocabulary import EventType
from connectors import accounts, calls, links, registry
from connectors.call_pool import ConnectionKey, asked
from connectors.contract import CannotRead, Connector, Purpose, Refused, State, Target
from connectors.models import Connection, ConnectionVersion, digest_of_settings
from connectors.normalization import Redaction
from ledger.canonical import canonical_of
from workspaces import clock, formatting, outbox
from workspaces.models import Act, Secret, User, Workspace

SETTINGS_BYTES_MAX = 64 * 1024
CONNECTIONS_MAX = 500
"""Per workspace; a page lists them all."""

CONCURRENCY_MAX = 100
"""Calls at once over one connection; more than a deployment has workers means nothing."""

CHANGES_SHOWN_MAX = 5
VERSIONS_KEPT_MAX = 100
"""Per connection; a step that was stopped longer ago shows the names of what changed alone."""

UPDATED = EventType.CONNECTION_UPDATED
PURPOSES = accounts.PURPOSES
MEANWHILE = "Somebody changed this connection meanwhile; nothing was kept."

CLOSED: dict[str, Any] = {"failures_in_a_row": 0, "open_until": None}
"""The circuit breaker forgets what it knew of settings and credentials that are no more."""


class BadSettings(ValueError):
    """We stopped because settings or credentials do not fit the connector; the text says where."""


class OutOfDate(Exception):
    """We stopped because somebody changed the connection since it was shown. Load it again."""


@transaction.atomic
def create(
    workspace: Workspace,
    name: str,
    connector: str,
    settings: dict[str, Any],
    *,
    by: User | None,
    sandbox_settings: dict[str, Any] | None = None,
) -> Connection:
    """Add a connection; raises BadSettings, or UnknownConnector."""
    try:
        validate_slug(name)
    except ValidationError:
        raise BadSettings("The name may hold letters, digits, - and _ only.") from None
    mine = Connection.objects.filter(workspace=workspace)
    if mine.filter(name=name).exists():
        raise BadSettings(f"There is a connection named “{name}” already.")
    if mine.count() >= CONNECTIONS_MAX:
        raise BadSettings(f"A workspace has at most {CONNECTIONS_MAX} connections.")
    check_settings(ConnectionKey(workspace.pk, name), connector, settings, sandbox_settings or {})
    connection = Connection.objects.create(
        workspace=workspace,
        name=name,
        connector=connector,
        settings=settings,
        sandbox_settings=sandbox_settings or {},
        settings_digest=digest_of_settings(connector, settings),
    )
    outbox.record(workspace, EventType.CONNECTION_CREATED, by=by, data=_told(connection))
    return connection


@transaction.atomic
def update(
    connection: Connection,
    settings: dict[str, Any],
    *,
    by: User | None,
    revision: int,
    sandbox_settings: dict[str, Any] | None = None,
    concurrency: int | None = None,
    link: str | None = None,
) -> Connection:
    """Change settings, given the revision that was shown; raises BadSettings or OutOfDate.

    Where scheme, host or port change, the credentials go: they have to be entered anew.
    """
    at_once = connection.concurrency if concurrency is None else concurrency
    if not 1 <= at_once <= CONCURRENCY_MAX:
        raise BadSettings(f"Calls at once: 1 to {CONCURRENCY_MAX}.")
    leads = connection.link if link is None else link.strip()
    if leads and (why := links.mistake(leads)):
        raise BadSettings(f"Link for people: {why}")
    sandbox = connection.sandbox_settings if sandbox_settings is None else sandbox_settings
    asker = ConnectionKey(connection.workspace_id, connection.name)
    check_settings(asker, connection.connector, settings, sandbox)
    shown = Connection.objects.select_related(*accounts.FIELDS).get(pk=connection.pk)
    before, changed = shown.settings, differing(shown.settings, settings)
    anew = accounts.asked_anew(shown, changed)
    had = {f"{field}_id": getattr(shown, f"{field}_id") for field in accounts.FIELDS}
    if not Connection.objects.filter(pk=connection.pk, revision=revision, **had).update(
        settings=settings,
        sandbox_settings=sandbox,
        settings_digest=digest_of_settings(connection.connector, settings),
        concurrency=at_once,
        link=leads,
        revision=revision + 1,
        **anew,  # in the same statement: an act tells of settings and of what comes with them
        **CLOSED,
    ):
        raise OutOfDate("Somebody changed this connection meanwhile.")
    Secret.objects.filter(pk__in=[had[f"{field}_id"] for field in anew]).delete()
    connection.refresh_from_db()
    if shown.settings_digest != connection.settings_digest:
        _keep(connection, {shown.settings_digest: before, connection.settings_digest: settings})
    told = _told(connection) | {"changed": changed}
    now, old = ({"concurrency": one.concurrency, "link": one.link} for one in (connection, shown))
    differs = {name: old[name] for name in now if now[name] != old[name]}
    if differs:
        told |= {"was": differs} | {name: now[name] for name in differs}
    name = connection.connector
    if _servers(name, before, shown.sandbox_settings) != _servers(name, settings, sandbox):
        told["credentials_removed"] = _forget_secrets(connection)
    outbox.record(connection.workspace, UPDATED, by=by, data=told)
    return connection


SERVER = frozenset({"scheme", "host", "port", "tls", "sslmode"})
"""Names of settings that say where credentials go, and whether others can read them on the way."""


def _servers(connector: str, *settings: dict[str, Any]) -> list[set[tuple[Any, ...]]]:
    """Where the connection reaches, with and without its sandbox: scheme, host and port of each."""
    live, sandbox = settings
    both = (live, {**live, **sandbox})
    return [set(_server_parts(with_defaults(connector, given))) for given in both]


def with_defaults(connector: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with what is so where they say nothing; alone, where they fit an older version
    of the connector.
    """
    try:
        whole = msgspec.convert(settings, registry.get(connector).settings_schema)
    except msgspec.ValidationError:
        return settings
    found: dict[str, Any] = msgspec.to_builtins(whole)
    return found


def _server_parts(value: Any, name: str = "") -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _server_parts(inner, str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _server_parts(inner, name)
    elif isinstance(value, str) and "://" in value:
        parts = urlsplit(value)
        yield name, parts.scheme.lower(), parts.netloc.lower()
    elif name.lower() in SERVER:
        yield name, value


def _forget_secrets(connection: Connection) -> list[Purpose]:
    """A credential is for the server that it was entered for; another one never gets to see it."""
    had = {
        purpose: secret
        for purpose in PURPOSES
        if (secret := getattr(connection, f"{purpose}_secret")) is not None
    }
    gone = {f"{purpose}_secret": None for purpose in had}
    Connection.objects.filter(pk=connection.pk).update(**gone)
    for purpose, secret in had.items():
        setattr(connection, f"{purpose}_secret", None)
        secret.delete()
    return list(had)


def _keep(connection: Connection, settings: dict[str, dict[str, Any]]) -> None:
    """Keep settings by their digests, without secrets; the oldest go when there are too many."""
    clear = Redaction()
    ConnectionVersion.objects.bulk_create(
        [
            ConnectionVersion(
                connection=connection, settings_digest=one, settings=clear.value(masked(given))
            )
            for one, given in settings.items()
        ],
        ignore_conflicts=True,
    )
    kept = connection.versions.order_by("-pk").values("pk")[:VERSIONS_KEPT_MAX]
    connection.versions.exclude(pk__in=list(kept.values_list("pk", flat=True))).delete()


def settings_of(connection: Connection, *digests: str) -> list[dict[str, Any]]:
    """The settings that had these digests, in their order; none if one of them is not known."""
    found = dict(
        connection.versions.filter(settings_digest__in=digests).values_list(
            "settings_digest", "settings"
        )
    )
    return [found[one] for one in digests] if found.keys() >= set(digests) else []


def differing(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The names of the settings that two versions have otherwise."""
    missing = object()
    names = sorted({*before, *after})
    return [one for one in names if before.get(one, missing) != after.get(one, missing)]


def changes_since(connection: Connection, since: datetime) -> list[str]:
    """“url, by Ada at 2026-11-22 10:02:15 UTC”: what people changed of its settings, the newest
    last, by the reader's clock.
    """
    found = Act.objects.filter(
        workspace=connection.workspace_id,
        type=UPDATED,
        at__gt=since,
        data__connection=connection.name,
    ).select_related("person")
    newest = [one for one in found.order_by("-pk")[:CHANGES_SHOWN_MAX] if one.data.get("changed")]
    return [
        f"{', '.join(one.data['changed'])}, by {one.person or 'the desk'}"
        f" at {formatting.absolute(one.at)}"
        for one in reversed(newest)
    ]


def set_secret(
    connection: Connection,
    purpose: Purpose,
    value: dict[str, Any],
    *,
    by: User | None,
    revision: int | None = None,
) -> bool:
    """Write the credential of one purpose; the old one is gone. Whether it opens another account:
    the system may be asked, so let it stand outside any transaction. Raises BadSettings.

    A person gives the `revision` that they were shown: a credential is for the server that it was
    entered for, so OutOfDate is raised where somebody has changed the connection meanwhile, or
    entered another one.
    """
    check_credential(registry.get(connection.connector), value)
    if revision not in {None, connection.revision}:  # before its system gets to see it
        raise OutOfDate(MEANWHILE)
    field = f"{purpose}_secret"
    old: int | None = getattr(connection, f"{field}_id")
    opened = accounts.opened(connection, purpose)
    account = accounts.ask(connection, purpose, value)
    name = f"{connection.name} ({purpose})"
    shown = {"settings_digest": connection.settings_digest, f"{field}_id": old}
    shown |= {} if revision is None else {"revision": revision}
    with transaction.atomic():
        new = Secret.objects.seal(connection.workspace, name, value, account=account)
        same = Connection.objects.filter(pk=connection.pk, **shown)
        if not same.update(**{field: new}, **CLOSED):
            raise OutOfDate(MEANWHILE)
        setattr(connection, field, new)
        is_other = old is not None and opened != accounts.opened(connection, purpose)
        if old:
            Secret.objects.filter(pk=old).delete()
        outbox.record(
            connection.workspace,
            EventType.CONNECTION_SECRET_SET,
            by=by,
            data=_told(connection) | {"purpose": purpose, "other_account": is_other},
        )
    return is_other


@transaction.atomic
def disable(connection: Connection, *, by: User | None) -> None:
    """Let nothing be called over it any more; a second time changes nothing."""
    if Connection.objects.filter(pk=connection.pk, disabled_at=None).update(
        disabled_at=clock.now()
    ):
        connection.refresh_from_db()
        outbox.record(
            connection.workspace, EventType.CONNECTION_DISABLED, by=by, data=_told(connection)
        )


@transaction.atomic
def enable(connection: Connection, *, by: User | None) -> None:
    if Connection.objects.filter(pk=connection.pk, disabled_at__isnull=False).update(
        disabled_at=None, **CLOSED
    ):
        connection.refresh_from_db()
        outbox.record(
            connection.workspace, EventType.CONNECTION_ENABLED, by=by, data=_told(connection)
        )


def check_settings(
    asker: ConnectionKey, connector: str, settings: dict[str, Any], sandbox: dict[str, Any]
) -> None:
    """Raise BadSettings with one sentence that says where; UnknownConnector where there is none."""
    plug = registry.get(connector)
    for given in (settings, {**settings, **sandbox}):
        try:
            if len(canonical_of(given)) > SETTINGS_BYTES_MAX:
                raise BadSettings(f"Settings may have {SETTINGS_BYTES_MAX} bytes.")
            read = msgspec.convert(given, plug.settings_schema)
            fault = asked(asker, plug, "its settings", partial(_fault, plug, read))
        except msgspec.ValidationError as wrong:
            fields = msgspec.structs.fields(plug.settings_schema)
            wanted = ", ".join(one.encode_name for one in fields) or "nothing"
            raise BadSettings(f"{wrong}. {plug.title} wants: {wanted}.") from wrong
        except (ValueError, Refused, CannotRead) as wrong:
            raise BadSettings(str(wrong)) from wrong
        if fault:
            raise BadSettings(fault)


def _fault(plug: Connector, settings: Any) -> str:
    """What the connector has against its settings; empty where it can work with them."""
    try:
        plug.operations_for(settings)
        plug.check_settings(settings)
    except ValueError as wrong:
        return str(wrong) or "The settings do not fit."
    return ""


def check_credential(connector: Connector, value: dict[str, Any]) -> None:
    """Raise BadSettings with one sentence that says what does not fit."""
    try:
        msgspec.convert(value, connector.credential_schema)
    except msgspec.ValidationError as wrong:
        wanted = ", ".join(credential_fields(connector)) or "nothing"
        why = str(wrong).rstrip(".")
        raise BadSettings(
            f"The credential does not fit; {connector.title} wants: {wanted}. {why}."
        ) from None


def credential_fields(connector: Connector) -> list[str]:
    """The names of what a credential holds, for the form; never a value."""
    return [field.encode_name for field in msgspec.structs.fields(connector.credential_schema)]


def _told(connection: Connection) -> dict[str, Any]:
    """What the ledger hears: the digest, not the settings, for they may name people and places."""
    return {
        "connection": connection.name,
        "connector": connection.connector,
        "revision": connection.revision,
        "settings_digest": connection.settings_digest,
        "concurrency": connection.concurrency,
    }


# A dry run: a connection tries one of its twins on a sandbox target, as it would in earnest.
#
# It runs with the connection's `sandbox_settings` laid over its settings, and not at all where
# there are none: it never reaches what agents work on. What it does there stays there.


class NoSandbox(Exception):
    """We stopped because the connection has no sandbox settings; add them, then rehearse."""


@dataclass(frozen=True, slots=True)
class Beat:
    """One part of a rehearsal: what was tried, whether it went well, what was said."""

    name: str
    ok: bool
    detail: str


def sandboxed(connection: Connection) -> Connection:
    """The connection as it is in its sandbox; raises NoSandbox."""
    if not connection.sandbox_settings:
        raise NoSandbox(f"{connection.name} has no sandbox settings.")
    other = copy.copy(connection)
    other.settings = {**connection.settings, **connection.sandbox_settings}
    return other


def rehearse(
    connection: Connection, operation: str, args: State, target: Target, *, by: User
) -> list[Beat]:
    """Preview, look, probe, do, read back, probe, do again; stops at the first that goes wrong.

    Raises NoSandbox. It makes calls, so it must stand outside any transaction.
    """
    there = sandboxed(connection)
    beats: list[Beat] = []
    try:
        for beat in _beats(there, operation, args, target):
            beats.append(beat)
            if not beat.ok:
                break
    except (Refused, CannotRead) as stopped:
        beats.append(Beat("stopped", ok=False, detail=str(stopped)))
    outbox.record(
        connection.workspace,
        EventType.CONNECTION_REHEARSED,
        by=by,
        data={
            "connection": connection.name,
            "operation": operation,
            "ok": all(beat.ok for beat in beats),
            "beats": [beat.name for beat in beats],
        },
    )
    return beats


def _beats(there: Connection, operation: str, args: State, target: Target) -> Iterator[Beat]:
    declared = calls.operation_of(there, operation)
    facts = calls.Facts(key=f"rehearsal:{uuid.uuid4()}", reason="A rehearsal.")
    card = calls.preview(there, operation, args, target, **facts)
    yield Beat("previewed", ok=True, detail=card.title)
    if declared.observes:
        seen = calls.observe(there, operation, args, target, **facts)
        facts["observed"] = seen
        facts["expected"] = seen.state if seen.found else None
        yield Beat("looked", ok=True, detail="found" if seen.found else "not there")
    if declared.probe != "none":
        before = calls.probe(there, operation, args, target, **facts).found
        yield Beat("not done yet, says the probe", ok=before != "cannot_tell", detail=before)
    answer = calls.apply(there, operation, args, target, **facts)
    yield Beat("done", ok=answer.outcome == "applied", detail=answer.detail or answer.outcome)
    yield from _afterwards(there, operation, args, target, facts)


def _afterwards(
    there: Connection, operation: str, args: State, target: Target, facts: calls.Facts
) -> Iterator[Beat]:
    declared = calls.operation_of(there, operation)
    if declared.reads_back:
        check = calls.verify(there, operation, args, target, **facts)
        wrong = [str(one["name"]) for one in check.checks if not one["ok"]]
        detail = f"differs: {', '.join(wrong)}" if wrong else "as it should be"
        yield Beat("read back", ok=check.ok, detail=detail)
    if declared.probe != "none":
        after = calls.probe(there, operation, args, target, **facts).found
        yield Beat("found again by the probe", ok=after == "present", detail=after)
    if declared.may_repeat:
        again = calls.apply(there, operation, args, target, **facts)
        detail = again.detail or again.outcome
        yield Beat("done a second time", ok=again.outcome == "applied", detail=detail)


# Which tools stand on a connection: the floor that knows the policy says it here, by `tells`.


class Dependents(NamedTuple):
    """Globs of the tools that are undone over it, and of those of which it finds out by a probe
    what came of a call.
    """

    undone: frozenset[str] = frozenset()
    probed: frozenset[str] = frozenset()


Tells = Callable[[int, str], Dependents]
"""Of a workspace and the name of a connection."""

_known: list[Tells] = []


def tells(dependents: Tells) -> Tells:
    _known.append(dependents)
    return dependents


def dependents_of(connection: Connection) -> Dependents:
    told = [tells_of(connection.workspace_id, connection.name) for tells_of in _known]
    return Dependents(
        undone=frozenset().union(*(one.undone for one in told)),
        probed=frozenset().union(*(one.probed for one in told)),
    )
