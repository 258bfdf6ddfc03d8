"""What is known when a call comes to the gate, read in one round trip under the key's row lock; and
what this process saw last, to judge by before the database is asked.

The run is locked here too: recovery starts under the same lock, so that no call slips in between.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec

from amends.protocol.masking import BARE_PLACEHOLDER
from approvals import memory
from approvals.gate.begin_request import BeginRequest
from approvals.memory import RememberedCall, ValueDigest
from approvals.policy import LookupResult, Policy, ToolCall
from approvals.policy.conditions import Cap
from approvals.tallies import Account, Meter, TallyOwner, TallyState
from ledger.append.statements import Statement
from ledger.canonical import digest as canonical_digest
from ledger.drivers import Rows
from ledger.fold.actions import args_digest
from ledger.models import ActionState
from workspaces.locks import ROW_LOCK

LOCK_KEY = """
INSERT INTO approvals_gatekey (agent_id, key, attempt, denied, met_at)
VALUES (%b, %b, '', '', clock_timestamp())
ON CONFLICT (agent_id, key) DO UPDATE SET met_at = clock_timestamp()
RETURNING attempt, lease_until, denied, clock_timestamp()"""

SEE_KEY = """
SELECT coalesce(max(attempt), ''), max(lease_until), coalesce(max(denied), ''), clock_timestamp()
FROM approvals_gatekey WHERE agent_id = %b AND key = %b"""

LOCK_RUN = f"""
SELECT id FROM ledger_run WHERE workspace_id = %b AND run = %b {ROW_LOCK}"""  # noqa: S608 - our own words

# One statement, for each costs the door a tenth of a millisecond; every part is one look by index.
# Of several actions under one key the one of which most is known speaks; of those that came to
# nothing yet, this run's. An approval is found only by the run that asked for it.
LOOK = """
SELECT run.*, action.*, other.*, approval.*, denials.*, pauses.*, policy.*
FROM (SELECT %b::bigint AS workspace, %b::text AS run, %b::bigint AS agent, %b::text AS key,
    %b::text AS action, %b::text AS attempt, %b::text AS subject, %b::text AS digest) call
LEFT JOIN LATERAL (
    SELECT r.id, r.agent_id, r.state, r.held_by, r.labels::text, r.on_behalf_of::text,
        EXISTS (SELECT FROM ledger_action v WHERE v.run_id = r.id AND v.verified = 'failed'
                AND v.compensated NOT IN ('compensated', 'corrected', 'repaired')),
        EXISTS (SELECT FROM ledger_action p WHERE p.run_id = r.id AND p.saga = 'pivot'
                AND p.state IN ('running', 'unknown', 'succeeded')
                AND p.compensated IN ('none', 'repaired') AND p.key <> call.key),
        r.flags,
        (SELECT jsonb_agg(DISTINCT jsonb_build_array(p.tool, p.action_class, p.trusted))::text
            FROM ledger_action p WHERE p.run_id = r.id AND p.saga = '' AND p.fence = 0
                AND p.state IN ('running', 'unknown', 'succeeded')
                AND p.compensated IN ('none', 'repaired') AND p.key <> call.key)
    FROM ledger_run r WHERE r.workspace_id = call.workspace AND r.run = call.run) run ON true
LEFT JOIN LATERAL (
    SELECT r.run, a.run_id, a.action, a.state, a.compensated, a.args_digest, a.result::text,
        a.current_attempt, a.fence, a.flags, a.started_at,
        (SELECT t.state FROM ledger_attempt t
            WHERE t.action_id = a.id AND t.attempt = call.attempt),
        a.id, a.compensation::text, concat(a.args::text, a.targets::text) ~ %b,
        CASE WHEN a.state IN ('planned', 'approved', 'failed') THEN json_build_object(
            'before', a.before, 'class', a.action_class, 'risk', a.risk, 'saga', a.saga)::text END,
        CASE WHEN a.args_digest <> call.digest OR a.state = 'failed' THEN json_build_object(
            'tool', a.tool, 'targets', a.targets, 'args', a.args)::text END
    FROM ledger_action a JOIN ledger_run r ON r.id = a.run_id
    WHERE a.agent_id = call.agent AND a.key = call.key AND a.key <> ''
    ORDER BY a.state IN ('succeeded', 'unknown', 'running') DESC, r.run = call.run DESC,
        array_position('{succeeded,unknown,running,failed,approved,planned}', a.state::text), a.id
    LIMIT 1) action ON true
LEFT JOIN LATERAL (
    SELECT a.key FROM ledger_action a WHERE a.run_id = run.id AND a.action = call.action
        AND a.key <> call.key AND a.key <> '' LIMIT 1) other ON true
