"""Teaching the desk to undo a tool: a twin is made of a call on record, and rehearsed over what the
ledger has of such calls, before it is a version of the policy.

A rehearsal drafts the step that a plan would have, with the connector's own preview, and calls
nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
from django.db.models import QuerySet

from amends.protocol.planning import suggested_undo
from approvals.policy import Policy, editing
from approvals.policy.expressions import MEMBER
from connectors import calls
from connectors.contract import UNSET, Operation, Refused
from connectors.models import Connection
from ledger.models import Action, Compensated, Effect
from recovery.planning.drafting import CannotUndo, StepDrafter, connections_of
from recovery.run_facts.runs import RunFacts, facts_of
from recovery.run_facts.sentences import target_words
from workspaces.models import Workspace

REHEARSED_MAX = 5
OPERATIONS_MAX = 200
STATES = frozenset({"to", "state", "row", "fields", "restore"})
"""Arguments by which operations take the state that is to be restored."""


class Argument(NamedTuple):
    """One argument of an operation, and whether it has to be there."""

    name: str
    required: bool


class Rehearsed(NamedTuple):
    """What the twin would do for one effect on record: the call, or what it lacks."""

    run: str
    target: str
    args: dict[str, Any] | None
    title: str
    lacks: str


def may_be_taught(facts: RunFacts, action: Action, effect: Effect) -> bool:
    """Whether an effect stands that could not be undone for want of a twin alone."""
    return (
        bool(action.tool)
        and effect.compensated == Compensated.NONE
        and facts.policy.twin(action.tool, effect.target_type) is None
        and suggested_undo(action.compensation) is None
        and not facts.is_irreversible(action, effect)
        and facts.judgement(action).compensation != "NONE"
    )


def effect_of(workspace: Workspace, pk: int) -> Effect | None:
    return _effects(workspace).filter(pk=pk).first()


def newest_of(workspace: Workspace, tool: str) -> Effect | None:
    """The newest effect of a tool, of which a twin can be made."""
    return _effects(workspace).filter(action__tool=tool).order_by("-pk").first() if tool else None


def _effects(workspace: Workspace) -> QuerySet[Effect]:
    found = Effect.objects.filter(workspace=workspace).exclude(action__tool="")
    return found.select_related("action__agent", "action__run__workspace", "action__run__agent")


def operations(workspace: Workspace) -> dict[str, Operation]:
    """What can be done over the usable connections, as `connection.operation`."""
    found: dict[str, Operation] = {}
    for connection in connections_of([workspace]).values():
        try:
            of_it = calls.operations_of(connection)
        except Refused:
            continue
        found |= {f"{connection.name}.{name}": one for name, one in of_it.items()}
    return dict(sorted(found.items())[:OPERATIONS_MAX])


def arguments_of(operation: Operation) -> list[Argument]:
    fields = msgspec.structs.fields(operation.args_schema)
    return [Argument(one.encode_name, one.required) for one in fields]


def guessed(effect: Effect, name: str) -> str:
    """Where an argument of the undo may come from: the call's own of this name, its result's, the
    state before, or the target; empty where nothing fits.
    """
    action = effect.action
    for source, known in (("args", action.args), ("result", action.result)):
        if isinstance(known, dict) and name in known and MEMBER.fullmatch(name):
            return f"{source}.{name}"
    if name in STATES:
        return "before"
    return "target.id" if name in {"id", f"{effect.target_type}_id"} else ""


def with_twin(source: str, glob: str, twin: Mapping[str, Any]) -> editing.EditResult:
    """The document with this twin, beside others of the tool. Raises Invalid."""
    return editing.added(source, glob, twin, editing.TWINS)


def rehearse(effect: Effect, policy: Policy) -> list[Rehearsed]:
    """What would be called under `policy` for this effect, and for the newest of the same kind."""
    alike = _effects(effect.workspace).filter(
        action__tool=effect.action.tool, target_type=effect.target_type
    )
    others = alike.exclude(pk=effect.pk).order_by("-pk")[: REHEARSED_MAX - 1]
    connections = connections_of([effect.workspace])
    return [_rehearsed(one, policy, connections) for one in (effect, *others)]


def _rehearsed(
    effect: Effect, policy: Policy, connections: Mapping[tuple[int, str], Connection]
) -> Rehearsed:
    action = effect.action
    facts = replace(facts_of(action.run), policy=policy)
    target = target_words(effect.target_type, effect.target_id)
    try:
        drafted = StepDrafter(facts, connections, action, effect, "", UNSET).make(is_older=False)
    except CannotUndo as why:
        return Rehearsed(action.run.run, target, None, "", str(why))
    title = drafted.preview.title
    return Rehearsed(action.run.run, target, dict(drafted.step.args), title, "")


def succeed(rehearsed: Iterable[Rehearsed]) -> bool:
    """Whether the first one, the call it is made of, could be undone."""
    return next((not one.lacks for one in rehearsed), False)
