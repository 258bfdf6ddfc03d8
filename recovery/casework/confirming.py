"""Confirming: a person looked outside and says whether a call is as it should be.

Where the rule asks for a verification and none came, or asks for a person's, this is it.
"""

from django.db import transaction

from amends.protocol.vocabulary import EventType
from ledger import desk_events
from ledger.models import Action, ActionState, Verified
from recovery.cases.lifecycle import held_by_another, kept_text, locked
from recovery.casework.settling import EVIDENCE_CHARACTERS_MAX
from recovery.models import Case
from recovery.run_facts.runs import RunFacts, facts_of
from recovery.triage import triage
from workspaces.models import User
from workspaces.moves import CannotMove


def awaited(facts: RunFacts) -> list[Action]:
    """Calls whose rule asks for a verification that has not come."""
    return [
        action
        for action in facts.actions
        if action.state == ActionState.SUCCEEDED
        and action.verified == Verified.NOT_YET
        and facts.judgement(action).verify != "NONE"
    ]


@transaction.atomic
def confirm(case: Case, action: Action, *, ok: bool, evidence: str, by: User, seen: int) -> Case:
    """Say what was seen of a call; raises OutOfDate, CannotMove or InvalidInput."""
    case = locked(case, seen=seen)
    other = held_by_another(case, by)
    if other is not None:
        raise CannotMove(case, "verified", f"{other} has claimed it.")
    text = kept_text(evidence, EVIDENCE_CHARACTERS_MAX, asking="Say what you saw, and where.")
    if action.pk not in {one.pk for one in awaited(facts_of(case.run))}:
        raise CannotMove(action, "verified", f"{action.tool_words} has been verified meanwhile.")
    check = {"name": f"seen by {by}", "expected": "as it should be", "actual": text, "ok": ok}
    said = {"ok": ok, "checks": [check]}
    desk_events.say(
        case.workspace,
        EventType.ACTION_VERIFIED,
        run=case.run.run,
        action=action.action,
        data=said,
        by=by,
    )
    triage.look([case.run_id])
    case.refresh_from_db()
    return case