LEFT JOIN LATERAL (
    SELECT id, state, digest, expires_at, expires_at <= clock_timestamp(), closing_reason,
        closed_by_id, used_by, CASE WHEN p.replaces_id IS NOT NULL THEN json_build_object(
            'args', p.calls -> 0 -> 'args', 'asked', p.calls -> 0 -> 'more' -> 'asked')::text END
    FROM approvals_approval p WHERE p.workspace_id = call.workspace AND p.subject_key = call.subject
        AND p.run_ref = call.run AND p.subject_kind = 'action'
    ORDER BY id DESC LIMIT 1) approval ON true
LEFT JOIN LATERAL (
    SELECT coalesce((SELECT d.times FROM approvals_denial d WHERE d.agent_id = call.agent
            AND d.key = call.key AND d.run_ref = call.run), 0),
        coalesce((SELECT sum(d.times) FROM (SELECT times FROM approvals_denial
            WHERE workspace_id = call.workspace AND run_ref = call.run LIMIT %b) d), 0)
    ) denials ON true
LEFT JOIN LATERAL (
    SELECT json_agg(json_build_array(p.id, p.kind, p.name, p.reason,
        coalesce(nullif(u.name, ''), u.email, 'the desk itself')) ORDER BY p.id)::text
    FROM approvals_pause p LEFT JOIN workspaces_user u ON u.id = p.paused_by_id
    WHERE p.workspace_id = call.workspace AND p.lifted_at IS NULL) pauses ON true
