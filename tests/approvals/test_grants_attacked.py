"""Bounded grants: what is no amount, terms that were erased, who is told of them and ends one."""

import json
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from amends.protocol.vocabulary import EventType
from approvals import grants, inbox, periodic, versions
from approvals.gate import covered_questions
from approvals.inbox import NotEntitled
from approvals.models import Approval, ApprovalState
from connectors import channels
from connectors.models import Delivery
from ledger import desk_events
from ledger.erasure import erase
from ledger.models import Action
from recovery.corrections import approvers
from tests.approvals import test_bounded_grants
from tests.approvals.cast import as_the_desk, now
from tests.approvals.test_bounded_grants import BOUNDED, answer, approve, pay
from tests.people import logged_in, person, team
from workspaces import keys, teams
from workspaces.free_text import InvalidInput
from workspaces.models import Agent
from workspaces.moves import CannotMove

ben, trip, obey = test_bounded_grants.ben, test_bounded_grants.trip, test_bounded_grants.obey
pytestmark = pytest.mark.django_db(transaction=True)


def test_what_is_no_amount_is_put_to_people(trip, obey, ben):
    """An expression makes a number of any text; no sum is compared with one that is none."""
    told = BOUNDED | {"amount": "double(args.amount)", "each": None}
    obey({"approval": "MANUAL", "bounded": told})
    pay(trip, "k0", "5")
    approve(ben, each="")
    none = ("NaN", "-NaN", "inf", "1e300")
    assert [answer(trip, f"none{n}", one) for n, one in enumerate(none)] == ["wait"] * len(none)
    assert answer(trip, "k2", "5") == "proceed"
    many = {"when": 'sum(double(args.amount), over: "24h") > 9', "approval": "MANUAL"}
    obey({"approval": "AUTO"}, many)
    summed = [answer(trip, f"sum{n}", one) for n, one in enumerate(none)]
    assert summed == ["wait"] * len(none), "and no sum is told of it"


def test_the_time_that_is_filled_in_is_one_that_may_be_granted(trip, obey, ben):
    obey({"approval": "MANUAL", "bounded": BOUNDED | {"for": "10m"}})
    pay(trip, "k0")
    offered = covered_questions.offer(Approval.objects.get(), ben)
    with pytest.raises(InvalidInput, match=r"the rule allows 0[.]166667 at most"):
        approve(ben, hours="0.2")
    assert approve(ben, hours=offered["hours"]).state == "granted"


def test_that_the_time_of_one_is_over_is_told_though_it_was_used(trip, obey, ben, acme, ada):
    """Whoever was told of the yes heard nothing more."""
    where = {"url": "https://example.com/ends", "secret": "whsec_" + "A" * 32}
    channels.create(acme, "ends", "webhook", by=ada, secret=where, subjects=["approval.ended"])
    obey()
    pay(trip, "k0")
    grant = approve(ben)
    assert answer(trip, "k1") == "proceed"
    Delivery.objects.all().delete()

    Approval.objects.filter(pk=grant.pk).update(expires_at=now() - timedelta(seconds=1))
    with as_the_desk():
        assert (periodic.expire_due(), periodic.expire_due()) == (1, 0)

    [told] = Delivery.objects.filter(channel__name="ends")
    assert told.message["facts"]["state"] == "used"


def test_nobody_agrees_to_a_grant_whose_terms_are_erased(trip, obey, client, acme, ada, ben, cleo):
    obey({"approval": "MANUAL", "bounded": BOUNDED, "requires": [{"group": "leads", "count": 2}]})
    pay(trip, "k0")
    grant = approve(ben)
    inbox.reject(asked := Approval.objects.first(), by=cleo, seen=asked.digest, reason="no")
    trip.send("run.completed")

    erase(acme, runs=["run_1"], by=ada)

    grant.refresh_from_db()
    with pytest.raises(CannotMove, match="erased"):
        inbox.grant(grant, by=cleo, seen=grant.digest, reason="yes")
    client.force_login(cleo)
    card = f"/w/acme/approvals/{grant.pk}/"
    assert "what it was about is erased" in client.get(card).content.decode()
    assert client.get(f"{card}requested.json").status_code == 404


