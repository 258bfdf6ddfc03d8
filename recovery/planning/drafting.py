"""Drafting: standing effects become steps, through the policy's twins and the connectors' previews.

Nothing here touches the outside world or writes a row: the same facts, policy and connections make
the same steps with the same digests. Whether a target has drifted is `drifts`' to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, cached_property
from typing import Any

from msgspec import UNSET

from amends.protocol.masking import holds_mask
from amends.protocol.planning import suggested_undo
from approvals.digests import CallFacts, call_digest
from approvals.policy import CannotEvaluate, PolicyDecision, ToolCall, Twin, judge, strictest
from connectors import calls
from connectors.contract import CannotRead, Operation, Preview, Recorded, Refused, Target
from connectors.models import Connection
from connectors.normalization import as_json, is_unchanged
from ledger.canonical import digest
from ledger.models import Action, Checkpoint, Effect, Reversibility, weakest
from recovery.engine import approved_calls, outbound_calls
from recovery.engine.approved_calls import Lead
from recovery.models import Step
from recovery.run_facts.long_runs import is_behind
from recovery.run_facts.runs import RunFacts
from recovery.run_facts.sentences import target_words
from workspaces import formatting
from workspaces.models import Workspace


class CannotUndo(Exception):
    """We stopped because this effect has no step; `code` and the sentence say why."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


Place = tuple[str, str]
"""A target's type and id."""


class DriftState(StrEnum):
    """How the target of a step compares with what the agent left."""

    NOT_READ = ""
    UNCHANGED = "unchanged"
    DRIFTED = "drifted"
    ALREADY = "already"  # as the step would leave it
    LATER = "later"  # a newer step of the plan comes first
    UNKNOWN = "unknown"
    UNOBSERVABLE = "unobservable"
    UNTOLD = "untold"  # nobody told how the agent left it


UNTOUCHED = frozenset({DriftState.UNCHANGED, DriftState.ALREADY, DriftState.LATER})
"""Nothing in these needs a second look."""


@dataclass(slots=True, kw_only=True)
class DraftStep:
    """One step as it would be written; `step` is not saved."""

    step: Step
    effect: Effect
    action: Action
    operation: Operation
    preview: Preview
    judgement: PolicyDecision
    facts: CallFacts
    notes: list[str] = field(default_factory=list)
    suggested_by_agent: bool = False
    chosen: str = ""
    refused: str = ""
    """Why a look at the target showed that this can never be restored as it was."""
    drift_state: DriftState = DriftState.NOT_READ
    drift: list[dict[str, Any]] = field(default_factory=list)
    seen: Recorded = UNSET
    """What the target looks like now; UNSET where it was not read."""
    brings_back: str = ""
    """A run that left the target as this step would leave it, and whose work was undone there."""

    @property
    def place(self) -> Place:
        return self.step.target_type, self.step.target_id

    @property
    def needs_choice(self) -> bool:
        """Whether the target has drifted and nobody has said what should happen."""
        return self.drift_state == DriftState.DRIFTED and not self.chosen


