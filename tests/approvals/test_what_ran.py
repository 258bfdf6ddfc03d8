"""A card that is over says what became of the call, and no more than is known of it."""

import pytest

from amends.protocol.vocabulary import EventType
from approvals import call_context, inbox
from approvals.models import Approval
from ledger import desk_events
from ledger.models import Action
from recovery.corrections import approvers
from recovery.models import Case
from recovery.run_facts.runs import facts_of
from recovery.triage import triage
from recovery.views import story
from tests.approvals import cast
from tests.approvals.cast import ASKED, ask, put_in_force, waiting
from tests.approvals.door import Agent as Trip

pytestmark = pytest.mark.django_db(transaction=True)
ben = cast.ben
PREVIEW = {"kind": "money", "amount": "args.amount", "currency": "'EUR'"}


@pytest.fixture
def begun(key, acme, ada, ben, cleo):
    """A refund that ben has approved and that its agent has begun: the agent and its answer."""
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}},
                             "tools": {"pay.*": {"preview": PREVIEW}}})  # fmt: skip
    trip = Trip(key)
    ask(trip)
    inbox.grant(waiting(), by=ben, seen=waiting().digest)
    return trip, ask(trip)


def words():
    return call_context.ended(Approval.objects.get())


def test_while_it_runs_nobody_is_told_that_it_ran(begun):
    assert words() == "Approved, and used. The call has begun; how it ended was not told yet."


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ("no_effect", "Approved, and used. The call failed, and nothing happened."),
        ("unknown", "Approved, and used. Nobody knows whether the call took effect."),
    ],
)
def test_of_a_call_that_failed_or_was_lost_nobody_is_told_that_it_ran(begun, outcome, said):
    begun[0].failed(begun[1], attempt="a1", outcome=outcome)
    assert words() == said


def test_of_many_that_expired_the_story_asks_as_often_as_of_one(
    key, acme, ada, ben, django_assert_num_queries
):
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})
    for n in range(3):
        Trip(key).begin(tool="pay.refund", key=f"k{n}", action=f"a{n}")
    Approval.objects.update(was="waiting", state="expired")
    actions = list(Action.objects.all())

    with django_assert_num_queries(2):
        told = story._asked(Case(workspace=acme), actions)

    assert [one["asked"]["words"] for one in told.values()] == [
        "Expired: nobody answered in time."
    ] * 3


def test_what_was_approved_is_what_ran(begun):
    begun[0].succeeded(begun[1], attempt="a1", args=ASKED, result={})
    assert words() == "Approved, and used. What was approved is what ran, once."
    triage.look()
    action = Action.objects.get()
    assert approvers.of_calls([action])[action.pk]["people"] == 1


def test_what_a_later_try_did_is_not_told_of_the_yes_to_an_earlier_one(
    begun, acme, ada, ben, client
):
    """After a try without effect other arguments may be sent under the key, which are asked anew or
    let go: nobody of the first question has agreed to those.
    """
    trip, first = begun
    trip.failed(first, attempt="a1", outcome="no_effect")
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "AUTO"}}})
    later = ask(trip, attempt="a2", args=ASKED | {"amount": 5_000})
    assert later.json()["answer"] == "proceed"
    failed = "Approved, and used. The call failed, and nothing happened."
    assert words() == failed, "while the later try runs"

    trip.succeeded(later, attempt="a2", result={})

    assert words() == failed
    client.force_login(ben)
    card = client.get(f"/w/acme/approvals/{Approval.objects.get().pk}/").context["approval"]
    assert (card["decided_words"], card["call_state"]) == (failed, "failed")
    assert approvers.of_calls([Action.objects.get()]) == {}, "nobody was asked about this one"


def test_what_people_settled_of_a_try_is_told_once_there_is_a_later_one(begun, acme, ada):
    trip, first = begun
    trip.failed(first, attempt="a1", outcome="unknown")
    settled = {"outcome": "no_effect", "evidence": {"text": "It is not on the bank’s list."}}
    action = Action.objects.get().action
    desk_events.record(
        acme, EventType.ACTION_SETTLED, run="run_1", action=action, by=ada, data=settled
    )
    failed = "Approved, and used. The call failed, and nothing happened."
    assert words() == failed
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "AUTO"}}})

    assert ask(trip, attempt="a2").json()["answer"] == "proceed"

    assert words() == failed
    trip.succeeded(first, attempt="a1", result={})
    unknown = "Approved, and used. Nobody knows whether the call took effect."
    assert words() == unknown, "a success that is told late"


def test_of_other_arguments_than_were_approved_no_page_says_that_they_were(begun):
    other = ASKED | {"amount": 5_000}
    target = {"type": "contact", "id": "contact7"}
    effect = {"target": target, "before": {"a": 1}, "after": {"a": 2}}
    begun[0].succeeded(begun[1], attempt="a1", args=other, result={}, effects=[effect])
    assert words() == (
        "Approved, and used, and the agent says that it ran with other arguments than were"
        " approved."
    )
    triage.look()

    case = Case.objects.get()

    assert case.reasons == ["not_as_allowed"]
    assert "with other arguments than it was allowed with" in case.headline
    assert "without the approval" not in case.headline
    assert "at stake" not in case.headline, "no sum of what was asked for beside what ran"
    assert approvers.of_calls([Action.objects.get()]) == {}
    assert facts_of(case.run).actions


def test_a_closing_under_the_code_of_an_earlier_version_still_answers_it(begun):
    begun[0].succeeded(begun[1], attempt="a1", args=ASKED | {"amount": 5_000}, result={})
    triage.look()
    case = Case.objects.get()
    action = Action.objects.get().action
    Case.objects.update(
        state="closed",
        outcome="expected",
        answered=[f"unapproved:{action}"],
        closed_at=case.opened_at,
    )

    triage.look([case.run_id])

    assert Case.objects.get().state == "closed"


def test_a_call_that_was_rejected_says_so_on_its_case_with_who_and_why(
    key, acme, ada, ben, cleo, operators, client
):
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})
    trip = Trip(key)
    ask(trip)
    inbox.reject(waiting(), by=ben, seen=waiting().digest, reason="Not this one")
    trip.send("run.failed", error={"type": "Rejected", "message": "no"})
    triage.look()
    case = Case.objects.get()
    client.force_login(ada)

    page = client.get(f"/w/acme/cases/{case.pk}/")

    [item] = page.context["story"]["items"]
    assert item["state"] == "rejected"
    assert "Rejected by Ben: Not this one" in page.text
    assert item["asked"]["url"] in page.text
    activity = client.get(f"/w/acme/cases/{case.pk}/?tab=activity").text
    assert "denied the approval" not in activity
    shown = client.get(item["asked"]["url"]).text
    assert "no, “Not this one”" in shown