def test_whom_they_affect_is_told_that_calls_like_this_had_been_allowed(
    trip, obey, ben, django_assert_num_queries
):
    """In four questions to the database, however many the calls were."""
    obey()
    answer(trip, "k0")
    approve(ben)
    for key in ("k1", "k2", "k3"):
        pay(trip, key, 30)
    calls = list(Action.objects.exclude(action="act-k0").select_related("run"))
    assert len(calls) == 3

    with django_assert_num_queries(4):
        found = approvers.of_calls(calls)

    assert found == {one.pk: {"people": 1, "roles": ["leads"], "ahead": True} for one in calls}


def test_a_token_of_a_person_lists_and_revokes_it_as_the_page_does(trip, obey, client, acme, ben):
    def ask(method, path, who, body=None):
        _, token = keys.create_token(acme, by=who, name="script")
        more = {} if body is None else {"data": body, "content_type": "application/json"}
        headers = {"authorization": f"Bearer {token}"}
        return getattr(client, method)(f"/api/v1/grants{path}", headers=headers, **more)

    obey()
    pay(trip, "k0")
    grant = approve(ben)
    assert answer(trip, "k1") == "proceed"
    outsider = person("rosa", teams.create(acme, "readers", by=None, may=("view",)))

    [listed] = ask("get", "", ben).json()["grants"]
    assert (listed["id"], listed["state"]) == (str(grant.pk), "granted")
    assert listed["used"] == "1 of 3 calls used, 50 of 120 in all"
    whole = ask("get", f"/{grant.pk}", ben).json()
    assert (whole["used"], whole["terms"]["Calls"]) == (listed["used"], "3")
    assert [(one["action"], one["amount"]) for one in whole["uses"]] == [("act-k1", "50")]
    seen = ask("get", f"/{grant.pk}", outsider).json()
    assert (seen["terms"], seen["uses"][0]["amount"]) == (None, None)
    assert ask("post", f"/{grant.pk}/revoke", outsider, {}).status_code == 409
    assert answer(trip, "k2") == "proceed"
    ended = ask("post", f"/{grant.pk}/revoke", ben, {"reason": "enough"}).json()
    assert ended["state"] == "withdrawn"
    assert answer(trip, "k3") == "wait"
    assert ask("post", f"/{grant.pk}/revoke", ben, {}).status_code == 409


@pytest.mark.parametrize("denied", [False, True])
def test_a_grant_whose_rule_was_changed_is_over_and_does_not_come_back_with_it(
    trip, obey, client, ben, denied
):
    obey()
    pay(trip, "k0")
    grant = approve(ben)
    same = {"approval": "MANUAL", "bounded": BOUNDED}
    obey(*([{"approval": "DENY"}, same] if denied else [same | {"words": "ask Finance"}]))

    grant.refresh_from_db()
    assert (grant.state, "Its rule was changed" in grant.closing_reason) == ("withdrawn", True)
    client.force_login(ben)
    living, _, over = client.get("/w/acme/approvals/grants/").context["sections"]
    assert (living["rows"], len(over["rows"])) == ([], 1)
    obey()
    assert answer(trip, "k1") == "wait"


def test_another_version_with_the_same_rule_leaves_it(trip, obey, acme, ada, ben):
    obey()
    pay(trip, "k0")
    grant = approve(ben)
    obey()
    grant.refresh_from_db()
    assert grant.state == "granted"
    assert answer(trip, "k1") == "proceed"


def test_a_grant_that_lost_its_terms_by_an_erasure_is_told_as_over(
    trip, obey, client, acme, ada, ben
):
    obey()
    pay(trip, "k0")
    approve(ben, target="any")
    trip.succeeded(pay(trip, "k0"), attempt="try-k0", result={})
    trip.send("run.completed")
    erase(acme, runs=["run_1"], by=ada)

    client.force_login(ben)
    living, _, over = client.get("/w/acme/approvals/grants/").context["sections"]
    assert (living["rows"], over["rows"][0]["became"]) == (
        [], "Its run was erased, and its terms with it",
    )  # fmt: skip


def test_what_people_approved_of_their_own_is_over_once_the_policy_lets_nobody(trip, obey, ben):
    """It says so for all rules, so that each rule stands word for word."""
    Agent.objects.update(owner=ben)
    obey(selfApproval=True)
    pay(trip, "k0")
    grant = approve(ben, login_at=now())
    assert answer(trip, "k1") == "proceed"

    obey()

    assert answer(trip, "k2") == "wait"
    [(_, why)] = covered_questions.standing_for(Approval.objects.latest("pk"))
    assert why == "the policy no longer lets people approve their own"
    assert grants.drawn(grant).count() == 1
    obey(selfApproval=True)
    assert answer(trip, "k3") == "proceed"


