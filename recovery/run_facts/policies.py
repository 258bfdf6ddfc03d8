"""Which policy is in force where, and since when; which one was when an action ran; and which
actions its gate let through, or not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain

from django.db.models import Q

from approvals import policy
from approvals.gate.decision_table import NOTHING_BEGUN
from approvals.models import Approval, ApprovalState, PolicyVersion
from approvals.policy import Policy, active_policies
from approvals.policy.decisions import BY_ORDER
from ledger.models import Action, Attempt, AttemptState, Run


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


def kept_in_order(
    actions: Mapping[int, Sequence[Action]], past_the_gate: Collection[int]
) -> frozenset[int]:
    """Actions about whose place in their run people are asked, or were, and that did not begin but
    by their yes.
    """
    of_all = chain.from_iterable(actions.values())
    known = [one for one in of_all if one.pk not in past_the_gate]
    if not any(one.saga == "pivot" for one in known):
        return frozenset()
    asked = Approval.objects.filter(
        Q(state=ApprovalState.USED) | Q(action__state__in=NOTHING_BEGUN),
        action__in=[one.pk for one in known],
        rules__contains=[BY_ORDER],
    )
    return frozenset(asked.values_list("action_id", flat=True))
