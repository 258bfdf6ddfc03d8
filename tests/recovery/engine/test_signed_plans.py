"""A plan whose yes is signed: the engine looks at the signature before each of its calls."""

import base64
import json

import pytest

from approvals.models import Approval, Decision
from ledger import sealer
from recovery.models import Plan, Step
from tests.approvals.cast import put_in_force, told
from tests.approvals.security_key import DESK, SecurityKey
from tests.approvals.test_signed import enrol, signed_yes
from tests.recovery.engine import by_hand
from tests.recovery.engine.desk import advance, asked, plan_for, states

pytestmark = pytest.mark.django_db

SIGNED = {"policies": {"world.*": {"approval": "MANUAL", "risk": "HIGH"}}, "signedFrom": "HIGH"}


@pytest.fixture
def seal(acme, settings, tmp_path, django_capture_on_commit_callbacks):
    settings.AMENDS_URL, settings.AMENDS_HEADS_FOLDER = DESK, str(tmp_path)
    sealer._last.clear()

    def now():
        with django_capture_on_commit_callbacks(execute=True):
            sealer.seal(acme)

    yield now
    sealer._last.clear()


@pytest.fixture
def question(case, world, outside, acme, ada, ben, seal):
    """A plan that Ben is asked to sign, by a key that was on record before."""
    put_in_force(acme, ada, SIGNED)
    blue = SecurityKey(ben)
    enrol(acme, ben, blue)
    seal()
    approval = asked(plan_for(case, world), ada)
    Approval.objects.update(signed=True)
    seal()
    approval.refresh_from_db()
    return approval, blue


@pytest.fixture
def running(question, ben, seal):
    """Ben signed it; it runs, and one step is made."""
    approval, blue = question
    signed_yes(approval, ben, blue)
    seal()
    plan = Plan.objects.get()
    by_hand.advance_once(plan.pk)
    by_hand.advance_once(plan.pk)
    assert states(plan)[0] == "verified"
    return plan


def test_what_was_signed_runs_to_its_end(running, outside):
    advance(running)
    assert states(running) == ["verified"] * 3


def forged_by_another_key(ben, approval):
    mallory = SecurityKey(ben, "of somebody else")
    kept = approval.decisions.get().signature
    options = {"challenge": challenge_in(kept)}
    response = mallory.sign(options)["response"]
    return kept | {
        "authenticator": response["authenticatorData"],
        "client": response["clientDataJSON"],
        "signature": response["signature"],
    }


def challenge_in(signature):
    client = signature["client"]
    return json.loads(base64.urlsafe_b64decode(client + "=" * (-len(client) % 4)))["challenge"]


@pytest.mark.parametrize("says_so", [True, False], ids=["row says signed", "row says not"])
@pytest.mark.parametrize("forges", [forged_by_another_key, None], ids=["another key", "none"])
def test_a_step_is_not_made_under_a_forged_signature(running, ben, outside, forges, says_so):
    """As who owns the database does it, between two steps; the policy is asked anew."""
    approval = Approval.objects.get()
    Decision.objects.update(signature=forges(ben, approval) if forges else None)
    Approval.objects.update(signed=says_so)

    advance(running)

    assert states(running) == ["verified", "needs_human", "needs_human"]
    assert outside.effects() == ["c"]
    assert "Its signatures do not stand" in Step.objects.get(position=2).note


def test_a_plan_does_not_start_by_a_yes_that_is_only_a_row(question, acme, ben, outside):
    """And does not wait for its end either: the case is open again, and says why."""
    approval, _ = question
    Decision.objects.create(
        approval=approval, person=ben, granted=True, seen_digest=approval.digest
    )
    Approval.objects.update(was="waiting", state="granted")
    plan = Plan.objects.get()

    advance(plan)

    plan.refresh_from_db()
    approval.refresh_from_db()
    assert (plan.state, approval.state, plan.case.state) == ("superseded", "withdrawn", "open")
    assert outside.effects() == []
    why = told(acme, "plan.superseded")[-1]["reason"]
    assert why == "Its signatures do not stand: Ben did not sign it."
