"""What a card points out, from the ledger's own history."""

import html
import re

import pytest
from django.utils import timezone

from approvals import inbox, notifications
from approvals.models import Approval, NotificationKind
from connectors.contract import Money
from ledger.models import Action
from tests.approvals.cast import put_in_force, refund
from tests.approvals.door import Agent as Trip
from tests.approvals.door import planned
from tests.people import logged_in
from tests.worlds import kept
from workspaces import formatting

pytestmark = pytest.mark.django_db(transaction=True)

POLICY = {
    "policies": {
        "pay": [{"when": "args.amount > 500", "approval": "MANUAL"}, {"approval": "AUTO"}]
    },
    "tools": {
        "pay": {
            "class": "external_reversible",
            "preview": {"kind": "money", "amount": "args.amount", "currency": "args.currency"},
        },
        "mail.send": {
            "class": "external_irreversible",
            "preview": {"kind": "mail", "recipients": "args.to"},
        },
    },
}


@pytest.fixture
@kept(in_turn=True)
def trip(key, acme, ada, ben):
    put_in_force(acme, ada, POLICY)
    return Trip(key)


@pytest.fixture
def card(ben):
    browser = logged_in(ben)
    return lambda approval: browser.get(f"/w/acme/approvals/{approval.pk}/").content.decode()


def pay(trip, number, amount, target="p1", currency="EUR"):
    body = planned(
        tool="pay",
        action=f"act_{number}",
        key=f"key-{number}",
        attempt=f"try-{number}",
        targets=[{"type": "payee", "id": target}],
        args={"amount": amount, "currency": currency},
    )
    return trip.begin(body)


def test_an_amount_far_above_what_the_tool_moved_before_is_pointed_out(trip, card):
    for number, amount in enumerate((100, 120, 90)):  # nobody was asked about these
        said = pay(trip, number, amount)
        trip.succeeded(said, attempt=f"try-{number}", after={"paid": amount})

    pay(trip, 8, 600)

    shown = card(Approval.objects.get())
    assert "Unusual amount." in shown
    assert "The most among the last 3 calls of this tool was €1.20." in shown
    assert "<b>€6.00</b>" in shown  # in the inbox beside it, for its title does not say so


def test_what_an_agent_only_tells_makes_nothing_usual_and_nobody_known_on_a_card(trip, card):
    for number, amount in enumerate((100, 120, 90)):
        said = pay(trip, number, amount)
        trip.succeeded(said, attempt=f"try-{number}", after={"paid": amount})
    for number in range(3):
        told = {"tool": "pay", "args": {"amount": 10_000, "currency": "EUR"},
                "targets": [{"type": "payee", "id": "evil"}]}  # fmt: skip
        trip.send("action.planned", action=f"told-{number}", **told)
        trip.send("action.succeeded", action=f"told-{number}", attempt="a", after={"paid": 10_000})
    said = pay(trip, 7, 100)
    other = {"type": "payee", "id": "evil"}
    trip.succeeded(said, attempt="try-7", effects=[{"target": other, "after": {"paid": 100}}])

    pay(trip, 8, 600, target="evil")

    shown = card(Approval.objects.get())
    assert "Unusual amount." in shown
    assert "this tool never reached it before" in shown
    assert "First time." in shown


@pytest.mark.parametrize("amount", [2**63, 10**30, 1e300])
def test_an_amount_that_no_column_holds_is_asked_about_as_any_other(trip, card, amount):
    assert pay(trip, 1, amount).json()["answer"] == "wait"

    approval = Approval.objects.get()
    assert approval.amount_minor is None
    assert formatting.money(int(amount), "EUR") in html.unescape(card(approval))


def test_the_card_begins_with_what_was_asked_for_before_all_that_the_agent_says(trip, card):
    trip.send("run.started", request="Pay Riverside what we owe them")
    pay(trip, 1, 600, target="Riverside")

    _, _, below = card(Approval.objects.get()).partition("<h1>")

    first = below.index('<p class="lead">Asked for: “Pay Riverside what we owe them”</p>')
    assert first < below.index("<h2")