LEFT JOIN LATERAL (
    SELECT v.digest FROM approvals_policyversion v
    WHERE v.workspace_id = call.workspace AND v.active) policy ON true"""


@dataclass(frozen=True, slots=True)
class KnownRun:
    id: int
    agent_id: int | None
    state: str
    held_by: str
    labels: dict[str, Any]
    on_behalf_of: Any
    verification_failed: bool
    pivot_passed: bool
    flags: Sequence[str] = ()
    without_place: Sequence[ToolCall] = ()
    """Calls past the gate that stand, and whose place in the order of the run nobody has said."""


@dataclass(frozen=True, slots=True)
class KnownAction:
    run: str
    run_id: int
    action: str
    state: str
    compensated: str
    args_digest: str
    result: Any
    attempt: str
    fence: int
    flags: Sequence[str]
    started_at: datetime | None
    this_attempt: str | None
    id: int
    compensation: Any
    holds_bare: bool
    plan: Mapping[str, Any] | None
    """What else the plan says, under its names on the wire, while nothing has begun."""
    other_call: Mapping[str, Any] | None
    """Tool, targets and arguments where their digest is not the request's, or the last try had no
    effect.
    """

    @property
    def was_changed(self) -> bool:
        """Whether `other_call` has what an approver made of the arguments, and not what was asked
        for, which the digest is of: a version before left it there after a try without effect.
        """
        call = self.other_call
        return call is not None and args_digest(**call) != self.args_digest


@dataclass(frozen=True, slots=True)
class KnownApproval:
    id: int
    state: str
    digest: str
    expires_at: datetime
    is_over: bool
    closing_reason: str
    closed_by: int | None
    used_by: str
    change: Mapping[str, Any] | None
    """Where somebody has changed the arguments: these as `args`, and as `asked` what was asked."""


@dataclass(frozen=True, slots=True)
class Paused:
    id: int
    kind: str
    name: str
    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class BeginContext:
    """Everything that the table of `begin` looks at."""

    now: datetime
    lease_of: str
    lease_until: datetime | None
    denied: str
    policy_digest: str | None
    run: KnownRun | None = None
    action: KnownAction | None = None
    other_key: str | None = None
    approval: KnownApproval | None = None
    denials_of_key: int = 0
    """How often a rule has denied this key in this run; and below, how often all of its keys."""
    denials_of_run: int = 0
    pauses: list[Paused] = field(default_factory=list)

    @property
    def labels(self) -> Mapping[str, Any]:
        """Those of the run; none where nothing is known of it, or it was begun with others, too."""
        return self.run.labels if self.run and "disagree:labels" not in self.run.flags else {}

    @property
    def on_behalf_of(self) -> Any:
        return self.run.on_behalf_of if self.run else None

    @property
    def change(self) -> Mapping[str, Any] | None:
        """What an approver has made of the call, where that is what people are asked about, may be
        begun, or was begun. A try without effect is over: another is judged as it is asked for.
        """
        approval, action = self.approval, self.action
        if approval is None or approval.change is None:
            return None
        is_living = approval.state in {"waiting", "granted"}
        is_begun = (
            approval.state == "used"
            and action
            and action.attempt == approval.used_by
            and action.state != ActionState.FAILED
        )
        return approval.change if is_living or is_begun else None


def as_approved(request: BeginRequest, context: BeginContext) -> BeginRequest:
    """The call that would run: with the arguments that an approver has changed, if any."""
    return request if context.change is None else request.with_args(context.change["args"])


def as_asked(
    request: BeginRequest, known: KnownAction | None, context: BeginContext
) -> KnownAction | None:
    """What is known of the call, with the arguments that were asked for: a retry brings these. What
    another run has made under the key nobody has changed here.
    """
    if known is None or known.other_call is None or context.change is None:
        return known
    if known.run != request.planned.run:
        return known
    asked = {"args": context.change["asked"]["args"]}
    return replace(known, other_call={**known.other_call, **asked})


def reads(request: BeginRequest) -> list[Statement]:
    """The statements of the look; `?explain=1` looks without locking or writing.

    The locks are statements of their own: what is read after them is as it stands after the wait.
    """
    actor, run = request.actor, request.planned.run
    key: Statement = (SEE_KEY if request.explain else LOCK_KEY, [actor.agent_id, request.key])
    lock: list[Statement] = [] if request.explain else [(LOCK_RUN, [actor.workspace_id, run])]
    call = [
        actor.workspace_id,
        run,
        actor.agent_id,
        request.key,
        request.planned.action,
        request.attempt,
        request.subject_key,
        request.args_digest,
        BARE_PLACEHOLDER,
        memory.DENIED_OFTEN,
    ]
    return [key, *lock, (LOOK, call)]


def context_of(rows: Sequence[Rows]) -> BeginContext:
    """What the rows of `reads` say."""
    lease_of, lease_until, denied, now = rows[0][0]
    parts = iter(rows[-1][0])
    run = list(islice(parts, len(fields(KnownRun))))
    action = list(islice(parts, len(fields(KnownAction))))
    other = next(parts)
    approval = list(islice(parts, len(fields(KnownApproval))))
    of_key, of_run, pauses, policy = parts
    return BeginContext(
        now=now,
        lease_of=lease_of,
        lease_until=lease_until,
        denied=denied,
        policy_digest=policy,
        run=_run(run) if run[0] is not None else None,
        action=_action(action) if action[0] is not None else None,
        other_key=other,
        approval=_approval(approval) if approval[0] is not None else None,
        denials_of_key=of_key,
        denials_of_run=int(of_run),
        pauses=[Paused(*one) for one in msgspec.json.decode(pauses)] if pauses else [],
    )


def _run(row: Sequence[Any]) -> KnownRun:
    id_, agent_id, state, held_by, labels, person, *passed, without_place = row
    known_labels = msgspec.json.decode(labels) if labels else {}
    calls = [
        ToolCall(tool=tool, action_class=class_, trusted=trusted)
        for tool, class_, trusted in _read(without_place) or ()
    ]
    known = KnownRun(id_, agent_id, state, held_by, known_labels, _read(person), *passed)
    return replace(known, without_place=calls)


def _action(row: Sequence[Any]) -> KnownAction:
    found = KnownAction(*row)
    return replace(
        found,
        result=_read(found.result),
        compensation=_read(found.compensation),
        plan=_read(found.plan),
        other_call=_read(found.other_call),
    )


def _approval(row: Sequence[Any]) -> KnownApproval:
    found = KnownApproval(*row)
    return replace(found, change=_read(found.change))


def _read(text: Any) -> Any:
    return None if text is None else msgspec.json.decode(text)


# What this process saw last. Nothing of it is ever believed: whoever acts on a guess has the
# database confirm, under the locks, that it still holds. A wrong one costs one round trip more.

# Per process; the oldest are forgotten. A run's labels take some hundred bytes.
WORKSPACES_MAX = 2_000
RUNS_MAX = 10_000
SHAPES_MAX = 10_000

K = TypeVar("K")
V = TypeVar("V")


class RecentValues(Generic[K, V]):
    """The last values of the keys that were met lately."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        return self._values.get(key)

    def keep(self, key: K, value: V) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._most:
            self._values.popitem(last=False)

    def forget(self, key: K) -> None:
        self._values.pop(key, None)


@dataclass(frozen=True, slots=True)
class WorkspaceSnapshot:
    """What held in a workspace: the digest of its policy, and its pauses."""

    policy_digest: str | None
    pauses: Sequence[Paused]


