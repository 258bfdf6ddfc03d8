"""Rehearse: a connection tries one of its twins on a sandbox target, as it would in earnest.

It runs with the connection's `sandbox_settings` laid over its settings, and not at all where there
are none: a rehearsal never reaches what agents work on. What it does there stays there.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from amends.protocol.vocabulary import EventType
from connectors import calls
from connectors.contract import CannotRead, Refused, State, Target
from connectors.models import Connection
from workspaces import outbox
from workspaces.models import User


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
