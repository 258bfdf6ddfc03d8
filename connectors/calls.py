"""Calls: how the engine reaches a connector.

Every call opens its connection with the credential of its purpose (reading never holds the one that
can write), ends at its operation's time limit whatever the connector does meanwhile, is logged, and
leaves without a trace of the credentials. It must stand outside any transaction.

`apply` and `probe` never raise: what is not a clear success is `no_effect` if the connector knows
it, and otherwise `unknown` or `cannot_tell`. `observe` and `verify` raise CannotRead. `preview`,
`drifted` and `satisfied` touch nothing; where they fail otherwise, or hang, that is Refused, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack, get_args, get_type_hints

import msgspec
from django.db import Error as DatabaseError

from amends.protocol.masking import holds_mask
from connectors import normalization, registry
from connectors.call_pool import GRACE_SECONDS, ConnectionKey, OutboundCall, asked
from connectors.calllog import CallRecord
from connectors.contract import (
    Answer,
    Call,
    CannotRead,
    CannotRestore,
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
from connectors.models import CallOutcome, Connection
from connectors.normalization import Redaction
from connectors.outbound import AnswerTooLarge, Deadline, NotSent, Outbound, OutOfTime
from ledger.canonical import digest
from ledger.desk_events import masking_key
from workspaces import clock
from workspaces.encryption import CannotOpen
from workspaces.models import Secret, Workspace

__all__ = ["GRACE_SECONDS", "Facts"]
T = TypeVar("T")
MASKED = "What would be sent holds a masked value, which nobody here knows."
VERSION_CHARACTERS_MAX = 40
"""Of a step's column."""
VERSION_DIGITS = 16


# What came of a call, in the words of the contract, without a trace of the credentials: to people,
# and of the connection's health.


def said(failure: BaseException) -> str:
    """Our own exceptions speak in sentences; others are named, too."""
    text = str(failure)
    if isinstance(failure, Refused | CannotRead | OutOfTime | AnswerTooLarge):
        return text
    return f"{type(failure).__name__}: {text}" if text else type(failure).__name__


def tells(failure: BaseException) -> bool:
    """A refusal is an answer; only one that was never sent tells of a connection that is down."""
    return isinstance(failure, NotSent) or not isinstance(failure, Refused | CannotRestore)


FINDINGS = get_args(get_type_hints(Finding)["found"])
OUTCOMES = get_args(get_type_hints(Answer)["outcome"])
READS = {"observe": Observation, "verify": Check}


class NoAnswer(Exception):
    """We stopped because a connector gave back what is not in the contract. We know nothing."""


def as_read(call: OutboundCall[T]) -> T:
    if call.failure is None and not isinstance(call.came, READS[call.line.method]):
        call.failure = NoAnswer(f"`{call.line.method}` gave back no answer of its kind.")
    if call.failure is None:
        return _kept(call.came)  # type: ignore[return-value]
    detail = call.redaction.text(said(call.failure))
    call.line.ended(CallOutcome.FAILED, detail, tells=tells(call.failure))
    kind = CannotRestore if isinstance(call.failure, CannotRestore) else CannotRead
    raise kind(detail) from None


def _kept(read: T) -> T:
    """What was read, in a form that can be written down."""
    if isinstance(read, Observation):
        return replace(read, state=normalization.value(read.state))
    if isinstance(read, Check):
        return replace(read, checks=normalization.value(read.checks))
    return read


def as_answer(call: OutboundCall[Answer]) -> Answer:
    answer, is_telling = _answer(call)
    redaction = call.redaction
    answer = replace(
        answer,
        evidence=redaction.evidence(answer.evidence),
        detail=redaction.text(answer.detail),
    )
    call.line.ended(CallOutcome(answer.outcome), answer.detail, tells=is_telling)
    return answer


def _answer(call: OutboundCall[Answer]) -> tuple[Answer, bool]:
    """The answer, and whether it says something of the connection's health."""
    failure = call.failure
    if failure is None:
        came = call.came
        if isinstance(came, Answer) and came.outcome in OUTCOMES:
            return came, True
        failure = NoAnswer("`apply` gave back no answer of its kind.")
    if call.work is None:  # never opened
        return Answer(outcome="no_effect", detail=str(failure)), False
    if isinstance(failure, Refused):
        return Answer(outcome="no_effect", detail=str(failure)), tells(failure)
    # Whatever else it is, we do not know.
    return Answer(outcome="unknown", detail=said(failure)), True


def as_finding(call: OutboundCall[Finding]) -> Finding:
    if call.failure is not None:
        detail = call.redaction.text(said(call.failure))
        call.line.ended(CallOutcome.FAILED, detail, tells=tells(call.failure))
        return Finding(found="cannot_tell", evidence={"error": detail})
    came = call.came
    if not isinstance(came, Finding) or came.found not in FINDINGS:
        detail = "`probe` gave back no finding."
        call.line.ended(CallOutcome.FAILED, detail, tells=True)
        return Finding(found="cannot_tell", evidence={"error": detail})
    return replace(came, evidence=call.redaction.evidence(came.evidence))


