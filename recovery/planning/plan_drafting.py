"""Drafting: standing effects become steps, through the policy's twins and the connectors' previews.

Nothing here touches the outside world or writes a row: the same facts, policy and connections make
the same steps with the same digests. Whether a target has drifted is `drifts`' to find out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import UNSET

from approvals.policy import PolicyDecision, strictest
from connectors.contract import Recorded
from connectors.models import Connection
from ledger.models import Action, Checkpoint, Effect, Reversibility
from recovery.planning.step_drafting import STRENGTH, CannotUndo, DraftStep, Maker, Place
from recovery.run_facts.runs import RunFacts
from recovery.run_facts.sentences import target_words
from workspaces.models import Workspace

STEPS_MAX = 1_000
"""Of one plan; a longer run is undone in stretches, each reaching back to a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cannot:
    """An effect that no step undoes, and why."""

    effect: Effect
    action: Action
    code: str
    title: str
    text: str
    reversibility: Reversibility = Reversibility.UNKNOWN


@dataclass(slots=True, kw_only=True)
class Drafted:
    """Steps newest first, what no step undoes, and what a person left out."""

    steps: list[DraftStep] = field(default_factory=list)
    cannot: list[Cannot] = field(default_factory=list)
    skipped: list[Cannot] = field(default_factory=list)

    @property
    def reversibility(self) -> Reversibility:
        """The weakest of all that stands."""
        found = [Reversibility(one.step.reversibility) for one in self.steps]
        found += [one.reversibility for one in self.cannot]
        return max(found, key=STRENGTH.__getitem__, default=Reversibility.UNKNOWN)


def judgement_of(drafted: Drafted) -> PolicyDecision | None:
    """What the policy says of the plan as a whole."""
    return strictest([one.judgement for one in drafted.steps]) if drafted.steps else None


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
    """Steps for every standing effect back to `reach`, newest first.

    `choices` says per effect id what a person chose for a drifted target (rebase, override, skip),
    on the states `seen`; `refused` why a look at the target showed that there is no way back.
    """
    drafted = Drafted()
    states: dict[Place, Recorded] = {}  # what each target looks like after the steps so far
    kept: set[Place] = set()  # targets on which somebody's later change is kept
    for action, effect in facts.standing():
        if reach is not None and not is_behind(action, reach):
            continue
        place = (effect.target_type, effect.target_id)
        chosen = (choices or {}).get(effect.pk, "rebase" if place in kept else "")
        if chosen == "skip":
            drafted.skipped.append(_left(action, effect))
            continue
        if why := (refused or {}).get(effect.pk, ""):
            no_way = CannotUndo("refused", why)
            drafted.cannot.append(_cannot(facts, action, effect, no_way))
            continue
        now = states.get(place, (seen or {}).get(place, UNSET))
        maker = Maker(facts, connections, action, effect, chosen, now)
        try:
            one = maker.make(is_older=place in states)
        except CannotUndo as cannot:
            drafted.cannot.append(_cannot(facts, action, effect, cannot))
            continue
        one.step.position = len(drafted.steps) + 1
        drafted.steps.append(one)
        states[place] = maker.before
        kept |= {place} if chosen == "rebase" else set()
    if len(drafted.steps) > STEPS_MAX:
        raise CannotUndo("too_long", f"A plan has at most {STEPS_MAX} steps: undo to a checkpoint.")
    return drafted


def is_behind(action: Action, checkpoint: Checkpoint) -> bool:
    """Whether the action came after the checkpoint, by `n`, else by the ledger's order."""
    if action.n is not None and checkpoint.n is not None:
        return action.n > checkpoint.n
    return action.first_place > checkpoint.place


def _cannot(facts: RunFacts, action: Action, effect: Effect, why: CannotUndo) -> Cannot:
    """Irreversible where wire or catalogue say so; a way back that is only missing is unknown."""
    lasting = facts.is_irreversible(action, effect)
    target = target_words(effect.target_type, effect.target_id)
    return Cannot(
        effect=effect,
        action=action,
        code=why.code,
        title=f"What {action.tool_words} did to {target} cannot be undone from here",
        text=str(why),
        reversibility=Reversibility.IRREVERSIBLE if lasting else Reversibility.UNKNOWN,
    )


def _left(action: Action, effect: Effect) -> Cannot:
    target = target_words(effect.target_type, effect.target_id)
    return Cannot(
        effect=effect,
        action=action,
        code="skipped",
        title=f"What {action.tool_words} did to {target} is left as it is",
        text="You chose to skip it.",
    )
