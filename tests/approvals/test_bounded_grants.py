"""Bounded grants: a yes for the next calls like this one, drawn down and never passed."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from approvals import grants, inbox, pauses, periodic
from approvals.gate import bounded_grants, covered_questions
from approvals.models import Approval, ApprovalState, GrantUse
from ledger.erasure import erase
from ledger.models import Event
from tests.approvals import cast
from tests.approvals.cast import now, put_in_force, told
from tests.approvals.door import Agent as Trip
from tests.approvals.door import planned, visit
from tests.locks import waits
from tests.people import person, team
from workspaces.free_text import InvalidInput
from workspaces.moves import CannotMove

pytestmark = pytest.mark.django_db(transaction=True)
ben, trip = cast.ben, cast.trip

BOUNDED = {
    "uses": 9, "for": "1d", "amount": "args.amount", "each": 100, "sum": 500,
    "same": ["args.currency"],
}  # fmt: skip


@pytest.fixture
def obey(acme, ada):
    def say(*rules, **document):
        found = list(rules) or [{"approval": "MANUAL", "bounded": BOUNDED}]
        put_in_force(acme, ada, {"policies": {"pay.*": found}, **document})

    return say


def pay(trip, key, amount=50, *, currency="eur", **more):
    asked = {"tool": "pay.refund", "args": {"amount": amount, "currency": currency}, "key": key}
    return trip.begin(**(asked | {"action": f"act-{key}", "attempt": f"try-{key}"} | more))


def answer(*asked, **more):
    return pay(*asked, **more).json().get("answer")


def approve(by, **typed):
    """Ben presses “Approve this and more like it” on the newest question."""
    of, login_at = typed.pop("of", None), typed.pop("login_at", None)
    approval = of or Approval.objects.filter(state=ApprovalState.WAITING).latest("pk")
    terms = {"uses": "3", "hours": "2", "each": "60", "sum": "120", "target": "one"} | typed
    told = {"typed": terms, "reason": "a batch of returns", "login_at": login_at}
    return bounded_grants.approve_with_more(approval, by=by, seen=approval.digest, **told)


def test_the_next_calls_like_it_go_on_until_they_are_used_up_and_each_is_on_the_record(
    trip, obey, acme, ben
):
    obey()
    assert answer(trip, "k0") == "wait"
    grant = approve(ben)
    assert {"EUR", "2 h from the first yes on"} <= {one[1] for one in grant.previews[0]["rows"]}
    assert answer(trip, "k0") == "proceed"

    said = pay(trip, "k1").json()
    assert (said["answer"], said["approval"]) == ("proceed", str(grant.pk))
    again = pay(trip, "k1").json()
    assert again | {"lease_until": said["lease_until"]} == said, "the answer was lost"
    assert answer(trip, "k2", 60) == "proceed"
    assert answer(trip, "k3", 11) == "wait", "121 in all"
    assert answer(trip, "k4", 10) == "proceed"
    assert answer(trip, "k5", 0) == "wait", "a fourth call"

    assert grants.drawn_words(grant) == "3 of 3 calls used, 120 of 120 in all"
    drawn = Event.objects.filter(type="approval.drawn").order_by("place")
    assert [(one.run, one.action) for one in drawn] == [("run_1", f"act-k{n}") for n in (1, 2, 4)]
    assert [one.data["approval"] for one in drawn] == [grant.pk] * 3
    assert drawn[2].data["digest"] == grant.digest
    assert (drawn[2].data["uses"], drawn[2].data["sum"]) == (3, "120")
    assert told(acme, "approval.granted")[-1]["digest"] == grant.digest


def test_what_is_beyond_it_is_put_to_people(trip, obey, ben, subtests):
    obey()
    pay(trip, "k0")
    approve(ben)
    beyond: list[dict[str, Any]] = [
        {"amount": 61}, {"currency": "KWD"}, {"targets": [{"type": "contact", "id": "c8"}]},
        {"targets": [{"type": "contact", "id": "c7"}, {"type": "contact", "id": "c8"}]},
        {"targets": []}, {"tool": "pay.charge"}, {"amount": -1}, {"amount": "50"},
    ]  # fmt: skip
    for number, more in enumerate(beyond, 1):
        with subtests.test(more=more):
            assert answer(trip, f"k{number}", **more) == "wait"
            assert not GrantUse.objects.exists()
    assert answer(trip, "within") == "proceed", "the grant is there all the while"


def test_questions_that_wait_are_released_by_a_grant_that_covers_them_and_others_say_why_not(
    trip, obey, client, ben
):
    obey()
    for key, amount in (("k0", 50), ("k1", 50), ("k2", 70), ("k3", 60), ("k4", 60)):
        assert answer(trip, key, amount) == "wait"
    first = Approval.objects.earliest("pk")
    grant = approve(ben, of=first)

    def state(number):
        return Approval.objects.get(action__action=f"act-k{number}").state

    assert [state(number) for number in range(5)] == [
        "granted", "withdrawn", "waiting", "withdrawn", "waiting",
    ], "k2 is more than 60, and with k4 it would be more than 120 in all"  # fmt: skip
    taken = Event.objects.filter(type="approval.withdrawn", action="act-k1").get()
    assert taken.data["reason"] == f"bounded grant {grant.pk} covers it"
    client.force_login(ben)
    waits = Approval.objects.get(action__action="act-k2")
    card = client.get(f"/w/acme/approvals/{waits.pk}/").content.decode()
    assert "does not cover this call: this is more than 60, the most for one call." in card

    assert [answer(trip, "k1", 50), answer(trip, "k3", 60)] == ["proceed", "proceed"]
    assert [answer(trip, "k4", 60), answer(trip, "k2", 70)] == ["wait", "wait"]
    assert covered_questions.release_due() == 0
    trip.send("action.failed", action="act-k3", fence=1, attempt="try-k3", outcome="no_effect")
    assert covered_questions.release_due() == 1, "a call without effect gives its use back"
    assert answer(trip, "k4", 60) == "proceed"


def test_explain_names_each_condition_its_value_and_its_cost_and_the_grants(trip, obey, ben):
    obey(
        {"approval": "MANUAL", "bounded": BOUNDED, "when": '1 + count(per: agent, over: "1h") > 1'},
        {"approval": "AUTO", "when": "args.amount < 10 && args.missing"},
        always={"pay.*": {"approval": "DENY", "when": "args.amount > 1000 && !mentioned(args.to)"}},
    )
    assert answer(trip, "k0") == "wait"
    said = pay(trip, "k1", explain=True).json()
    asked, auto, always = said["explain"]["conditions"]

    assert (asked["glob"], asked["value"], asked["met"]) == ("pay.*", True, True)
    [question] = asked["asked"]
    assert question["question"] == "count(over: 1h, per: agent)"
    assert (question["value"], question["milliseconds"] > 0) == (1, True)
    assert asked["milliseconds"] >= question["milliseconds"]
    assert (auto["value"], auto["met"]) == (False, False)
    assert (always["always"], always["value"], always["met"]) == (True, False, False)
    assert always["asked"][0]["words"] == "Not asked: the rest of the condition says it"
    assert (said["answer"], said["explain"]["grants"]) == ("wait", [])

    grant = approve(ben)
    said = pay(trip, "k1", explain=True).json()
    assert (said["answer"], said["approval"]) == ("proceed", str(grant.pk))
    over = pay(trip, "k1", 61, explain=True).json()
    assert over["answer"] == "wait"
    assert over["explain"]["grants"] == [
        {"approval": str(grant.pk), "why_not": "this is more than 60, the most for one call"}
    ]
    assert not GrantUse.objects.exists()


def test_any_target_of_the_rule_is_any_target(trip, obey, ben):
    obey()
    pay(trip, "k0")
    approve(ben, target="any")
    assert answer(trip, "k1", targets=[{"type": "contact", "id": "c8"}]) == "proceed"


def test_another_agent_draws_nothing(trip, obey, acme, ben):
    from workspaces import keys
    from workspaces.models import Agent

    obey()
    pay(trip, "k0")
    approve(ben)
    other = Agent.objects.create(workspace=acme, name="other")
    stranger = Trip(keys.create_key(other, by=None, name="test")[1])
    assert answer(stranger, "k1", run="run_2") == "wait"


def test_nobody_grants_more_than_the_rule_allows(trip, obey, ben, subtests):
    obey()
    pay(trip, "k0")
    for typed in (
        {"uses": "10"}, {"hours": "25"}, {"each": "101"}, {"sum": "501"}, {"uses": "0"},
        {"uses": "1.5"}, {"sum": ""}, {"each": "NaN"}, {"hours": ""}, {"hours": "0.0001"},
    ):  # fmt: skip
        with subtests.test(typed=typed):
            with pytest.raises(InvalidInput):
                approve(ben, **typed)
            assert Approval.objects.get().state == ApprovalState.WAITING, "nor is the call approved"


def test_a_rule_without_it_offers_none_and_several_offer_the_least(trip, obey, ben):
    obey({"approval": "MANUAL"})
    pay(trip, "k0")
    with pytest.raises(InvalidInput, match="allows none"):
        approve(ben)

    some = {"when": "args.amount > 1", "approval": "MANUAL"}
    obey({"approval": "MANUAL", "bounded": BOUNDED}, some)
    pay(trip, "k2")
    offered = covered_questions.offer(Approval.objects.latest("pk"), ben)
    assert "Its rule allows none" in offered["why_not"]
    small = BOUNDED | {"uses": 2, "sum": 90, "each": None, "for": "1h"}
    obey(
        {"approval": "MANUAL", "bounded": BOUNDED},
        {"when": "args.amount > 1", "approval": "MANUAL", "bounded": small},
    )
    pay(trip, "k1")
    offered = covered_questions.offer(Approval.objects.latest("pk"), ben)
    assert offered["limits"] == "2 calls, 1 h, 100 each, 90 in all"
    assert (offered["each"], offered["sum"]) == ("50", "90"), "what it is itself, and never more"
    most = {"uses": 2, "hours": "1", "each_most": "100", "sum_most": "90"}
    assert most.items() <= offered.items()


@pytest.mark.parametrize(
    ("name", "tightened"),
    [
        ("a lower limit", [{"approval": "MANUAL", "bounded": BOUNDED | {"sum": 400}}]),
        ("none at all", [{"approval": "MANUAL"}]),
        ("another rule", [
            {"approval": "MANUAL", "bounded": BOUNDED},
            {"when": "args.amount > 1", "approval": "MANUAL"},
        ]),
        ("a denial", [
            {"when": "args.amount > 1", "approval": "DENY"},
            {"approval": "MANUAL", "bounded": BOUNDED},
        ]),
    ],
)  # fmt: skip
def test_a_policy_that_tightens_ends_it(trip, obey, ben, name, tightened):
    obey()
    pay(trip, "k0")
    approve(ben)
    obey(*tightened)
    assert answer(trip, "k1") in {"wait", "denied"}
    assert not GrantUse.objects.exists()


def test_a_no_in_the_run_and_a_pause_come_before_it(trip, obey, acme, ada, ben):
    from approvals import pauses

    obey(always={"*": {"when": "rejected_before", "approval": "MANUAL"}})
    pay(trip, "k0")
    approve(ben)
    pay(trip, "k1", 70)
    refused = Approval.objects.latest("pk")
    inbox.reject(refused, by=ben, seen=refused.digest, reason="no")
    assert answer(trip, "k2") == "wait"
    assert answer(trip, "k3", run="run_2") == "proceed"
    obey(order="ASK")
    pivot = {"run": "run_4", "key": "p", "action": "p", "attempt": "p", "saga": "pivot"}
    trip.succeeded(trip.begin(**pivot), attempt="p")
    assert answer(trip, "k5", run="run_4") == "wait", "the law of order comes before it, too"
    pauses.pause(acme, "tool", "pay.*", reason="stop", by=ada)
    assert answer(trip, "k4", run="run_3") == "denied"


def test_it_takes_as_many_people_as_the_question(trip, obey, ben, cleo):
    obey({"approval": "MANUAL", "bounded": BOUNDED, "requires": [{"group": "leads", "count": 2}]})
    pay(trip, "k0")
    grant = approve(ben)
    assert grant.state == ApprovalState.WAITING
    assert answer(trip, "k1") == "wait"
    inbox.grant(grant, by=cleo, seen=grant.digest, reason="yes")
    assert answer(trip, "k2") == "proceed"
    cleo.groups.clear()
    assert answer(trip, "k3") == "wait", "one who agreed to it may no longer do so"


def test_a_call_without_effect_gives_its_use_back(trip, obey, ben):
    obey()
    pay(trip, "k0")
    approve(ben, uses="1")
    said = pay(trip, "k1")
    assert answer(trip, "k2") == "wait"
    trip.failed(said, attempt="try-k1", outcome="unknown")
    assert answer(trip, "k3") == "wait"
    trip.failed(said, attempt="try-k1", outcome="no_effect")
    assert answer(trip, "k4") == "proceed"
    assert answer(trip, "k1", attempt="again") == "wait"


def test_it_is_revoked_and_ends_by_itself(trip, obey, client, ben):
    obey()
    pay(trip, "k0")
    grant = approve(ben)
    client.force_login(ben)
    rows = client.get("/w/acme/approvals/history/").context["rows"]
    [past] = [one for one in rows if one["subject"].startswith("Bounded grant")]
    assert past["used"] == "while it lasts", "it lets calls pass, so it is not unused"
    assert past["decisions"].endswith(": yes")
    page = client.get("/w/acme/approvals/grants/").content.decode()
    assert "0 of 3 calls used, 0 of 120 in all" in page
    assert "In all at most" not in page, "it is said once"
    assert "Revoke this grant" in page
    answer(trip, "k1")
    page = client.post(f"/w/acme/approvals/{grant.pk}/revoke/", follow=True).content.decode()
    assert "Its agent is asked about again; what was let pass already stays" in page
    assert "1 of 3 calls used, 50 of 120 in all" in page
    assert "Withdrawn by Ben" in page
    assert "/w/acme/runs/run_1/" in page
    assert "Revoke this grant" not in page
    assert answer(trip, "k2") == "wait"
    for said, status in (({}, 302), ({"reason": "It is not needed"}, 409)):
        assert client.post(f"/w/acme/approvals/{grant.pk}/revoke/", said).status_code == status

    later = approve(ben)
    assert answer(trip, "k3") == "proceed"
    Approval.objects.filter(pk=later.pk).update(expires_at=now() - timedelta(seconds=1))
    assert answer(trip, "k4") == "wait"
    periodic.expire_due()
    later.refresh_from_db()
    assert later.state == ApprovalState.USED
    assert "Its time is over" in client.get("/w/acme/approvals/grants/").content.decode()


def test_terms_of_which_a_byte_differs_let_nothing_pass(trip, obey, ben, subtests):
    obey()
    pay(trip, "k0")
    grant = approve(ben)
    row, [call] = Approval.objects.filter(pk=grant.pk), grant.calls
    for place in ("uses", "sum", "each", "rules"):
        bounded = call["more"]["bounded"] | {place: "9999"}
        row.update(calls=[call | {"more": call["more"] | {"bounded": bounded}}])
        with subtests.test(place=place):
            assert answer(trip, f"k-{place}") == "wait"
    row.update(calls=grant.calls)
    assert answer(trip, "k1") == "proceed", "as they were given"


def test_a_grant_of_which_the_ledger_tells_nothing_lets_nothing_pass(trip, obey, acme, ben):
    """Whoever writes rows of approval and answers has not written what the ledger keeps."""
    obey()
    pay(trip, "k0")
    grant = approve(ben)
    forged = Approval.objects.get(pk=grant.pk)
    forged.pk, forged.run_ref = None, "run_of_nobody"
    forged.save(force_insert=True)
    decision = grant.decisions.get()
    decision.pk, decision.approval, decision.requirement = None, forged, None
    decision.save(force_insert=True)
    bounded = Approval.objects.filter(pk=grant.pk)
    bounded.update(was=ApprovalState.GRANTED, state=ApprovalState.WITHDRAWN)
    assert answer(trip, "k1") == "wait"


def ask_many(key, number, amount, **more):
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}

    async def story(client):
        asks = [
            client.post(
                "/api/v1/actions/begin",
                content=json.dumps(planned(
                    tool="pay.refund", args={"amount": amount, "currency": "eur"}, key=f"n{n}",
                    action=f"act-n{n}", attempt=f"try-n{n}", run=f"run-{n % 7}", **more,
                )),
                headers=headers,
            )
            for n in range(number)
        ]  # fmt: skip
        return await asyncio.gather(*asks)

    answers = [one.json() for one in visit(story)]
    return [one for one in answers if one.get("answer") == "proceed"]


@pytest.mark.parametrize(
    ("typed", "amount", "passes"),
    [({"uses": "9", "sum": "500"}, 10, 9), ({"uses": "9", "sum": "60"}, 10, 6)],
    ids=["uses", "sum"],
)
def test_of_a_thousand_at_once_no_more_go_on_than_it_has(
    trip, obey, key, ben, typed, amount, passes
):
    obey()
    pay(trip, "k0")
    grant = approve(ben, **typed)
    assert len(ask_many(key, 1000, amount)) == passes
    assert grants.Drawdown.of(grants.drawn(grant)) == (passes, passes * amount)


def test_a_revocation_comes_before_a_call_or_after_it(trip, obey, ben):
    obey()
    pay(trip, "k0")
    grant = approve(ben)
    assert answer(trip, "k1") == "proceed"
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            inbox.withdraw(grant, by=ben, reason="enough")
            calling = pool.submit(answer, trip, "k2", run="run_2")
            waits(1, unless=calling.done)
        assert calling.result() == "wait", "people are asked"
    assert GrantUse.objects.get().key == "k1"


def test_a_restore_from_a_backup_voids_it(trip, obey, ben):
    obey()
    pay(trip, "k0")
    grant = approve(ben)
    pauses.void_grants("The desk was restored.")
    grant.refresh_from_db()
    assert grant.state == ApprovalState.WITHDRAWN
    assert answer(trip, "k1", run="run_2") == "wait"


def test_with_the_run_in_which_it_was_given_its_terms_are_erased_and_it_lets_nothing_pass(
    trip, obey, client, acme, ada, ben
):
    obey()
    pay(trip, "k0")
    grant = approve(ben, target="any")
    trip.succeeded(pay(trip, "k0"), attempt="try-k0", result={})
    assert answer(trip, "k1", run="run_2") == "proceed"
    trip.send("run.completed")

    erase(acme, runs=["run_1"], by=ada)

    grant.refresh_from_db()
    assert grant.calls == []
    assert answer(trip, "k2", run="run_2") == "wait"
    client.force_login(ben)
    assert "1 call used" in client.get("/w/acme/approvals/grants/").content.decode()


def test_who_may_not_decide_revokes_nothing_and_sees_no_terms(trip, obey, client, acme, ben):
    obey()
    pay(trip, "k0")
    grant = approve(ben)
    client.force_login(person("finn", team(acme, "auditors", "view")))
    page = client.get("/w/acme/approvals/grants/").content.decode()
    assert "Revoke this grant" not in page
    assert "contact c7" not in page
    assert client.post(f"/w/acme/approvals/{grant.pk}/revoke/").status_code == 409
    with pytest.raises(CannotMove):
        inbox.withdraw(grant, by=person("gus"), reason="")


def test_the_card_offers_it_and_keeps_what_was_typed(trip, obey, client, ben):
    obey()
    pay(trip, "k0")
    approval = Approval.objects.get()
    client.force_login(ben)
    here = f"/w/acme/approvals/{approval.pk}/"
    page = client.get(here).content.decode()
    assert "The rule allows 9 calls, 1 d, 100 each, 500 in all at most" in page
    assert "; currency stays as it is here" in page
    typed = {"uses": "99", "hours": "2", "each": "60", "sum": "120", "target": "any"}
    posted = {f"more-{name}": one for name, one in typed.items()}
    posted |= {"digest": approval.digest, "reason": "a batch"}
    refused = client.post(f"{here}more/", posted)
    assert refused.status_code == 422
    assert 'value="99"' in refused.content.decode()
    assert "the rule allows 9 at most" in refused.content.decode()
    made = client.post(f"{here}more/", posted | {"more-uses": "9"})
    grant = Approval.objects.latest("pk")
    assert made.headers["location"] == f"/w/acme/approvals/{grant.pk}/"
    again = client.post(f"{here}more/", posted | {"more-uses": "9"})
    assert (again.status_code, again.headers["location"]) == (302, made.headers["location"])
    assert client.post(f"{here}more/", posted | {"more-uses": "8"}).status_code == 409
    assert Approval.objects.count() == 2
    card = client.get(made.headers["location"]).content.decode()
    assert "1 call ·" not in card, "it is of as many as its terms say"
    assert "Granted: 0 of 9 calls used, 0 of 120 in all." in card
    assert "Withdraw before it is used" not in card
    approval.refresh_from_db()
    assert approval.state == ApprovalState.GRANTED
    inbox.withdraw(grant, by=ben, reason="")
    pay(trip, "k1")
    alone = Approval.objects.latest("pk")
    inbox.grant(alone, by=ben, seen=alone.digest, reason="a batch")
    late = posted | {"digest": alone.digest, "more-uses": "9"}
    assert client.post(f"/w/acme/approvals/{alone.pk}/more/", late).status_code == 409, "older"


def test_other_protocols_ask_people_though_a_grant_would_cover_it(trip, obey, key, ben):
    obey()
    pay(trip, "k0", targets=[])
    approve(ben, target="any")
    headers = {"authorization": f"Bearer {key}", "idempotency-key": "r1"}
    body = {"tool": "pay.refund", "arguments": {"amount": 5, "currency": "eur"}, "timeout": "1h"}

    async def story(client):
        return await client.post("/aap/v1/requests", json=body, headers=headers)

    id_ = visit(story).json()["id"]
    assert answer(trip, "k1", 5, targets=[]) == "proceed", "the grant would cover it"
    covered_questions.release_due()
    assert trip.request("GET", f"/aap/v1/requests/{id_}").json()["status"] == "pending"
    with pytest.raises(InvalidInput, match="another protocol"):
        approve(ben, target="any")
