"""Amounts of a bounded grant: with what they begin, and as money where they are known to be."""

import pytest

from approvals.gate import covered_questions
from approvals.models import Approval
from tests.approvals import test_bounded_grants
from tests.approvals.test_bounded_grants import BOUNDED, answer, approve, pay

pytestmark = pytest.mark.django_db(transaction=True)
ben, trip, obey = test_bounded_grants.ben, test_bounded_grants.trip, test_bounded_grants.obey


def test_amounts_that_are_money_are_told_as_money_and_others_as_the_numbers_they_are(
    trip, obey, client, ben
):
    shows = {
        "kind": "money",
        "title": "'Pay'",
        "amount": "args.amount",
        "currency": "args.currency",
    }
    rule = {"approval": "MANUAL", "bounded": BOUNDED | {"each": 10_000, "sum": 500_000}}
    obey(rule, tools={"pay.refund": {"class": "external_reversible", "preview": shows}})
    answer(trip, "k0", 5_000)
    client.force_login(ben)
    card = client.get(f"/w/acme/approvals/{Approval.objects.get().pk}/").content.decode()
    assert card.count("As the call has it: 5000 is €50.00.") == 2, "at each of the two amounts"
    assert "The rule allows €100.00 at most." in card
    assert 'name="more-each" value="5000"' in card
    grant = approve(ben, each="6000", sum="120000")
    answer(trip, "k1", 5_500)

    page = client.get("/w/acme/approvals/grants/").content.decode().replace("\u00a0", " ")

    assert "1 of 3 calls used, €55.00 of €1 200.00 in all" in page
    assert ["Each at most", "€60.00"] in grant.previews[0]["rows"]
    assert answer(trip, "k2", 6_001) == "wait"
    card = client.get(f"/w/acme/approvals/{Approval.objects.latest('pk').pk}/").content.decode()
    assert "this is more than €60.00, the most for one call" in card


@pytest.mark.parametrize(
    ("amount", "each", "total"),
    [
        (20, "20", "180"),
        (0.5, "0.5", "4.5"),
        (300, "100", "500"),
        (0, "", ""),
        ("much", "100", "500"),
    ],
)
def test_amounts_of_a_grant_begin_with_what_the_call_is(trip, obey, ben, amount, each, total):
    obey()
    pay(trip, "k1", amount)

    offered = covered_questions.offer(Approval.objects.get(), ben)

    assert (offered["each"], offered["sum"]) == (each, total)
    assert (offered["each_most"], offered["sum_most"]) == ("100", "500")
