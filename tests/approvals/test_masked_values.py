"""What is masked is bound: approved for one account, it runs for no other."""

import json

import pytest

from amends.protocol.masking import placeholder
from approvals import inbox, versions
from approvals.models import Approval
from ledger import desk_events
from ledger.models import Action
from tests.approvals.door import Agent
from tests.worlds import kept
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)

POLICY = {"policies": {"pay.*": {"approval": "MANUAL"}}}
CARD = "4242 4242 4242 4242"
GERMAN, BRITISH = "DE89370400440532013000", "GB33BUKB20201555555555"


@pytest.fixture
@kept(in_turn=True)
def trip(key, acme, ada, ben, leads):
    versions.activate(versions.save(acme, json.dumps(POLICY), by=ada), by=ada)
    return Agent(key)


def payout(trip, iban, *, tool="pay.out", attempt="a1", **more):
    said = {"amount": 500, "to": {"iban": iban}}
    return trip.begin(tool=tool, attempt=attempt, args=said, **more)


def approve(by):
    approval = Approval.objects.latest("pk")
    inbox.grant(approval, by=by, seen=approval.digest, reason="fine")
    return approval


def test_what_was_approved_for_one_account_does_not_run_for_another(trip, ben):
    assert payout(trip, GERMAN).json()["answer"] == "wait"
    approve(ben)

    other = payout(trip, BRITISH)

    assert (other.status_code, other.json()["type"]) == (422, "urn:amends:problem:key-reused")
    assert GERMAN not in json.dumps(Approval.objects.get().calls)
    assert payout(trip, "de89 3704 0044 0532 0130 00").json()["answer"] == "proceed"


def test_the_card_says_what_its_promise_is_worth_for_values_that_nobody_sees(trip, ben, client):
    client.force_login(ben)
    payout(trip, GERMAN)
    trip.begin(tool="pay.out", key="key-2", action="act_2", args={"amount": 500})
    hiding, plain = (
        client.get(f"/w/acme/approvals/{one.pk}/").content.decode()
        for one in Approval.objects.order_by("pk")
    )

    for page in (hiding, plain):
        assert "One changed byte stops it." in page
    assert "That holds for hidden values, too" in hiding
    assert "That holds for hidden values, too" not in plain


@pytest.mark.parametrize("change", ["masked from now on", "masked no more"])
@pytest.mark.parametrize("tool", ["send.out", "pay.out"])
def test_a_path_that_is_masked_from_now_on_makes_no_other_call_of_the_same_one(
    trip, acme, ada, ben, change, tool
):
    """Its agent waited, or comes back after a restart, while somebody wrote a policy."""

    def policy(*paths):
        document = POLICY | {"audit": {"mask": list(paths)}}
        versions.activate(versions.save(acme, json.dumps(document), by=ada), by=ada)

    def pays(account, attempt):
        to = {"account": account, "of": {"card": CARD, "city": "Rome"}}
        return trip.begin(tool=tool, attempt=attempt, args={"amount": 5, "to": to})

    paths = ("args.to.account", "args.to.of")
    policy(*(paths if change == "masked no more" else ()))
    first = pays("0012-7", "a1")
    if tool == "send.out":
        trip.succeeded(first, attempt="a1", result={"id": "p1"})
    policy(*(() if change == "masked no more" else paths))

    again, other = pays("0012-7", "a2"), pays("0012-8", "a3")

    assert again.json()["answer"] == ("replay" if tool == "send.out" else "wait")
    assert (other.status_code, other.json()["type"]) == (422, "urn:amends:problem:key-reused")
    if tool == "pay.out":  # what people see is masked as it is now, so they are asked for that
        approve(ben)
        assert pays("0012-7", "a4").json()["answer"] == "wait"
        approve(ben)
        assert pays("0012-7", "a4").json()["answer"] == "proceed"


def test_a_tool_that_an_older_policy_masks_is_refused_and_does_not_go_past_its_rule(
    trip, acme, ben
):
    Workspace.objects.filter(pk=acme.pk).update(mask=["tool"])

    said = payout(trip, GERMAN)

    assert (said.status_code, said.json()["type"]) == (422, "urn:amends:problem:masked")


def test_a_second_payout_to_another_account_is_not_answered_with_the_first_ones_result(trip):
    first = payout(trip, GERMAN, tool="send.out")
    trip.succeeded(first, attempt="a1", result={"id": "p1"})

    again = payout(trip, GERMAN, tool="send.out", attempt="a2")
    other = payout(trip, BRITISH, tool="send.out", attempt="a3")

    assert again.json()["answer"] == "replay"
    assert (other.status_code, other.json()["type"]) == (422, "urn:amends:problem:key-reused")


def test_cards_are_told_apart_in_any_grouping_in_lists_and_inside_texts(trip):
    def charge(card, attempt):
        args = {"lines": [{"note": f"charge {card} now"}], "n": 1}
        return trip.begin(tool="send.out", attempt=attempt, args=args)

    trip.succeeded(charge("4242 4242 4242 4242", "a1"), attempt="a1")

    assert charge("4242-4242-4242-4242", "a2").json()["answer"] == "replay"
    assert charge("5555 5555 5555 4444", "a3").status_code == 422


def test_what_an_old_client_masked_cannot_be_compared_and_is_not_put_to_people(trip):
    said = payout(trip, placeholder("iban"))

    assert (said.status_code, said.json()["type"]) == (422, "urn:amends:problem:not-comparable")
    assert not Approval.objects.exists()
    assert not Action.objects.exists()


def test_a_key_that_an_old_client_used_is_refused_in_words_and_no_case_says_it_was_another_call(
    trip,
):
    first = payout(trip, placeholder("iban"), tool="send.out")
    lost = payout(trip, placeholder("iban"), tool="send.out")
    trip.succeeded(first, attempt="a1", result={"id": "p1"})

    bare = payout(trip, placeholder("iban"), tool="send.out", attempt="a2")
    marked = payout(trip, GERMAN, tool="send.out", attempt="a3")

    assert lost.json()["fence"] == first.json()["fence"]  # the same try, its answer was lost
    for said in (bare, marked):
        assert (said.status_code, said.json()["type"]) == (422, "urn:amends:problem:not-comparable")
    assert Action.objects.get().flags == []


def test_the_last_four_are_shown_where_the_policy_says_so_and_bind_nothing(trip, acme, ada, ben):
    payout(trip, GERMAN)
    approval = approve(ben)
    assert ":3000" not in json.dumps(approval.calls)
    shows = {**POLICY, "audit": {"showLast4": True}}
    versions.activate(versions.save(acme, json.dumps(shows), by=ada), by=ada)
    shown = Workspace.objects.get(pk=acme.pk)
    assert desk_events.masking_key(shown).placeholder("iban", GERMAN).endswith(":3000⟧")

    other = trip.begin(tool="pay.out", key="key-2", action="act_2", args={"iban": GERMAN}).json()

    assert other["answer"] == "wait"
    assert Approval.objects.latest("pk").calls[0]["args"]["iban"].endswith(":3000⟧")
