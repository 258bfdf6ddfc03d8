"""What ran although the gate has not let it through, or otherwise than it was let through."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from ledger.fold.actions import NOT_AS_APPROVED
from recovery.run_facts.runs import RunFacts, living, ran_at
from recovery.triage.case_reasons import Reason

NAMELESS = "Something was done of which no plan is on record, so no rule has allowed it"


def without_approval(facts: RunFacts) -> Iterator[Reason]:
    """What ran past the gate, whatever was said of it: a success alone, or effects alone, will do.

    Judged by the policy that was in force when the action ran; of one that is no longer known no
    reason is made. What has no plan no policy can have allowed.
    """
    for action in living(facts):
        if (facts.run.pk, action.action) in facts.imported:
            continue
        if NOT_AS_APPROVED in action.flags:
            words = f"{action.tool_words} was made with other arguments than it was allowed with"
            yield Reason("not_as_allowed", words, action.action)
            continue
        if action.pk not in facts.past_the_gate:
            continue
        if not action.tool:
            if facts.has_ended or facts.is_silent or _plan_is_late(facts, ran_at(action)):
                yield Reason("unplanned", NAMELESS, action.action)
            continue
        judgement = facts.judgement_then(action)
        if judgement is not None and judgement.approval == "MANUAL":
            words = f"{action.tool_words} ran without the approval that its rule asks for"
            yield Reason("unapproved", words, action.action)
        elif judgement is not None and judgement.approval == "DENY":
            yield Reason(
                "denied", f"{action.tool_words} ran although it is never allowed", action.action
            )


def _plan_is_late(facts: RunFacts, ran_at: datetime | None) -> bool:
    """Whether a plan that is still on its way would have come, though its run goes on and on."""
    patience = timedelta(seconds=facts.policy.stuck_after_seconds)
    return ran_at is not None and facts.now - ran_at > patience