class Facts(TypedDict, total=False):
    """What else is known of a call; see `contract.Call` for the meaning of each."""

    limit_seconds: float
    """Shorter than the operation's own limit, or without a say."""
    key: str
    before: Recorded
    expected: Recorded
    observed: Observation | None
    must_be_true: State | None
    sent_at: datetime | None
    reason: str


def operation_of(connection: Connection, name: str) -> Operation:
    """The declared operation; raises Refused where the connection has none of this name."""
    return _operation(connection, *registry.opened(connection), name)


def operations_of(connection: Connection) -> Mapping[str, Operation]:
    """All that can be done over this connection; raises Refused if its settings no longer fit."""
    connector, settings = registry.opened(connection)
    return _operations(connection, connector, settings)


def missing(
    workspace: Workspace, operations: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], str]:
    """Of these operations, each a connection's name and its own, those that cannot be called as
    the connections stand: why, in a sentence.
    """
    wanted = dict.fromkeys(operations)
    names = {name for name, _ in wanted}
    here = Connection.objects.filter(workspace=workspace, name__in=names)
    by_name = {one.name: one for one in here}
    found: dict[tuple[str, str], str] = {}
    for name, operation in wanted:
        connection = by_name.get(name)
        if connection is None:
            found[name, operation] = f"There is no connection “{name}”."
        elif connection.is_disabled:
            found[name, operation] = f"The connection “{name}” is disabled."
        else:
            try:
                operation_of(connection, operation)
            except (Refused, CannotRead) as wrong:
                found[name, operation] = str(wrong)
    return found


def connector_version(connection: Connection) -> str:
    """`name@version` of the installed connector: part of what people approve. Of one that is longer
    than its column, how it begins and a digest. Raises Refused where none is installed.
    """
    connector = registry.of(connection)
    try:
        _, settings = registry.opened(connection)
        question = partial(connector.version_with, settings)
        version = asked(_asker(connection), connector, "its version", question, "version_with")
    except (Refused, CannotRead):  # nothing is called with such settings
        version = connector.version
    told = f"{connector.name}@{version}"
    if len(told) <= VERSION_CHARACTERS_MAX and told.isprintable():
        return told
    begins = "".join(filter(str.isprintable, told))
    mark = f"…{digest(told)[:VERSION_DIGITS]}"
    return f"{begins[: VERSION_CHARACTERS_MAX - len(mark)]}{mark}"


REASON_TO_COME = "(the plan’s reason)"


def preview(
    connection: Connection, operation: str, args: State, target: Target, **facts: Unpack[Facts]
) -> Preview:
    """What would be done. Pure; raises Refused for what can never be sent. The reason comes with
    the plan.
    """
    known: Facts = {"reason": REASON_TO_COME, **facts}
    connector, call = _drafted(connection, operation, args, target, known)
    call.operation.check_args(args)
    return asked(_asker(connection), connector, "a preview", partial(_preview, connector, call))


def drifted(
    connection: Connection,
    operation: str,
    args: State,
    target: Target,
    observation: Observation,
    **facts: Unpack[Facts],
) -> list[FieldDiff]:
    """Where the observed target differs from `expected`; what was masked is held by its mark."""
    connector, call = _drafted(connection, operation, args, target, facts)
    question = partial(connector.drifted, call, observation)
    differences = asked(_asker(connection), connector, "drift", question, "drifted")
    return normalization.still_differ(differences, partial(masking_key, connection.workspace))


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
    question = partial(connector.satisfied, call, observation)
    own = ("satisfied", "post_condition")
    # Without the approved one, the end state is that of a preview.
    plainly = call.must_be_true is not None
    return asked(_asker(connection), connector, "its end state", question, *own, plainly=plainly)


def observe(
    connection: Connection, operation: str, args: State, target: Target, **facts: Unpack[Facts]
) -> Observation:
    """Read the target now, for which no argument is needed; raises CannotRead."""
    return observing(connection, operation, args, target, **facts).here()


def verify(
    connection: Connection, operation: str, args: State, target: Target, **facts: Unpack[Facts]
) -> Check:
    """Read the target anew and hold it against the post-condition; raises CannotRead."""
    return verifying(connection, operation, args, target, **facts).here()


def apply(
    connection: Connection, operation: str, args: State, target: Target, **facts: Unpack[Facts]
) -> Answer:
    """Do it once under `key`. Never raises; a time-out is `unknown`."""
    return applying(connection, operation, args, target, **facts).here()


def probe(
    connection: Connection, operation: str, args: State, target: Target, **facts: Unpack[Facts]
) -> Finding:
    """Find out whether an earlier try under `key` took effect. Never raises.

    Whether enough time has passed for `absent` to be a proof is the caller's to know
    (`limit_seconds` + `horizon_seconds` after `sent_at`).
    """
    line = CallRecord(connection, "probe", operation, target)
    return _outbound(line, args, facts, "observe", Connector.probe, as_finding).here()


# The same as outbound calls, for whoever has many calls under way at once.


def observing(
    connection: Connection, operation: str, args: State, target: Target, **facts: Unpack[Facts]
) -> OutboundCall[Observation]:
    line = CallRecord(connection, "observe", operation, target)
    return _outbound(line, args, facts, "observe", Connector.observe, as_read)


