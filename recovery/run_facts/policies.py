"""Which policy is in force where, and since when; which one was when an action ran; and which
actions its gate let through, or not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain

from django.db.models import Q

from amends.protocol.vocabulary import EventType
from approvals import policy
from approvals.gate.decision_table import NOTHING_BEGUN
from approvals.models import Approval, ApprovalState, PolicyVersion
from approvals.policy import Policy, ToolCall, active_policies, any_pivot
from approvals.policy.decisions import BY_ORDER
from ledger.models import Action, Attempt, AttemptState, Event, Run
from ledger.schemas import IMPORTED
from workspaces.models import APIKey

ATTEMPTS_ARE_TOLD_BY = (
    EventType.ACTION_STARTED,
    EventType.ACTION_SUCCEEDED,
    EventType.ACTION_FAILED,
)


def policies_of(runs: Iterable[Run]) -> dict[int, tuple[Policy, datetime | None]]:
    """The policy of each workspace that these runs belong to, and when it came into force."""
    workspaces = {run.workspace_id for run in runs}
    active = PolicyVersion.objects.filter(workspace__in=workspaces, active=True)
    since = dict(active.values_list("workspace_id", "activated_at"))
    return {pk: (policy.active(pk), since.get(pk)) for pk in workspaces}


def earlier_policies(
    actions: Mapping[int, Sequence[Action]],
    past_the_gate: Collection[int],
    policies: Mapping[int, tuple[Policy, datetime | None]],
) -> dict[int, Policy | None]:
    """For each action that ran before the policy in force came, the one that was then."""
    changes: dict[int, Sequence[tuple[datetime, str]]] = {}
    found: dict[int, Policy | None] = {}
    for one in chain.from_iterable(actions.values()):
        moment, since = ran_at(one), policies[one.workspace_id][1]
        if one.pk not in past_the_gate or not (since and moment and moment < since):
            continue
        known = changes.get(one.workspace_id)
        if known is None:
            known = changes[one.workspace_id] = active_policies.changes(one.workspace_id)
        until = next((digest for change, digest in known if change > moment), None)
        found[one.pk] = None if until is None else _policy_of(one.workspace_id, until)
    return found


def _policy_of(workspace_id: int, digest: str) -> Policy | None:
    try:
        return active_policies.of_digest(workspace_id, digest)
    except policy.PolicyUnreadable:
        return None


def ran_at(action: Action) -> datetime | None:
    return action.started_at or action.finished_at


def ungated(action_ids: Collection[int]) -> frozenset[int]:
    """Only `begin` gives a fence to a try, and where a rule asks it uses up a grant for that."""
    found = Attempt.objects.filter(action__in=action_ids, fence=None)
    found = found.exclude(state=AttemptState.NO_EFFECT)
    return frozenset(found.values_list("action_id", flat=True))


def imported_in(runs: Sequence[Run]) -> Iterator[tuple[int, str]]:
    """What happened elsewhere and passed no gate. An agent's own key cannot say that, nor can it
    hide behind an import: what it tells of a run that was imported is judged.
    """
    for run in runs:
        if IMPORTED not in run.flags:
            continue
        importing = APIKey.objects.filter(workspace=run.workspace_id, scopes__contains=["import"])
        events = Event.objects.filter(
            workspace=run.workspace_id, run=run.run, type__in=ATTEMPTS_ARE_TOLD_BY
        )
        others = events.exclude(key_prefix__in=importing.values_list("prefix", flat=True))
        names = set(events.values_list("action", flat=True))
        for name in names - set(others.values_list("action", flat=True)):
            yield run.pk, name


def pivots_in(
    actions: Mapping[int, Sequence[Action]],
    past_the_gate: Collection[int],
    imported: Collection[tuple[int, str]],
    earlier: Mapping[int, Policy | None],
    policies: Mapping[int, tuple[Policy, datetime | None]],
) -> Iterator[int]:
    """Actions after which there is no way back: as their agent says, as the gate took them, or, of
    what ran past the gate, as it would have by the policy that was in force.
    """
    for one in chain.from_iterable(actions.values()):
        is_told = one.pk in past_the_gate and (one.run_id, one.action) not in imported
        if one.saga or not is_told:
            is_pivot = one.saga == "pivot"
        else:
            then = earlier.get(one.pk, policies[one.workspace_id][0])
            call = ToolCall(tool=one.tool, action_class=one.action_class, trusted=one.trusted)
            is_pivot = then is not None and any_pivot(then, [call])
        if is_pivot:
            yield one.pk


def kept_in_order(
    actions: Mapping[int, Sequence[Action]],
    past_the_gate: Collection[int],
    pivots: Collection[int],
) -> frozenset[int]:
    """Actions about whose place in their run people are asked, or were, and that did not begin but
    by their yes.
    """
    of_all = [*chain.from_iterable(actions.values())]
    known = [one for one in of_all if one.pk not in past_the_gate]
    if not any(one.pk in pivots for one in of_all):
        return frozenset()
    asked = Approval.objects.filter(
        Q(state=ApprovalState.USED) | Q(action__state__in=NOTHING_BEGUN),
        action__in=[one.pk for one in known],
        rules__contains=[BY_ORDER],
    )
    return frozenset(asked.values_list("action_id", flat=True))