@pytest.mark.parametrize("by", ["the agent", "the catalogue"])
def test_what_has_become_critical_needs_a_fresh_login_and_no_grant_without_one(trip, obey, ben, by):
    obey()
    pay(trip, "k0")
    approve(ben)
    if by == "the catalogue":
        obey(tools={"pay.refund": {"risk": "CRITICAL"}})
    more = {"risk": "critical"} if by == "the agent" else {}

    assert answer(trip, "k1", **more) == "wait"

    asked = Approval.objects.latest("pk")
    assert (asked.fresh_login, asked.risk) == (True, "critical")
    [(_, why)] = covered_questions.standing_for(asked)
    assert why == "it is critical, and nobody logged in afresh to agree to it"
    approve(ben, login_at=now())
    assert answer(trip, "k2", **more) == "proceed"


def test_another_version_with_the_same_rule_under_always_leaves_it_and_a_denial_there_ends_it(
    trip, obey, ben
):
    asks = {"approval": "MANUAL", "bounded": BOUNDED}
    obey({"approval": "AUTO"}, always={"pay.*": asks})
    pay(trip, "k0")
    grant = approve(ben)

    obey({"approval": "AUTO"}, always={"pay.*": asks}, due={"low": "9d"})

    assert answer(trip, "k1") == "proceed"
    grant.refresh_from_db()
    assert (grant.state, grant.closing_reason) == ("granted", "")
    obey({"approval": "AUTO"}, always={"pay.*": [asks, {"approval": "DENY"}]})
    grant.refresh_from_db()
    assert grant.state == "withdrawn"


@pytest.mark.parametrize("erased", [False, True], ids=["living", "erased"])
def test_a_policy_is_rehearsed_beside_a_bounded_grant(trip, obey, client, acme, ada, ben, erased):
    obey()
    pay(trip, "k0")
    approve(ben)
    if erased:
        trip.succeeded(pay(trip, "k0"), attempt="try-k0", result={})
        trip.send("run.completed")
        erase(acme, runs=["run_1"], by=ada)
    rules = {"*": {"approval": "DENY"}, "pay.*": {"approval": "MANUAL", "bounded": BOUNDED}}
    written = versions.save(acme, json.dumps({"policies": rules}), by=ada)
    client.force_login(ada)

    page = client.get(f"/w/acme/policies/{written.number}/")

    assert page.status_code == 200
    told = page.context["rehearsal"].open_changes
    assert not [line for line in told if "more call" in line], "no call of any tool"


@pytest.mark.parametrize("outcome", ["no_effect", "unknown"])
def test_a_use_that_was_given_back_is_not_taken_by_a_later_yes_to_the_same_call(
    trip, obey, acme, ada, ben, outcome
):
    obey()
    pay(trip, "k0")
    grant = approve(ben, uses="1")
    trip.failed(pay(trip, "k1"), attempt="try-k1", outcome=outcome)
    if outcome == "unknown":
        data = {"outcome": "no_effect", "evidence": {"text": "It is not on the bank’s list."}}
        settled = {"action": "act-k1", "by": ada, "data": data}
        desk_events.record(acme, EventType.ACTION_SETTLED, run="run_1", **settled)
    assert answer(trip, "k1", 90, attempt="again") == "wait", "more than the grant has for one call"
    inbox.grant(asked := Approval.objects.latest("pk"), by=ben, seen=asked.digest)
    assert answer(trip, "k1", 90, attempt="again") == "proceed"
    assert grants.drawn_words(grant) == "0 of 1 call used, 0 of 120 in all"

    assert answer(trip, "k2") == "proceed"

    assert grants.drawn_words(grant) == "1 of 1 call used, 50 of 120 in all"
    assert answer(trip, "k3") == "wait"


def test_a_try_without_its_grant_is_not_told_as_allowed_ahead_for_an_earlier_one_was(
    trip, obey, ben
):
    obey()
    pay(trip, "k0")
    approve(ben)
    trip.failed(pay(trip, "k1"), attempt="try-k1", outcome="no_effect")
    call = Action.objects.select_related("run").get(action="act-k1")
    assert approvers.of_calls([call])[call.pk]["ahead"]
    obey({"approval": "AUTO"})

    assert answer(trip, "k1", attempt="again") == "proceed"

    call.refresh_from_db()
    assert approvers.of_calls([call]) == {}