@dataclass(slots=True)
class StepDrafter:
    """Makes the step of one effect; `now` is what its target looks like just before, if known."""

    run: RunFacts
    connections: Mapping[tuple[int, str], Connection]
    action: Action
    effect: Effect
    chosen: str
    now: Recorded
    lead_of: Callable[[Connection], Lead] = approved_calls.lead_of
    before: Recorded = UNSET
    after: Recorded = UNSET
    _recorded: Recorded = UNSET
    notes: list[str] = field(default_factory=list)

    def make(self, *, is_older: bool) -> DraftStep:
        self._read_snapshots()
        connection, name, args, twin = self._call()
        target = Target(self.effect.target_type, self.effect.target_id)
        # An older step finds what the newer one has restored, a chosen one what the person saw.
        expected = self.now if is_older or self.chosen else self.after
        if is_older and isinstance(self.now, dict) and isinstance(self.after, dict):
            expected = self.after | self.now  # of the rest the newer one has not spoken
        if self.chosen and self.now is UNSET:
            raise CannotUndo("unread", "The target could not be read, so nothing can be chosen.")
        try:
            operation = calls.operation_of(connection, name)
            key = approved_calls.key_of_undo(
                workspace=self.run.run.workspace.slug,
                connection=connection.name,
                operation=name,
                run=self.run.run.run,
                action=self.action.action,
                position=self.effect.position,
                args=args,
            )
            known: Any = {"key": key, "before": self.before, "expected": expected}
            preview = self._titled(calls.preview(connection, name, args, target, **known))
            lead = self.lead_of(connection)
            preview = replace(preview, rows=[*preview.rows, *lead.card])
        except (Refused, CannotRead) as refused:
            raise CannotUndo("refused", str(refused)) from refused
        step = Step(
            workspace_id=self.effect.workspace_id,
            effect=self.effect,
            connection=connection,
            connection_digest=connection.settings_digest,
            connector_version=lead.connector_version,
            operation=name,
            args=args,
            target_type=target.type,
            target_id=target.id,
            before=self._kept_before(),
            expected=None if expected is UNSET else expected,
            fingerprint="" if expected is UNSET else digest(expected),
            post_condition=dict(preview.must_be_true) or None,
            reversibility=self._reversibility(operation, twin),
            override_drift=self.chosen == "override",
            key=key,
        )
        return self._judged(step, operation, preview, lead, by_agent=twin is None)

    def _reversibility(self, operation: Operation, twin: Twin | None) -> str:
        """The weakest of all that speak of it: the catalogue, the twin, its operation, the wire."""
        if self.run.is_irreversible(self.action, self.effect):
            return Reversibility.IRREVERSIBLE
        found = [operation.reversibility, *([twin.reversibility] if twin else [])]
        if self.effect.reversibility != Reversibility.UNKNOWN:  # unsaid on the wire is no word
            found.append(self.effect.reversibility)
        if holds_mask(self.effect.before):  # the ledger cannot restore what it never saw
            found.append(Reversibility.COMPENSABLE)
        if self.chosen == "rebase" and keeps_some(self._recorded, self.after, self.before):
            found.append(Reversibility.COMPENSABLE)
        return weakest(map(Reversibility, filter(None, found)))

    def _titled(self, preview: Preview) -> Preview:
        """Of a later change that is kept: that not all is put back as it was."""
        if self.chosen != "rebase":
            return preview
        what = target_words(self.effect.target_type, self.effect.target_id)
        puts_back = (
            isinstance(self.before, dict)
            and isinstance(self.now, dict)
            and any(value != self.now.get(name) for name, value in self.before.items())
        )
        title = (
            f"Put back of {what} only what nobody has changed since"
            if puts_back
            else f"Leave {what} as it stands: somebody has changed all of it since"
        )
        return replace(preview, title=title)

    def _read_snapshots(self) -> None:
        try:
            self.before = outbound_calls.before_of(self.effect)
            self.after = outbound_calls.after_of(self.effect)
        except outbound_calls.SnapshotGone as gone:
            raise CannotUndo("snapshot_gone", str(gone)) from gone
        self._recorded = self.before
        if self.chosen == "rebase":
            self.before = rebased(self.before, self.after, self.now)

    def _kept_before(self) -> list[Any]:
        """What is to be restored, as the step keeps it; what is kept as a blob stays one."""
        if self.before is UNSET:
            return []
        return [self.before if self.chosen == "rebase" else self.effect.before]

    def _call(self) -> tuple[Connection, str, dict[str, Any], Twin | None]:
        """What would be called: the policy's twin, else as the agent suggested."""
        if self.run.judgement(self.action).compensation == "NONE":
            raise CannotUndo(
                "not_compensated",
                f"The policy says that {self.action.tool_words} is not compensated.",
            )
        twin = self.run.policy.twin(self.action.tool, self.effect.target_type)
        if twin is None:
            return self._suggested()
        connection = self._connection(twin.connection)
        try:
            args = twin.arguments(self._facts(self.before))
            if holds_mask(args) and self._may_leave_out(connection, twin.operation):
                args = twin.arguments(self._facts(self._without_unchanged_masks()))
        except CannotEvaluate as missing:
            raise CannotUndo(
                "no_arguments", f"A fact that the undo needs is not known: {missing}"
            ) from missing
        self._check_mask(args)
        if self._differs(twin, args):
            self.notes.append("The agent suggested another compensation; the policy’s is used.")
        return connection, twin.operation, args, twin

    def _may_leave_out(self, connection: Connection, operation: str) -> bool:
        """Whether the target is there, and keeps the fields that the call does not name."""
        try:
            is_partial = calls.operation_of(connection, operation).is_partial
        except Refused:
            return False
        return is_partial and self.now is not None

    def _without_unchanged_masks(self) -> Recorded:
        """What to restore, but for the masked fields that the agent is known not to have changed:
        nobody here knows their values, and nobody needs them.
        """
        before, after = self.before, self.after
        if not (isinstance(before, dict) and isinstance(after, dict)):
            return before
        return {
            name: value
            for name, value in before.items()
            if not (holds_mask(value) and name in after and is_unchanged(value, after[name]))
        }

    def _suggested(self) -> tuple[Connection, str, dict[str, Any], None]:
        said = self.action.compensation
        suggestion = suggested_undo(said)
        if suggestion is None:
            none = said.get("none") if isinstance(said, dict) else None
            why = f" The agent says: {formatting.quoted(none)}" if isinstance(none, str) else ""
            lasting = self.run.is_irreversible(self.action, self.effect)
            raise CannotUndo(
                "irreversible" if lasting else NO_TWIN,
                f"No compensation is registered for {self.action.tool_words}.{why}",
            )
        self._check_mask(suggestion.args)
        self.notes.append("The agent suggested this compensation, so people must approve it.")
        connection = self._connection(suggestion.connection)
        return connection, suggestion.operation, suggestion.args, None

    def _differs(self, twin: Twin, args: Mapping[str, Any]) -> bool:
        suggestion = self.action.compensation
        if not isinstance(suggestion, dict) or "operation" not in suggestion:
            return False
        said = (suggestion.get("connection"), suggestion["operation"], suggestion.get("args", {}))
        return said != (twin.connection, twin.operation, args)

    def _check_mask(self, args: Any) -> None:
        if holds_mask(args):
            raise CannotUndo(
                "masked", "It needs a value that was masked, and the ledger never saw that value."
            )

    def _connection(self, name: str) -> Connection:
        found = self.connections.get((self.effect.workspace_id, name))
        if found is None:
            raise CannotUndo("no_connection", f"There is no usable connection “{name}”.")
        return found

    def _facts(self, before: Recorded) -> dict[str, Any]:
        known: dict[str, Any] = {
            "target": {"type": self.effect.target_type, "id": self.effect.target_id},
            "args": self.action.args,
            "result": self._result(),
        }
        told = {"before": before, "after": self.after}
        return known | {side: state for side, state in told.items() if state is not UNSET}

    def _result(self) -> Any:
        try:
            return outbound_calls.recorded(self.effect.workspace_id, self.action.result)
        except outbound_calls.SnapshotGone:
            return None

    def _judged(
        self, step: Step, operation: Operation, preview: Preview, lead: Lead, *, by_agent: bool
    ) -> DraftStep:
        call = approved_calls.tool_call_of(step, step.connection, operation)
        step.preview = preview_json(preview, step, call)
        judgement = judge(self.run.policy, call)
        if by_agent and judgement.approval == "AUTO":
            judgement = judgement.but_asked("The agent suggested this compensation")
        if step.override_drift:
            judgement = judgement.with_one_more(
                "Somebody changed the target since, and is overridden"
            )
        facts = approved_calls.facts_of(step, step.connection, lead)
        step.digest = call_digest(facts)
        step.risk = judgement.risk
        step.rules = list(judgement.rules)
        return DraftStep(
            step=step,
            effect=self.effect,
            action=self.action,
            operation=operation,
            preview=preview,
            judgement=judgement,
            facts=facts,
            notes=self.notes,
            suggested_by_agent=by_agent,
            chosen=self.chosen,
        )


