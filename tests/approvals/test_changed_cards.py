"""The card of a call whose arguments can be corrected, and of what somebody has made of it."""

import re
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from approvals.gate import changed_arguments
from approvals.models import Approval
from approvals.views import card as views
from ledger.erasure import erase
from tests.approvals import cast
from tests.approvals.cast import agree, ask, change, now, put_in_force, waiting
from tests.approvals.door import Agent as Trip
from tests.people import person, team
from tests.worlds import kept

pytestmark = pytest.mark.django_db(transaction=True)
ben = cast.ben


@pytest.fixture
@kept(in_turn=True)
def trip(key, ben, cleo, acme, ada):
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})
    return Trip(key)


def test_a_changed_sum_stands_as_money_and_the_desk_names_who_withdrew_it(
    trip, at_desk, client, acme, ada
):
    preview = {"kind": "money", "amount": "args.amount", "currency": "'eur'"}
    tools = {"pay.*": {"preview": preview}}
    put_in_force(acme, ada, {"tools": tools, "policies": {"pay.*": {"approval": "MANUAL"}}})
    ask(trip)
    at_desk(waiting(), "change", amount="8000")

    page = client.get(card(waiting())).content.decode()

    assert '100 <span class="diff-note">€1.00</span>' in page
    assert '8000 <span class="diff-note">€80.00</span>' in page
    [before] = client.get(card(waiting())).context["before"]
    assert (before["state"], before["by"]) == ("withdrawn", ""), "its reason says who changed it"
    assert "Ben changed what was asked for" in page
    listed = client.get("/w/acme/approvals/?view=all").content.decode()
    assert "amount €1.00 → €80.00" in listed


def test_what_was_asked_in_another_currency_stands_as_it_was(trip, at_desk, client, acme, ada):
    preview = {"kind": "money", "amount": "args.amount", "currency": "args.currency"}
    tools = {"pay.*": {"preview": preview}}
    put_in_force(acme, ada, {"tools": tools, "policies": {"pay.*": {"approval": "MANUAL"}}})
    ask(trip, args={"amount": 500000, "currency": "JPY"})
    at_desk(waiting(), "change", amount="5000", currency="USD")

    page = client.get(card(waiting())).text

    assert '500000 <span class="diff-note">¥500\u00a0000</span>' in page
    assert '5000 <span class="diff-note">$50.00</span>' in page


@pytest.fixture
def at_desk(client, ben, acme):
    """Ben before the card: `post` presses a button with what was typed."""
    client.force_login(ben)

    def post(approval, act, reason="it was 80", **typed):
        numbers = {one.name: one.number for one in changed_arguments.fields_of(approval)}
        fields = {f"arg-{numbers[name]}": text for name, text in typed.items()}
        posted = {"digest": approval.digest, "reason": reason} | fields
        if act == "grant":
            return client.post(card(approval) + "decide/", posted | {"decision": "grant"})
        return client.post(card(approval) + f"{act}/", posted)

    return post


def card(approval):
    return f"/w/acme/approvals/{approval.pk}/"


def test_the_card_offers_each_argument_and_shows_what_became_of_it(
    trip, client, at_desk, cleo, acme
):
    ask(trip)
    old = waiting()
    page = client.get(card(old)).content.decode()
    assert page.count('name="arg-') == 2, "amount and to: not the masked one, nor the target"
    assert "known to the agent alone" in page
    assert "Another target is another call" in page

    answer = at_desk(old, "grant", amount="80")
    assert answer.status_code == 422
    assert "would approve what the agent asked for" in answer.content.decode()
    assert old == waiting()

    assert at_desk(old, "change", amount="80").status_code == 302
    new = waiting()
    page = client.get(card(new)).content.decode()
    assert "Asked, and as it was changed" in page
    assert "takes a second person" in page
    assert f'href="{card(old)}"' in page
    assert f'href="{card(new)}"' in client.get(card(old)).content.decode()

    client.force_login(cleo)
    assert "amount 100 → 80" in client.get("/w/acme/approvals/").content.decode()
    agree(cleo)
    trip.succeeded(ask(trip), attempt="a1", args=new.calls[0]["args"], result={})
    client.force_login(person("finn", team(acme, "auditors", "view", "view_sensitive")))
    run = client.post("/w/acme/reveal/run_1/").content.decode()
    assert "Arguments as they were asked for" in run
    assert "An approver changed the arguments" in run


