"""Calls: how the engine reaches a connector.

Every call opens its connection with the credential of its purpose (reading never holds the one that
can write), ends at its operation's time limit whatever the connector does meanwhile, is logged, and
leaves without a trace of the credentials. It must stand outside any transaction.

`apply` and `probe` never raise: what is not a clear success is `no_effect` if the connector knows
it, and otherwise `unknown` or `cannot_tell`. `observe` and `verify` raise CannotRead. `preview`,
`drifted` and `satisfied` touch nothing.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict, TypeVar, Unpack

import msgspec

from connectors import registry
from connectors.calllog import Logged
from connectors.contract import (
    Answer,
    Call,
    CannotRead,
    Check,
    Connector,
    FieldDiff,
    Finding,
    Observation,
    Operation,
    Preview,
    Purpose,
    Recorded,
    Refused,
    Session,
    State,
    Target,
)
from connectors.failures import said, tells
from connectors.models import Connection
from connectors.models.connections import CallOutcome
from connectors.outbound import Deadline, Outbound, OutOfTime
from connectors.redaction import Redaction
from workspaces.models import Secret

T = TypeVar("T")

GRACE_SECONDS = 0.5
"""How much longer than its limit we wait for a connector, so that it may end and say why."""


class Facts(TypedDict, total=False):
    """What else is known of a call; see `contract.Call` for the meaning of each."""

    key: str
    before: Recorded
    expected: Recorded
    observed: Observation | None
    must_be_true: State | None
    sent_at: datetime | None
    reason: str


def operation_of(connection: Connection, name: str) -> Operation:
    """The declared operation; raises Refused where the connection has none of this name."""
    connector, settings = _connector(connection)
    return _operation(connector, settings, name)


def operations_of(connection: Connection) -> Mapping[str, Operation]:
    """All that can be done over this connection; raises Refused if its settings no longer fit."""
    connector, settings = _connector(connection)
    return connector.operations_for(settings)


def connector_version(connection: Connection) -> str:
    """`name@version` of the installed connector: part of what people approve."""
    connector = _installed(connection.connector)
    return f"{connector.name}@{connector.version}"


def preview(
    connection: Connection, operation: str, args: State, target: Target, **facts: Unpack[Facts]
) -> Preview:
    """What would be done. Pure; raises Refused for what can never be sent."""
    connector, call = _drafted(connection, operation, args, target, facts)
    call.operation.check_args(args)
    return connector.preview(call)


def drifted(
    connection: Connection,
    operation: str,
    args: State,
    target: Target,
    observation: Observation,
    **facts: Unpack[Facts],
) -> list[FieldDiff]:
    """Where the observed target differs from `expected`. Pure."""
    connector, call = _drafted(connection, operation, args, target, facts)
    return connector.drifted(call, observation)


def satisfied(
    connection: Connection,
    operation: str,
    args: State,
    target: Target,
    observation: Observation,
    **facts: Unpack[Facts],
) -> bool:
    """Whether the post-condition holds already, so that no call is needed. Pure."""
    connector, call = _drafted(connection, operation, args, target, facts)
    return connector.satisfied(call, observation)


def observe(
    connection: Connection, operation: str, args: State, target: Target, **facts: Unpack[Facts]
) -> Observation:
    """Read the target now, for which no argument is needed; raises CannotRead."""
    with Logged(connection, "observe", operation, target) as log:
        return _read(log, lambda connector, call: connector.observe(call), args, facts)


def verify(
    connection: Connection, operation: str, args: State, target: Target, **facts: Unpack[Facts]
) -> Check:
    """Read the target anew and hold it against the post-condition; raises CannotRead."""
    with Logged(connection, "verify", operation, target) as log:
        return _read(log, lambda connector, call: connector.verify(call), args, facts)


def apply(
    connection: Connection, operation: str, args: State, target: Target, **facts: Unpack[Facts]
) -> Answer:
    """Do it once under `key`. Never raises; a time-out is `unknown`."""
    with Logged(connection, "apply", operation, target) as log:
        redaction = Redaction()
        try:
            connector, call, redaction = _opened(log, args, facts, "compensate")
            call.operation.check_args(args)
        except (Refused, CannotRead) as closed:
            answer, is_telling = Answer(outcome="no_effect", detail=str(closed)), False
        else:
            answer, is_telling = _applied(connector, call)
        answer = replace(
            answer,
            evidence=redaction.evidence(answer.evidence),
            detail=redaction.text(answer.detail),
        )
        log.ended(CallOutcome(answer.outcome), answer.detail, tells=is_telling)
        return answer


def probe(
    connection: Connection, operation: str, args: State, target: Target, **facts: Unpack[Facts]
) -> Finding:
    """Find out whether an earlier try under `key` took effect. Never raises.

    Whether enough time has passed for `absent` to be a proof is the caller's to know
    (`limit_seconds` + `horizon_seconds` after `sent_at`).
    """
    with Logged(connection, "probe", operation, target) as log:
        redaction = Redaction()
        try:
            connector, call, redaction = _opened(log, args, facts, "observe")
            finding = _within(call, lambda: connector.probe(call))
        except Exception as failure:  # noqa: BLE001 - a plug-in may raise anything
            detail = redaction.text(said(failure))
            log.ended(CallOutcome.FAILED, detail, tells=tells(failure))
            return Finding(found="cannot_tell", evidence={"error": detail})
        return replace(finding, evidence=redaction.evidence(finding.evidence))


def _applied(connector: Connector, call: Call) -> tuple[Answer, bool]:
    """The answer, and whether it says something of the connection's health."""
    try:
        return _within(call, lambda: connector.apply(call)), True
    except Refused as refusal:
        return Answer(outcome="no_effect", detail=str(refusal)), tells(refusal)
    except Exception as failure:  # noqa: BLE001 - whatever else it is, we do not know
        return Answer(outcome="unknown", detail=said(failure)), True