def keeps_some(before: Recorded, after: Recorded, written: Recorded) -> bool:
    """Whether something that the agent changed is not put back: somebody has changed it since, and
    that is kept.
    """
    if not (isinstance(before, dict) and isinstance(after, dict) and isinstance(written, dict)):
        return False
    return any(
        before[name] != after.get(name) and written.get(name) != before[name] for name in before
    )


def rebased(before: Recorded, after: Recorded, now: Recorded) -> Recorded:
    """Restore only what the agent changed and nobody since; the rest stays as it is now."""
    if not (isinstance(before, dict) and isinstance(after, dict) and isinstance(now, dict)):
        raise CannotUndo("no_rebase", "It came or went as a whole: there is nothing to keep of it.")
    missing = object()
    kept = dict(now)
    for name in before:
        if holds_mask([before[name], after.get(name)]):
            kept[name] = _kept_masked(before[name], after.get(name))
            continue
        changed = before[name] != after.get(name, missing)
        if changed and now.get(name, missing) == after.get(name, missing):
            kept[name] = before[name]
    return {name: value for name, value in kept.items() if name in before}


def _kept_masked(before: Any, after: Any) -> Any:
    """The placeholder of what the agent did not change; what stands there now is in clear, and does
    not belong into a plan.
    """
    if is_unchanged(before, after):
        return before
    raise CannotUndo("masked", "The agent changed a masked value, and nobody here knows either.")


def preview_json(preview: Preview, step: Step, call: ToolCall) -> dict[str, Any]:
    """A preview as it is kept with the step and shown to people: with how far the step can be taken
    back, which a card warns of, and the class of its call, by which rules count it. No digest is
    over a preview: it shows what the digests bind.
    """
    said = {"reversibility": str(step.reversibility), "action_class": str(call.action_class)}
    return {**as_json(preview), **said}