@pytest.mark.parametrize("act", ["later", "more"])
def test_no_other_yes_passes_over_what_was_typed(trip, client, at_desk, acme, ada, act):
    rule = {"approval": "MANUAL", "bounded": {"uses": 3, "for": "1d"}}
    put_in_force(acme, ada, {"policies": {"pay.*": rule}})
    ask(trip)
    asked = waiting()
    [amount] = [one for one in changed_arguments.fields_of(asked) if one.name == "amount"]
    soon = (now() + timedelta(minutes=20)).isoformat()
    said = {"digest": asked.digest, "reason": "fine", "not-before": soon, "more-uses": "2"}
    said |= {"more-hours": "1", "more-target": "any", f"arg-{amount.number}": "80"}

    answer = client.post(f"{card(asked)}{act}/", said)

    assert answer.status_code == 422
    assert "would approve what the agent asked for" in answer.text
    assert 'value="80"' in answer.text, "what was typed stays"
    assert waiting() == asked
    said |= {f"arg-{amount.number}": "100", "not-before": soon if act == "later" else ""}
    assert client.post(f"{card(asked)}{act}/", said).url


def test_of_a_changed_call_that_is_erased_its_cards_still_open(
    trip, client, at_desk, ben, cleo, acme, ada
):
    ask(trip)
    change(ben, waiting(), amount="90")
    agree(cleo)
    new = Approval.objects.latest("pk")
    trip.succeeded(ask(trip), attempt="a1", args=new.calls[0]["args"], result={})
    trip.send("run.completed")

    erase(acme, runs=["run_1"], by=ada)

    for one in Approval.objects.all():
        assert client.get(card(one)).status_code == 200
        for name in ("requested", "decided", "resolved"):
            assert client.get(f"{card(one)}{name}.json").status_code == 404, "nothing is told of it"
    assert client.get("/w/acme/approvals/history/").status_code == 200


def test_whoever_comes_second_sees_what_became_of_it_and_keeps_what_they_typed(trip, at_desk, cleo):
    ask(trip)
    old = waiting()
    change(cleo, old, amount="90")

    answer = at_desk(old, "change", reason="Mia said so", amount="80")

    page = answer.content.decode()
    assert answer.status_code == 409
    assert "Cleo was first: amount 100 → 90" in page
    assert "What you had typed" in page
    assert "Mia said so" in page
    assert f'name="digest" value="{waiting().digest}"' in page, "the next press is about this one"


def test_a_button_that_cannot_change_says_why(trip, client, at_desk):
    ask(trip, accepts_changed_arguments=False)
    page = client.get(card(waiting())).content.decode()
    assert "disabled" in page
    assert "it would use its own" in page
    assert at_desk(waiting(), "change", amount="80").status_code == 422


def test_a_yes_to_a_change_that_was_written_into_the_database_is_told_to_nobody(trip, ben, cleo):
    """Whoever writes rows of approvals and answers has not written what the ledger keeps."""
    ask(trip)
    changed = change(ben, amount="80")
    changed.decisions.create(person=cleo, granted=True, seen_digest=changed.digest)
    Approval.objects.filter(pk=changed.pk).update(was="waiting", state="granted")

    said = ask(trip).json()

    assert "arguments" not in said
    assert (said["answer"], waiting().calls[0]["args"]["amount"]) == ("wait", 100), "asked anew"


def test_where_a_fresh_log_in_is_asked_for_first_no_change_is_offered_without_its_reason(
    trip, at_desk, client
):
    """“It needs the reason below”, it said, and there was no field for one."""
    ask(trip)
    Approval.objects.update(fresh_login=True)

    page = client.get(card(waiting()))

    assert page.context["fresh_login_url"]
    assert 'name="reason"' not in page.text
    assert page.context["change"] == {"why_not": views.PROVE_FIRST}
    assert "Ask with this change" not in page.text