def _read(log: Logged, method: Callable[[Connector, Call], T], args: State, facts: Facts) -> T:
    redaction = Redaction()
    try:
        connector, call, redaction = _opened(log, args, facts, "observe")
        return _within(call, lambda: method(connector, call))
    except Exception as failure:  # noqa: BLE001 - a plug-in may raise anything
        detail = redaction.text(said(failure))
        log.ended(CallOutcome.FAILED, detail, tells=tells(failure))
        raise CannotRead(detail) from None


def _drafted(
    connection: Connection, operation: str, args: State, target: Target, facts: Facts
) -> tuple[Connector, Call]:
    connector, settings = _connector(connection)
    declared = _operation(connector, settings, operation)
    session = Session(
        connection=connection.name,
        purpose="observe",
        settings=settings,
        credentials=None,
        outbound=Outbound(Deadline(0)),
    )
    known: Any = {"key": "", **facts}
    return connector, Call(
        operation=declared, args=args, target=target, connection=session, **known
    )


def _opened(
    log: Logged, args: State, facts: Facts, purpose: Purpose
) -> tuple[Connector, Call, Redaction]:
    """The call with its connection open, and what must not be seen of it afterwards."""
    connection = log.connection
    connector, call = _drafted(connection, log.operation, args, log.target, facts)
    if connection.is_disabled:
        raise CannotRead(f"The connection {connection.name} is disabled.")
    secret = connection.observe_secret if purpose == "observe" else connection.compensate_secret
    clear = _clear(connection, connector, secret, purpose)
    session = replace(
        call.connection,
        purpose=purpose,
        credentials=msgspec.convert(clear, connector.credential_schema),
        outbound=Outbound(Deadline(call.operation.limit_seconds)),
    )
    return connector, replace(call, connection=session), Redaction(clear)


def _clear(
    connection: Connection, connector: Connector, secret: Secret | None, purpose: Purpose
) -> dict[str, Any]:
    clear = secret.open() if secret else {}
    try:
        msgspec.convert(clear, connector.credential_schema)
    except msgspec.ValidationError:  # its message may quote the value
        fault = "does not fit" if secret else "is missing"
        raise CannotRead(f"The credential to {purpose} over {connection.name} {fault}.") from None
    return clear


def _connector(connection: Connection) -> tuple[Connector, Any]:
    connector = _installed(connection.connector)
    try:
        return connector, msgspec.convert(connection.settings, connector.settings_schema)
    except msgspec.ValidationError as wrong:
        raise Refused(f"The settings of {connection.name} do not fit: {wrong}") from wrong


def _installed(name: str) -> Connector:
    try:
        return registry.get(name)
    except registry.UnknownConnector as unknown:
        raise Refused(str(unknown)) from unknown


def _operation(connector: Connector, settings: Any, name: str) -> Operation:
    try:
        return connector.operations_for(settings)[name]
    except KeyError:
        raise Refused(f"{connector.name} has no operation “{name}” here.") from None


def _within(call: Call, work: Callable[[], T]) -> T:
    """Run a connector's method, and stop waiting for it when its time is over.

    A method that hangs is left behind in its thread; it can send nothing more, for everything that
    `Outbound` gives out ends at the same deadline.
    """
    answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((work(), None))
        except BaseException as failure:  # noqa: BLE001 - handed to the caller, who waits for it
            answers.put((None, failure))

    threading.Thread(target=run, daemon=True, name=f"call {call.operation.name}").start()
    try:
        answer, failure = answers.get(timeout=call.operation.limit_seconds + GRACE_SECONDS)
    except queue.Empty:
        raise OutOfTime(f"No answer within {call.operation.limit_seconds:g} seconds.") from None
    if failure is not None:
        raise failure
    return answer  # type: ignore[return-value]