STEPS_MAX = 1_000
"""Of one plan. Where more stands, it undoes the newest; the next one is drafted of the rest."""

SKIPPED = "skipped"
"""The code of what a person chose to leave as it is."""
NO_TWIN = "no_twin"
"""The code of what could be undone if the policy said how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotUndoable:
    """An effect that no step undoes, and why."""

    effect: Effect
    action: Action
    code: str
    text: str
    reversibility: Reversibility = Reversibility.UNKNOWN

    @property
    def title(self) -> str:
        became = "is left as it is" if self.code == SKIPPED else "cannot be undone from here"
        target = target_words(self.effect.target_type, self.effect.target_id)
        return f"What {self.action.tool_words} did to {target} {became}"


@dataclass(kw_only=True)
class Drafted:
    """Steps newest first, what no step undoes, and what a person left out. All of them are there
    before anybody asks for what is said of the whole.
    """

    steps: list[DraftStep] = field(default_factory=list)
    cannot: list[NotUndoable] = field(default_factory=list)
    skipped: list[NotUndoable] = field(default_factory=list)
    more: int = 0
    """How many effects stand besides, for which it has no room."""

    @property
    def known(self) -> int:
        """How many effects it was made of."""
        return len(self.steps) + len(self.cannot) + len(self.skipped)

    @property
    def reversibility(self) -> Reversibility:
        """The weakest of all that stands."""
        found = [Reversibility(one.step.reversibility) for one in self.steps]
        found += [one.reversibility for one in self.cannot]
        return weakest(found)

    @cached_property
    def judgement(self) -> PolicyDecision | None:
        """What the policy says of the plan as a whole."""
        return strictest([one.judgement for one in self.steps]) if self.steps else None


def connections_of(workspaces: Iterable[Workspace | int]) -> dict[tuple[int, str], Connection]:
    """All usable connections of these workspaces, by workspace id and name, in one query."""
    found = Connection.objects.filter(workspace__in=list(workspaces), disabled_at=None)
    ready = found.select_related("observe_secret", "compensate_secret")
    return {(one.workspace_id, one.name): one for one in ready}


def draft_steps(
    facts: RunFacts,
    connections: Mapping[tuple[int, str], Connection],
    *,
    reach: Checkpoint | None = None,
    choices: Mapping[int, str] | None = None,
    seen: Mapping[Place, Recorded] | None = None,
    refused: Mapping[int, str] | None = None,
) -> Drafted:
    """Steps for the standing effects back to `reach`, newest first, as many as one plan holds.

    `choices` says per effect id what a person chose for a drifted target (rebase, override, skip),
    on the states `seen`; `refused` why a look at the target showed that there is no way back.
    """
    drafted = Drafted()
    states: dict[Place, Recorded] = {}  # what each target looks like after the steps so far
    once = cache(approved_calls.lead_of)  # for all steps over a connection
    kept: set[Place] = set()  # targets on which somebody's later change is kept
    for action, effect in facts.standing():
        if len(drafted.steps) == STEPS_MAX:
            break
        if reach is not None and not is_behind(action, reach):
            continue
        place = (effect.target_type, effect.target_id)
        chosen = (choices or {}).get(effect.pk, "rebase" if place in kept else "")
        if chosen == "skip":
            words = "You chose to skip it."
            left = NotUndoable(effect=effect, action=action, code=SKIPPED, text=words)
            drafted.skipped.append(left)
            continue
        if why := (refused or {}).get(effect.pk, ""):
            drafted.cannot.append(_cannot(facts, action, effect, CannotUndo("refused", why)))
            continue
        now = states.get(place, (seen or {}).get(place, UNSET))
        maker = StepDrafter(facts, connections, action, effect, chosen, now, once)
        try:
            one = maker.make(is_older=place in states)
        except CannotUndo as cannot:
            drafted.cannot.append(_cannot(facts, action, effect, cannot))
            continue
        one.step.position = len(drafted.steps) + 1
        drafted.steps.append(one)
        states[place] = maker.before
        kept |= {place} if chosen == "rebase" else set()
    drafted.more = max(0, facts.standing_behind(reach) - drafted.known)
    return drafted


def _cannot(facts: RunFacts, action: Action, effect: Effect, why: CannotUndo) -> NotUndoable:
    """Irreversible where wire or catalogue say so; a way back that is only missing is unknown."""
    lasting = facts.is_irreversible(action, effect)
    return NotUndoable(
        effect=effect,
        action=action,
        code=why.code,
        text=str(why),
        reversibility=Reversibility.IRREVERSIBLE if lasting else Reversibility.UNKNOWN,
    )