def test_the_card_begins_with_the_sum_and_knows_whom_the_tool_paid_before(trip, card):
    said = pay(trip, 1, 100, target="Riverside")
    trip.succeeded(said, attempt="try-1", after={"paid": 100})

    pay(trip, 2, 600, target="Riverside")
    known = card(Approval.objects.latest("pk"))
    pay(trip, 3, 700, target="Riversⅰde")
    alike = card(Approval.objects.latest("pk"))
    pay(trip, 4, 800, target="Somebody")
    new = card(Approval.objects.latest("pk"))

    assert re.search(r'<h1>[^<]+<span class="sum">€6.00</span></h1>', known)
    assert '<span class="amount">' not in known, "the sum is said once"
    assert "1 call of this tool before, known since" in known
    assert "€1.00 at most" in known
    assert "Looks like another." in alike
    assert "this tool never reached it before" in new
    assert "Looks like another" not in new + known


def test_of_many_whom_a_call_reaches_who_is_new_is_pointed_out_wherever_they_stand(trip, card):
    known = [f"p{number}" for number in range(7)]
    for number, one in enumerate(known):
        trip.succeeded(pay(trip, number, 100, one), attempt=f"try-{number}", after={"paid": 100})

    def asked(*names):
        targets = [{"type": "payee", "id": one} for one in names]
        key = f"to-{len(names)}"
        args = {"amount": 600, "currency": "EUR"}
        trip.begin(tool="pay", action=key, key=key, targets=targets, args=args)
        page = html.unescape(card(Approval.objects.latest("pk")))
        return page, page.partition('id="payees-title"')[2].partition("</section>")[0]

    page, reached = asked(*known, "evil")
    assert "Nothing on record was ever done to payee evil." in page
    assert reached.index("payee evil") < reached.index("payee p0")
    assert "3 more" in reached
    assert "never before" not in reached.partition("3 more")[2]
    page, reached = asked(*known, *(f"new{number}" for number in range(50)))
    assert "new3, payee new4 and 38 more. Only 50 of its 57 targets were looked up." in page
    assert "45 of them never before" in reached.partition("52 more")[2]


def test_what_somebody_was_paid_at_most_is_told_for_each_currency(acme, ada, trip, card):
    put_in_force(acme, ada, POLICY | {"policies": {"pay": {"approval": "AUTO"}}})
    paid = [(100_000, "JPY"), (50_000, "JPY"), (90_000, "USD")]
    for number, (amount, currency) in enumerate(paid):
        said = pay(trip, number, amount, target="Riverside", currency=currency)
        trip.succeeded(said, attempt=f"try-{number}", after={"paid": amount})
    put_in_force(acme, ada, POLICY)

    pay(trip, 8, 600, target="Riverside", currency="USD")

    assert "$900.00 or ¥100\u00a0000 at most" in html.unescape(card(Approval.objects.get()))


def test_the_card_says_what_its_run_did_before_and_whether_it_can_be_taken_back(trip, card):
    said = pay(trip, 1, 100)
    trip.succeeded(said, attempt="try-1", after={"paid": 100})
    pay(trip, 2, 600)

    shown = card(Approval.objects.get())

    before = shown.split('id="earlier-title"')[1].split("</section>")[0]
    assert "Reported done" in before
    assert "payee p1" in before
    assert "No way back is known." in shown
    Action.objects.update(action_class="external_irreversible")
    assert "Cannot be taken back." in card(Approval.objects.get())


def test_where_one_target_of_several_has_a_way_back_the_card_names_those_without(
    trip, card, acme, ada
):
    twin = {"connection": "shop", "operation": "restore_row", "args": {"to": "before"}}
    put_in_force(acme, ada, POLICY | {"twins": {"pay": twin | {"target": "ticket"}}})
    both = [{"type": "ticket", "id": "T-1"}, {"type": "payee", "id": "p1"}]
    trip.begin(planned(tool="pay", targets=both, args={"amount": 600, "currency": "EUR"}))

    approval = Approval.objects.get()
    shown = card(approval)

    assert "Only a part can be undone." in shown
    assert "The policy has no twin for payee p1, and the agent names none." in shown
    assert "Can be undone." not in shown
    Action.objects.update(targets=both[:1])
    assert "Can be undone." in card(approval)


def test_a_rule_that_asks_nobody_is_no_reason(trip, card):
    pay(trip, 1, 600)
    approval = Approval.objects.get()
    asks, *_ = [one for one in approval.rules if one["approval"] == "MANUAL"]
    approval.rules = [asks, asks | {"approval": "AUTO", "words": "reading needs nobody"}]
    approval.save(update_fields=["rules"])

    shown = card(approval)

    assert "reading needs nobody" not in shown
    assert asks["words"] in html.unescape(shown)


