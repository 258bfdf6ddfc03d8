"""Amounts of a bounded grant in the currency's own digits, where it is known to be money."""

import pytest

from approvals.models import Approval
from tests.approvals import test_bounded_grants
from tests.approvals.test_bounded_grants import BOUNDED, answer, approve

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
    grant = approve(ben, each="6000", sum="120000")
    answer(trip, "k1", 5_500)

    page = client.get("/w/acme/approvals/grants/").content.decode().replace("\u00a0", " ")

    assert "1 of 3 calls used, €55.00 of €1 200.00 in all" in page
    assert ["Each at most", "€60.00"] in grant.previews[0]["rows"]
    assert answer(trip, "k2", 6_001) == "wait"
    card = client.get(f"/w/acme/approvals/{Approval.objects.latest('pk').pk}/").content.decode()
    assert "this is more than €60.00, the most for one call" in card
