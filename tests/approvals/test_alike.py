"""Alike questions on one screen: each is decided by itself, and what stands out stands apart."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals import alike, inbox
from approvals.models import Approval, Decision
from tests.approvals import cast
from tests.approvals.cast import put_in_force
from tests.approvals.door import Agent as Trip

pytestmark = pytest.mark.django_db(transaction=True)
ben = cast.ben


@pytest.fixture
def six(key, acme, ada, ben, cleo, client):
    """Six refunds, the fifth of which is large; and calls that are like none of them."""
    rules = {"pay.*": {"approval": "MANUAL"}, "mail.*": {"approval": "MANUAL"}}
    put_in_force(acme, ada, {"policies": rules})
    trip = Trip(key)
    trip.begin(tool="mail.send", key="m", action="m")
    for n, amount in enumerate([10, 11, 12, 10, 100, 11]):
        args = {"amount": amount, "currency": "EUR"}
        trip.begin(tool="pay.refund", key=f"k{n}", action=f"a{n}", args=args,
                   targets=[{"type": "order", "id": f"o{n}"}])  # fmt: skip
    order = [{"type": "order", "id": "o9"}]
    other = {"amount": 10, "to": "Eve"}
    trip.begin(tool="pay.refund", key="x", action="x", args=other, targets=order)
    same = {"amount": 10, "currency": "EUR"}
    trip.begin(tool="pay.refund", key="y", action="y", args=same)  # to a contact
    named = same | {"order": "o9"}  # an argument of that name, and no target
    trip.begin(tool="pay.refund", key="n", action="n", args=named, targets=[])
    trip.begin(tool="pay.charge", key="z", action="z", args=same, targets=order)
    put_in_force(acme, ada, {"policies": rules | {"pay.*": {"approval": "MANUAL", "risk": "LOW"}}})
    trip.begin(tool="pay.refund", key="r", action="r", args=same, targets=order)
    client.force_login(ben)
    return list(Approval.objects.filter(subject_key__contains=" k").order_by("pk"))


def here(approval, act=""):
    return f"/w/acme/approvals/{approval.pk}/alike/{act}"


def posted(chosen, decision="grant", reason="all returned", **more):
    """What the page sends: the digest of each that was shown, and which of them were chosen."""
    digests = {f"digest-{one.pk}": one.digest for one in Approval.objects.all()}
    return {"chosen": [one.pk for one in chosen], "decision": decision, "reason": reason,
            **digests, **more}  # fmt: skip


def states(approvals):
    return [Approval.objects.get(pk=one.pk).state for one in approvals]


def test_what_is_alike_stands_side_by_side_and_what_stands_out_apart(six, client, ada, ben):
    found = alike.of(six[0], ben)
    assert [one.approval for one in found.members] == six
    assert (found.same, found.differing) == ({"currency": "EUR"}, ["amount"])
    large = found.members[4].apart
    assert "amount is more than twice what is usual here (11)" in large
    assert [bool(one.apart) for one in found.members] == [False] * 4 + [True, False]
    assert alike.count(six[0], ada) == 0, "she decides none of them"

    for one, minor in zip(six, (1000, 1100, 1200, 1000, 10_000, 1100), strict=True):
        Approval.objects.filter(pk=one.pk).update(amount_minor=minor, currency="EUR")
    page = client.get(here(six[0])).content.decode()
    assert re.findall(r"<b>(€[\d.]+)</b> in all", page) == ["€54.00", "€100.00"]
    assert "These stand out" in page
    assert "Version 2 came into force after all of them." in page
    for one, minor in zip(six, (10, 11, 12, 10, 100, 11), strict=True):
        Approval.objects.filter(pk=one.pk).update(amount_minor=minor)
    Approval.objects.filter(pk=six[0].pk).update(reason="Only this one was asked for by hand")
    as_money = alike.of(six[0], ben)
    assert [one.values["amount"] for one in as_money.members[:2]] == ["€0.10", "€0.11"]
    assert "amount is more than twice what is usual here (€0.11)" in as_money.members[4].apart
    same = client.get(here(six[0])).content.decode().partition("The same in all of them")[2]
    assert "Only this one" not in same.partition("</section>")[0], "it is not the same in all"
    assert page.count('name="digest-') == 6
    assert "6 alike" in client.get(f"/w/acme/approvals/{six[3].pk}/").content.decode()
    other = Approval.objects.get(subject_key__endswith=" m")
    assert "alike:" not in client.get(f"/w/acme/approvals/{other.pk}/").content.decode()
    assert "No two questions like this one wait for you" in client.get(here(other)).content.decode()


def test_a_sum_that_an_agent_writes_as_a_text_is_money_here_as_on_its_card(key, acme, ada, ben):
    shown = {"kind": "money", "amount": "int(args.amount)", "currency": "args.currency"}
    rules = {"pay.*": {"approval": "MANUAL"}}
    tools = {"pay.refund": {"preview": shown}}
    put_in_force(acme, ada, {"policies": rules, "tools": tools})
    trip = Trip(key)
    for n, amount in enumerate(["1000", "2500"]):
        args = {"amount": amount, "currency": "EUR"}
        trip.begin(tool="pay.refund", key=f"k{n}", action=f"a{n}", args=args)

    found = alike.of(Approval.objects.order_by("pk")[0], ben)

    assert [one.values["amount"] for one in found.members] == ["€10.00", "€25.00"]


def test_a_number_and_the_text_that_looks_like_it_are_not_the_same(key, acme, ada, ben):
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})
    trip = Trip(key)
    for n, room in enumerate([1, "1"]):
        trip.begin(tool="pay.refund", key=f"k{n}", action=f"a{n}", args={"room": room})

    found = alike.of(Approval.objects.order_by("pk")[0], ben)

    assert (found.differing, [one.values["room"] for one in found.members]) == (
        ["room"], ["1", "“1”"]
    )  # fmt: skip


def test_a_number_that_no_float_holds_breaks_no_page_and_stands_out(key, acme, ada, ben, client):
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})
    trip = Trip(key)
    for n, amount in enumerate([5000, 5000, 10**400]):
        trip.begin(tool="pay.refund", key=f"k{n}", action=f"a{n}", args={"amount": amount},
                   targets=[{"type": "order", "id": f"o{n}"}])  # fmt: skip
    asked = list(Approval.objects.order_by("pk"))
    client.force_login(ben)

    assert [client.get(here(one)).status_code for one in asked] == [200] * 3
    apart = [one.apart for one in alike.of(asked[0], ben).members]
    assert ["amount is more than twice what is usual here (5000)" in one for one in apart] == [
        False, False, True
    ]  # fmt: skip


def test_what_is_usual_is_that_of_the_same_currency(six, ben):
    for one, minor, currency in zip(
        six, (10, 11, 12, 10, 100, 11), ("EUR", "EUR", "EUR", "EUR", "JPY", "EUR"), strict=True
    ):
        Approval.objects.filter(pk=one.pk).update(amount_minor=minor, currency=currency)

    yen = alike.of(six[0], ben).members[4]

    assert yen.values["amount"] == "¥100"
    assert not [told for told in yen.apart if "twice what is usual" in told]


def test_each_is_its_own_decision_and_what_has_changed_meanwhile_is_not_decided(
    six, client, ben, cleo
):
    inbox.reject(six[1], by=cleo, seen=six[1].digest, reason="twice")
    data = posted(six[:4], **{f"digest-{six[2].pk}": "0" * 64})

    page = client.post(here(six[0], "decide/"), data).content.decode()

    assert states(six) == ["granted", "rejected", "waiting", "granted", "waiting", "waiting"]
    assert page.count("Approved.") == 2
    assert "it is already rejected" in page
    assert "what was shown is not what would run now" in page
    made = Decision.objects.filter(person=ben)
    assert {one.seen_digest for one in made} == {six[0].digest, six[3].digest}
    assert {one.reason for one in made} == {"all returned"}
    left = re.findall(r'name="chosen" value="(\d+)"( checked)?', page)
    assert (six[5].pk, False) in [(int(pk), bool(checked)) for pk, checked in left]
    assert not any(checked for _, checked in left), "they were left out on purpose, or refused"


def test_a_no_wants_one_reason_for_all_and_loses_nothing_that_was_chosen(six, client):
    page = client.post(here(six[0], "decide/"), posted(six[:2], "reject", ""))
    assert page.status_code == 422
    assert len(re.findall(r'name="chosen" value="\d+" checked', page.content.decode())) == 2
    assert set(states(six)) == {"waiting"}
    client.post(here(six[0], "decide/"), posted(six[:2], "reject", "not ours"))
    assert states(six)[:3] == ["rejected", "rejected", "waiting"]
    nothing = client.post(here(six[0], "decide/"), posted([]))
    assert (nothing.status_code, states(six)[2]) == (422, "waiting")


def test_a_yes_beside_which_others_are_needed_is_not_told_as_an_approval(
    key, acme, ada, ben, cleo, client
):
    two = {"approval": "MANUAL", "requires": [{"count": 2}]}
    put_in_force(acme, ada, {"policies": {"pay.*": two}})
    trip = Trip(key)
    for n in range(2):
        trip.begin(tool="pay.refund", key=f"k{n}", action=f"a{n}", args={"amount": n})
    asked = list(Approval.objects.order_by("pk"))
    client.force_login(ben)

    answer = client.post(here(asked[0], "decide/"), posted(asked)).text

    assert states(asked) == ["waiting", "waiting"]
    assert answer.count("Your yes is given; others are asked, too.") == 2
    assert "Approved." not in answer
    again = client.post(here(asked[0], "decide/"), posted(asked)).text
    assert (again.count("You had answered so before."), "Not decided" in again) == (2, False)
    client.force_login(cleo)
    assert client.post(here(asked[0], "decide/"), posted(asked)).text.count("Approved.") == 2


def test_no_argument_hides_behind_the_name_of_another(key, acme, ada, ben, client):
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})
    trip = Trip(key)
    for n in range(2):
        args = {"payee": {"name": "Mallory"}, "payee.name": "Mia", "amount": n, "": 7, "a[0]": 8}
        trip.begin(tool="pay.refund", key=f"k{n}", action=f"a{n}", args=args)
    client.force_login(ben)

    asked = Approval.objects.order_by("pk")[0]

    assert alike.of(asked, ben).same == {
        "payee.name": "Mallory", '["payee.name"]': "Mia", '[""]': "7", '["a[0]"]': "8"
    }  # fmt: skip
    page = client.get(here(asked)).text
    assert "Mallory" in page
    assert "Mia" in page


def test_who_may_not_decide_sees_no_group(six, client, ada):
    client.force_login(ada)
    assert client.get(here(six[0])).status_code in {403, 404}
    assert client.post(here(six[0], "decide/"), posted(six)).status_code in {403, 404}
    assert set(states(six)) == {"waiting"}


def test_a_page_of_nine_that_are_alike_asks_as_often_as_one_of_three(key, acme, ada, ben, client):
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})
    trip = Trip(key)
    client.force_login(ben)

    def asked(first, upto):
        for n in range(first, upto):
            args = {"amount": 10 + n, "currency": "EUR"}
            trip.begin(tool="pay.refund", key=f"k{n}", action=f"a{n}", args=args,
                       targets=[{"type": "order", "id": f"o{n}"}])  # fmt: skip
        page = here(Approval.objects.order_by("pk")[0])
        client.get(page)  # what a process keeps is kept
        with CaptureQueriesContext(connection) as said:
            assert client.get(page).content.count(b'name="digest-') == upto
        return [one["sql"] for one in said.captured_queries]

    assert len(asked(0, 3)) == len(asked(3, 9))