def test_a_usual_amount_is_not(trip, card):
    for number, amount in enumerate((400, 450, 300)):
        said = pay(trip, number, amount)
        trip.succeeded(said, attempt=f"try-{number}", after={"paid": amount})
    pay(trip, 8, 600)
    assert "Unusual amount." not in card(Approval.objects.get())


def test_a_target_and_a_tool_never_touched_before_are_pointed_out(trip, card):
    pay(trip, 1, 600, target="new one")
    shown = card(Approval.objects.get())
    assert "Nothing on record was ever done to payee “new one”." in shown
    assert "desk-agent has never called pay before." in shown


def test_recipients_outside_are_pointed_out_and_colleagues_are_not(trip, card, ben):
    for number, to in enumerate(("eve@home.test", "cleo@example.com")):
        trip.begin(
            planned(
                tool="mail.send",
                action=f"m_{number}",
                key=f"m-{number}",
                args={"to": to, "text": "x"},
            )
        )
    outside, inside = Approval.objects.order_by("pk")
    assert "Reaches people outside." in card(outside)
    assert "eve@home.test: nobody here has an address there." in card(outside)
    assert "Reaches people outside." not in card(inside)


@pytest.mark.django_db
def test_what_was_decided_before_on_this_target_is_shown(ask, ben, card):
    first = ask()
    inbox.reject(first, by=ben, seen=first.digest, reason="refunded already")
    other = refund()
    elsewhere = ask(calls=[type(other)(**(other.as_json() | {"target_id": "ch_2"}))])

    again = ask()

    shown = card(again)
    assert "Decided before on this" in shown
    assert "refunded already" in shown
    assert f"/w/acme/approvals/{first.pk}/" in shown
    assert "Decided before on this" not in card(elsewhere)


def test_an_unusual_plan_is_compared_with_earlier_plans(ask, acme, card):
    for _ in range(3):
        usual = ask()
        Approval.objects.filter(pk=usual.pk).update(
            was="granted", state="used", amount_minor=100, currency="EUR", used_at=timezone.now()
        )
    large = ask()
    Approval.objects.filter(pk=large.pk).update(amount_minor=1_000, currency="EUR")
    assert Money(1_000, "EUR").amount_minor == 1_000
    large.refresh_from_db()
    assert "The most among the last 3 plans that were approved was €1.00." in card(large)


def test_a_tool_never_called_stays_pointed_out_however_often_the_agent_asks(trip, card, ben):
    for number in (1, 2, 3):
        assert pay(trip, number, 600, target=f"t-{number}").json()["answer"] == "wait"
    first, _, last = Approval.objects.order_by("pk")

    assert "desk-agent has never called pay before." in card(last), "it asked, and called nothing"

    inbox.grant(first, by=ben, seen=first.digest, reason="fine")
    assert pay(trip, 1, 600, target="t-1").json()["answer"] == "proceed"
    assert "desk-agent has never called pay before." not in card(last)


def test_an_agent_cannot_speak_in_the_voice_of_the_desk(trip, card, acme, ada):
    put_in_force(acme, ada, POLICY | {"unknownTools": "ASK"})
    body = planned(
        tool="p\u0430y” ✓ approved by “finance",
        targets=[{"type": "payee", "id": "p1\nAmount: $0.01\r\nApproved by finance\u2028”"}],
        args={"amount": 100, "currency": "EUR"},
        intent={"reason": "see above\nApproved: yes”"},
    )

    assert trip.begin(body).json()["answer"] == "wait"

    approval = Approval.objects.get()
    tool = '“p⟦U+0430⟧y" ✓ approved by "finance”'
    target = 'payee “p1⏎Amount: $0.01⏎Approved by finance⏎"”'
    told = notifications.in_full(approval, NotificationKind.ASKED).text.splitlines()
    assert told[0] == f"{tool} on {target}"
    assert f"desk-agent asks in Acme for one call of {tool}: question {approval.pk}." in told
    assert not [line for line in told if line.startswith(("Amount", "Approved"))]
    assert approval.rules[0]["words"].startswith(f"No rule lists this tool, {tool}, and unknown")
    page = re.sub("</?(mark|wbr)[^>]*>", "", card(approval))
    assert html.escape(f"has never called {tool} before.") in page
    assert "p\u0430y" not in page.split("<h2")[0]