def verifying(
    connection: Connection, operation: str, args: State, target: Target, **facts: Unpack[Facts]
) -> OutboundCall[Check]:
    line = CallRecord(connection, "verify", operation, target)
    return _outbound(line, args, facts, "observe", Connector.verify, as_read)


def applying(
    connection: Connection, operation: str, args: State, target: Target, **facts: Unpack[Facts]
) -> OutboundCall[Answer]:
    line = CallRecord(connection, "apply", operation, target)
    return _outbound(line, args, facts, "compensate", Connector.apply, as_answer)


def _outbound(
    line: CallRecord,
    args: State,
    facts: Facts,
    purpose: Purpose,
    method: Callable[[Connector, Call], T],
    judge: Callable[[OutboundCall[T]], T],
) -> OutboundCall[T]:
    """The call, ready to leave; where it cannot be opened, its answer is there at once."""
    try:
        connector, call, redaction = _opened(line, args, facts, purpose)
        if purpose == "compensate":
            call.operation.check_args(args)
    except (Refused, CannotRead) as closed:
        return OutboundCall(line, 0.0, None, judge, failure=closed)
    except Exception as failure:
        if purpose == "compensate" and isinstance(failure, DatabaseError):  # away for everybody
            raise
        return OutboundCall(line, 0.0, None, judge, failure=failure)
    work = partial(getattr(connector, method.__name__), call)
    return OutboundCall(line, _limit(call.operation, facts), work, judge, redaction)


def _limit(operation: Operation, facts: Facts) -> float:
    return min(operation.limit_seconds, facts.get("limit_seconds", operation.limit_seconds))


def _drafted(
    connection: Connection, operation: str, args: State, target: Target, facts: Facts
) -> tuple[Connector, Call]:
    connector, settings = registry.opened(connection)
    declared = _operation(connection, connector, settings, operation)
    session = Session(
        connection=connection.name,
        purpose="observe",
        settings=settings,
        credentials=None,
        outbound=Outbound(Deadline(0)),
    )
    return connector, _call(declared, args, target, session, facts)


def _call(
    operation: Operation, args: State, target: Target, session: Session, facts: Facts
) -> Call:
    known: Any = {"key": "", **facts}
    known.pop("limit_seconds", None)
    return Call(operation=operation, args=args, target=target, connection=session, **known)


def _opened(
    line: CallRecord, args: State, facts: Facts, purpose: Purpose
) -> tuple[Connector, Call, Redaction]:
    """The call with its connection open, and what must not be seen of it afterwards."""
    connection = line.connection
    connector, settings = registry.opened(connection)
    declared = _operation(connection, connector, settings, line.operation)
    if connection.is_disabled:
        raise CannotRead(f"The connection {connection.name} is disabled.")
    secret = connection.observe_secret if purpose == "observe" else connection.compensate_secret
    clear, credentials = _credentials(connection, connector, secret, purpose)
    clock.now()  # by which it may be signed where the database is asked nothing
    session = Session(
        connection=connection.name,
        purpose=purpose,
        settings=settings,
        credentials=credentials,
        outbound=Outbound(Deadline(_limit(declared, facts))),
    )
    return connector, _call(declared, args, line.target, session, facts), Redaction(clear)


def _credentials(
    connection: Connection, connector: Connector, secret: Secret | None, purpose: Purpose
) -> tuple[dict[str, Any], Any]:
    """The credential of this purpose as it is kept, and as the connector wants it."""
    try:
        clear = secret.open() if secret else {}
        return clear, msgspec.convert(clear, connector.credential_schema)
    except CannotOpen:
        fault = "cannot be opened with any key of this deployment"
    except msgspec.ValidationError:  # its message may quote the value
        fault = "does not fit" if secret else "is missing"
    raise CannotRead(f"The credential to {purpose} over {connection.name} {fault}.")


def _operation(connection: Connection, connector: Connector, settings: Any, name: str) -> Operation:
    found = _operations(connection, connector, settings).get(name)
    if found is None:
        raise Refused(f"{connector.name} has no operation “{name}” here.")
    return found


def _operations(
    connection: Connection, connector: Connector, settings: Any
) -> Mapping[str, Operation]:
    def question() -> Mapping[str, Operation]:
        return dict(connector.operations_for(settings))  # what is no mapping fails as its fault

    return asked(_asker(connection), connector, "operations", question, "operations_for")


def _asker(connection: Connection) -> ConnectionKey:
    """By its name, which it has before it is saved, too."""
    return ConnectionKey(connection.workspace_id, connection.name)


def _preview(connector: Connector, call: Call) -> Preview:
    drawn = connector.preview(call)
    if not isinstance(drawn, Preview):
        raise TypeError("a preview is a Preview")
    digest(drawn.must_be_true)  # what people approve is JSON
    if connector.name in registry.BUILT_IN:
        return drawn  # ours send masks in no place where they would be written
    if holds_mask(json.dumps(drawn.will_send, ensure_ascii=False, default=str)):  # as it is shown
        raise Refused(MASKED)
    return drawn