def test_who_alone_may_decide_reads_why_they_cannot_change_it(
    trip, at_desk, client, ben, cleo, leads
):
    ask(trip)
    offered = client.get(card(waiting())).context["change"]
    assert "Somebody else decides on it, then" in offered["decides"]
    cleo.groups.clear()

    page = client.get(card(waiting()))

    assert page.context["may_decide"]
    assert "too few others could answer: reject it instead" in page.context["change"]["why_not"]
    assert "No change of its arguments: Whoever changes it" in page.text
    assert "Change the arguments" not in page.text, "what cannot be pressed is no button"
    refused = at_desk(waiting(), "change", amount="80")
    assert refused.status_code == 422
    assert "What you had typed" in refused.text


class Browser(HTMLParser):
    """What a browser sends of the card's arguments where nobody has touched them (HTML, forms)."""

    def __init__(self, page):
        super().__init__()
        self.sent, self.select, self.text = {}, "", None
        self.feed(re.sub("\r\n|\r", "\n", page))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        name = given.get("name") or ""
        if tag == "select":
            self.select = name
        elif tag == "option" and self.select.startswith("arg-"):
            if self.select not in self.sent or "selected" in given:
                self.sent[self.select] = given.get("value", "")
        elif tag == "textarea":
            self.text = name
        elif tag == "input" and name.startswith("arg-"):
            self.sent[name] = given["value"].replace("\n", "")

    def handle_data(self, data):
        if self.text:
            self.sent[self.text] = data.removeprefix("\n").replace("\n", "\r\n")

    def handle_endtag(self, tag):
        if tag in {"select", "textarea"}:
            self.select, self.text = "", None


MAYBE = {"anyOf": [{"type": "boolean"}, {"type": "null"}]}


WHATEVER: tuple[tuple[Any, Any], ...] = (
    (None, MAYBE),
    ("Oslo", {"enum": ["Bonn", " Rome  or Milan"]}),
    (" Rome  or Milan", {"enum": ["Bonn", " Rome  or Milan"]}),
    ("as she wrote:\r\n> hello\nyours", {"type": "string"}),
    ("one\rtwo", {"type": "string"}),
    ("\none\n", {}),
    ("1\n2", {"type": "integer"}),
)
"""Values, each with what its tool announces of it."""


def another(number):
    """A call beside the others."""
    return {"key": f"key-{number}", "action": f"act_{number}", "attempt": f"a-{number}"}


def test_who_touches_no_argument_approves_whatever_stands_there(trip, client, at_desk):
    for number, (value, schema) in enumerate(WHATEVER):
        args = {"amount": 100, "more": value}
        ask(trip, args=args, tool_schema={"properties": {"more": schema}}, **another(number))
        asked = waiting()
        sent = Browser(client.get(card(asked)).text).sent
        assert len(sent) == 2

        answer = client.post(
            f"{card(asked)}decide/",
            {"digest": asked.digest, "reason": "fine", "decision": "grant", **sent},
        )

        assert answer.status_code == 302, value
        asked.refresh_from_db()
        assert (asked.state, asked.calls[0]["args"]) == ("granted", args)


def test_what_is_corrected_keeps_the_ends_of_its_lines(trip, client, ben, cleo):
    ask(trip, args={"amount": 100, "note": "one\r\ntwo", "text": "three\nfour"})

    args = change(ben, note="one\r\n2", text="3\r\nfour").calls[0]["args"]

    assert args == {"amount": 100, "note": "one\r\n2", "text": "3\nfour"}


def test_what_is_announced_and_is_no_schema_keeps_nobody_from_deciding(trip, client, at_desk):
    none: tuple[object, ...] = (
        ["amount"], {"amount": {"anyOf": 5}}, {"amount": {"type": [["integer"]]}},
        {"amount": {"type": {"a": 1}, "enum": {"a": 1}, "anyOf": [1]}},
    )  # fmt: skip
    for number, properties in enumerate(none):
        ask(trip, tool_schema={"properties": properties}, **another(number))
        asked = waiting()
        assert client.get(card(asked)).status_code == 200, properties
        assert at_desk(asked, "grant", amount="100").status_code == 302, properties
        asked.refresh_from_db()
        assert asked.state == "granted"