_snapshots: RecentValues[int, WorkspaceSnapshot] = RecentValues(WORKSPACES_MAX)
_labels: RecentValues[tuple[int, str], Mapping[str, Any]] = RecentValues(RUNS_MAX)
_shapes: RecentValues[tuple[int, str], str] = RecentValues(SHAPES_MAX)
"""The shape of arguments that was noted last, by agent and tool."""


def note_seen(request: BeginRequest, context: BeginContext) -> None:
    """Remember what the gate has just read."""
    workspace = request.actor.workspace_id
    _snapshots.keep(workspace, WorkspaceSnapshot(context.policy_digest, context.pauses))
    key = workspace, request.planned.run
    if context.labels:
        _labels.keep(key, context.labels)
    else:
        _labels.forget(key)


def announces_new_schema(request: BeginRequest) -> bool:
    """Whether it announces a shape of arguments that this process has not noted last."""
    schema = request.tool_schema
    return schema is not None and _shapes.get(_tool_of(request)) != canonical_digest(schema)


def note_schema(request: BeginRequest) -> None:
    """Remember that the shape is noted, once it is."""
    _shapes.keep(_tool_of(request), canonical_digest(request.tool_schema))


def _tool_of(request: BeginRequest) -> tuple[int, str]:
    return request.actor.agent_id or 0, request.tool


def seen_snapshot(request: BeginRequest) -> WorkspaceSnapshot | None:
    return _snapshots.get(request.actor.workspace_id)


def seen_labels(request: BeginRequest) -> Mapping[str, Any]:
    """The labels of the run as last seen; most runs have none, or none that were met here."""
    return _labels.get((request.actor.workspace_id, request.planned.run)) or {}


# What was looked up for the call.


@dataclass(frozen=True, slots=True)
class ScalarQuery:
    """One scalar of the statement, and how its answer is read."""

    sql: str
    values: Sequence[Any]
    read: Callable[[Any], LookupResult]
    meter: Meter | None = None
    """Of a sum or a count, which has no SQL by itself: the tallies of all meters are read at once.
    """


@dataclass(slots=True)
class Gathered:
    """What was found for one call, and what is to be remembered of it if it goes on."""

    request: BeginRequest
    context: BeginContext
    policy: Policy
    call: ToolCall
    findings: dict[str, LookupResult] = field(default_factory=dict)
    meters: list[Meter] = field(default_factory=list)
    tally_states: list[TallyState] = field(default_factory=list)
    sighted: dict[tuple[str, str], ValueDigest] = field(default_factory=dict)
    milliseconds: dict[str, float] = field(default_factory=dict)
    """What each look took by itself, where it is only asked what would be."""

    @property
    def caller(self) -> TallyOwner:
        actor = self.request.actor
        return TallyOwner(actor.workspace_id, actor.agent_id or 0, self.request.key)

    def disagrees(self, name: str) -> bool:
        """Whether the run was begun with this more than once, each time otherwise."""
        return self.context.run is not None and f"disagree:{name}" in self.context.run.flags

    @property
    def person(self) -> str:
        """On whose behalf the run acts; empty where nobody is named, or more than one was."""
        person = None if self.disagrees("on_behalf_of") else self.context.on_behalf_of
        return str(person.get("id") or "") if isinstance(person, dict) else ""

    @property
    def account(self) -> Account:
        request = self.request
        return Account(
            agent_id=request.actor.agent_id or 0,
            tool=request.tool,
            run=request.planned.run,
            person=self.person,
            targets=request.targets,
        )

    def memory_values(self, run: str, action: str) -> list[Any]:
        """The parameters of `memory.REMEMBER` for a call that proceeds: its sums and its values."""
        doing = RememberedCall(self.caller, run, action, self.person, is_held=True)
        return memory.remember_arguments(doing, self.tally_states, self.sighted, self.context.now)

    def memory_values_within(
        self, run: str, action: str, caps: Sequence[tuple[Meter, Cap]]
    ) -> list[Any]:
        """The same of `memory.remember_within`."""
        doing = RememberedCall(self.caller, run, action, self.person, is_held=True)
        return memory.remember_within_arguments(doing, caps, self.sighted)

    def proceed_statements(self, run: str, action: str) -> list[Statement]:
        """What a call that proceeds writes to memory; nothing if there is nothing to remember."""
        if not self.tally_states and not self.sighted:
            return []
        return [(memory.REMEMBER, self.memory_values(run, action))]

    def ask_statements(self, run: str, action: str) -> list[Statement]:
        """What is written when people are asked: the sums count from their yes on."""
        if not self.tally_states:
            return []
        doing = RememberedCall(self.caller, run, action, self.person, is_held=False)
        values = memory.remember_arguments(doing, self.tally_states, {}, self.context.now)
        return [(memory.REMEMBER, values)]