def test_the_next_try_that_goes_on_without_the_grant_names_none_however_often_it_asks(
    trip, obey, ben
):
    obey()
    pay(trip, "k0")
    grant = approve(ben)
    said = pay(trip, "k1")
    assert said.json()["approval"] == str(grant.pk)
    trip.failed(said, attempt="try-k1", outcome="no_effect")
    obey({"approval": "AUTO"})

    for _ in range(2):
        assert "approval" not in pay(trip, "k1", attempt="two").json()


def test_a_key_that_is_spelled_like_the_grants_of_a_tool_is_a_key_as_any_other(trip, obey, ben):
    obey()
    pay(trip, "k0")
    grant = approve(ben)

    told = {"action": "act-1", "attempt": "try-1"}

    assert answer(trip, "bounded pay.refund", **told) == "proceed"

    grant.refresh_from_db()
    assert grant.state == "granted"
    assert grants.drawn_words(grant) == "1 of 3 calls used, 50 of 120 in all"


def test_who_answers_for_those_who_were_asked_first_is_offered_this_call_alone(
    trip, obey, client, acme, ben
):
    nora = person("nora", team(acme, "night", "view", "approve"))
    asks = {"requires": [{"group": "leads"}], "escalate": {"after": "10m", "group": "night"}}
    obey({"approval": "MANUAL", "bounded": BOUNDED, **asks})
    pay(trip, "k0")
    Approval.objects.update(escalate_at=Now())
    with as_the_desk():
        assert periodic.escalate_due() == 1
    approval = Approval.objects.get()

    assert covered_questions.offer(approval, ben)["uses"] == 9
    client.force_login(nora)
    page = client.get(f"/w/acme/approvals/{approval.pk}/")
    assert page.context["may_decide"]
    assert "more like it is for them" in page.context["more"]["why_not"]
    with pytest.raises(NotEntitled):
        approve(nora)
    assert Approval.objects.get().state == "waiting"


def test_who_approves_more_like_it_after_another_agrees_to_the_same_grant(trip, obey, ben, cleo):
    """Two people said yes to the same, and two grants waited for a second one each."""
    obey({"approval": "MANUAL", "bounded": BOUNDED, "requires": [{"group": "leads", "count": 2}]})
    pay(trip, "k0")
    asked = Approval.objects.get()
    first = approve(ben, of=asked, uses="2", sum="90")
    card = logged_in(cleo).get(f"/w/acme/approvals/{asked.pk}/")

    fields = card.context["more"]
    assert (fields["uses"], fields["each"], fields["sum"], fields["hours"]) == (2, "60", "90", "2")
    assert f'href="/w/acme/approvals/{first.pk}/"' in card.text
    asked.refresh_from_db()
    again = approve(cleo, of=asked, uses="2", sum="90")

    assert again.pk == first.pk
    assert again.state == ApprovalState.GRANTED
    assert answer(trip, "k1", 45) == "proceed"


def test_the_last_yes_says_that_it_runs_now_only_where_it_does(trip, obey, ben, cleo):
    obey({"approval": "MANUAL", "bounded": BOUNDED, "requires": [{"group": "leads", "count": 2}]})
    pay(trip, "k0")
    call = Approval.objects.get()
    grant = approve(ben, of=call)

    def label(approval):
        return logged_in(cleo).get(f"/w/acme/approvals/{approval.pk}/").context["approve_label"]

    assert label(call) == "Approve (2 of 2, runs now)"
    assert label(grant) == "Approve (2 of 2, in force at once)"
    grants.put_off(call, now() + timedelta(minutes=5), by=cleo, now=now())
    assert label(call) == "Approve (2 of 2, runs later)"
    Approval.objects.filter(pk=call.pk).update(not_before=now() - timedelta(seconds=1))
    assert label(call) == "Approve (2 of 2, runs now)"


def test_who_wants_another_grant_than_the_one_that_waits_asks_for_their_own(trip, obey, ben, cleo):
    obey({"approval": "MANUAL", "bounded": BOUNDED, "requires": [{"group": "leads", "count": 2}]})
    pay(trip, "k0")
    asked = Approval.objects.get()
    first = approve(ben, of=asked)

    other = approve(cleo, of=asked, uses="2")

    assert other.pk != first.pk
    listed = logged_in(ben).get("/w/acme/approvals/grants/").context["sections"]
    rows = {one["name"]: {row["id"] for row in one["rows"]} for one in listed if one["rows"]}
    assert rows == {"Not in force before others agree": {first.pk, other.pk}}
    assert {first.state, other.state} == {ApprovalState.WAITING}
