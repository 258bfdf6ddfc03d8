"""What stands behind an action is told to whom it affects: that people were asked, and what became
of it.
"""

from typing import Any

from amends.protocol.vocabulary import ActionClass, Risk
from approvals import approval_requests, inbox, versions
from approvals.approval_requests import ask_for_action
from approvals.digests import FORWARD_FORM, CallFacts, changed
from approvals.models import Approval
from approvals.policy import PolicyDecision, RequiredApprovers
from recovery import corrections
from recovery.corrections import publishing
from recovery.models import Correction
from tests.people import logged_in
from tests.recovery.cases.cast import submitted
from tests.recovery.cases.conftest import POLICY
from tests.recovery.engine import by_hand


def approve_before(run, by, asked, becomes=None):
    """The run's one call, as if people had been asked before it was made, and used."""
    action = run.row.actions.select_related("agent", "run", "workspace").get()
    judgement = PolicyDecision(
        approval="MANUAL", risk=Risk.HIGH, action_class=ActionClass.EXTERNAL_REVERSIBLE,
        requires=(RequiredApprovers(None, 1),),
    )  # fmt: skip
    facts = CallFacts(operation=action.tool, args=asked, more={"form": FORWARD_FORM})
    told: dict[str, Any] = {
        "judgement": judgement,
        "preview": {"title": "A ticket"},
        "agent_text": None, "amount": None, "note": "",
        "accepts_changed_arguments": False, "expires_seconds": 3600,
    }  # fmt: skip
    approval = ask_for_action(action, subject_key="k", facts=facts, **told)
    if becomes is not None:
        approval_requests.void(approval, why="changed")
        approval = ask_for_action(
            action, subject_key="k", facts=changed(facts, becomes), replaces=approval, **told
        )
    inbox.grant(approval, by=by, seen=approval.digest)
    Approval.objects.filter(pk=approval.pk).update(was="granted", state="used")


def test_who_approved_an_action_before_it_was_done_is_told_by_role(raised, acme, ben, ada, client):
    """With what they changed, in her words and in her language; nobody is named."""
    approve_before(raised, ben, {"priority": "urgent"}, {"priority": "high"})
    case = raised.case()
    plan = submitted(case, ada)
    by_hand.advance(plan.pk)
    publishing.draft_due()
    correction = Correction.objects.get()
    (item,) = correction.facts["items"]
    assert item["approved"] == (
        "Our assistant asked first, and 1 person approved it (leads), with a change: priority"
        " “high” instead of “urgent”."
    )
    assert item["asked"]["people"] == 1
    found = corrections.publish(correction, by=ada, seen=correction.revision)
    link = corrections.link_of(found).removeprefix("http://localhost")
    page = client.get(link).content.decode()
    assert "1 person approved it (leads), with a change" in page
    assert "Ben" not in page
    german = client.get(f"{link}?lang=de").content.decode()
    assert "Unser Assistent hat zuerst gefragt" in german


def test_the_preview_says_that_the_affected_person_is_written_to_before_anybody_approves(
    raised, acme, ada
):
    asks = POLICY.replace(
        "{risk: LOW, approval: AUTO}\n  twins",
        "{risk: LOW, approval: MANUAL, askAffected: true}\n  twins",
    )
    versions.activate(versions.save(acme, asks, by=None), by=None)
    case = raised.case()

    page = logged_in(ada).get(f"/w/acme/cases/{case.pk}/compensate/")

    assert "The affected person is asked first, as soon as you ask for approval." in page.text
    assert "Nobody is told until" not in page.text
    assert "the affected person at once, who is asked before anybody may approve it" in page.text
