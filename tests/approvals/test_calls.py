"""What exactly will happen, as the card says it: by kind, in full, with nothing hidden."""

import hashlib
import html
import json
import re
from typing import Any

import pytest
from django.test import Client

from approvals import call_context, card_context
from approvals.models import Approval
from ledger.models import Blob
from tests.approvals.cast import put_in_force
from tests.approvals.door import Agent as Trip

pytestmark = pytest.mark.django_db(transaction=True)

TOOLS = {
    "pay.*": {"kind": "money", "amount": "args.amount", "currency": "args.currency"},
    "mail.*": {"kind": "mail", "recipients": "args.to", "rows": {"To": "args.to"}},
    "crm.*": {"kind": "row"},
    "api.*": {"kind": "http", "title": '"Call " + args.path'},
    "refund.*": {
        "kind": "money",
        "amount": "args.amount",
        "currency": "args.currency",
        "title": '"Refund €1.00 to " + args.to',
    },
    "cal.*": {"kind": "calendar", "recipients": "args.invited"},
}


@pytest.fixture
def card(key, acme, ada, ben):
    """The card of a call that waits, as Ben reads it: `card(tool, args)`."""
    document = {
        "policies": {"*": {"approval": "MANUAL"}},
        "tools": {tool: {"preview": shown} for tool, shown in TOOLS.items()},
    }
    put_in_force(acme, ada, document)
    browser, trip = Client(), Trip(key)
    browser.force_login(ben)

    def drawn(tool, args, **more):
        assert trip.begin(tool=tool, args=args, **more).json()["answer"] == "wait"
        approval = Approval.objects.latest("pk")
        return browser.get(f"/w/acme/approvals/{approval.pk}/").content.decode()

    return drawn


def facts_of(drawn):
    """Every name with its value, in order, as they stand on the card."""
    found = re.findall(r"<dt>(.*?)</dt>\s*<dd>(.*?)</dd>", drawn, re.DOTALL)
    return [(name, html.unescape(re.sub(r"<.*?>", "", value)).strip()) for name, value in found]


def exactly(drawn):
    return drawn.split('id="exactly-title"')[1].split('id="why-title"')[0]


def test_a_title_that_is_the_same_for_every_call_names_what_it_is_called_on(key, acme, ada, ben):
    tools = {"repo.delete": {"title": "Delete a repository"}}
    put_in_force(acme, ada, {"policies": {"*": {"approval": "MANUAL"}}, "tools": tools})
    targets = [{"type": "repository", "id": "acme/web"}, {"type": "repository", "id": "acme/api"}]

    Trip(key).begin(tool="repo.delete", args={}, targets=targets)

    assert Approval.objects.get().headline == "Delete a repository: acme/web and 1 more"


def test_money_stands_large_and_every_argument_below(card):
    drawn = card("pay.card", {"amount": 5_000_000, "currency": "eur", "to": "p9"})

    assert "€50\u00a0000.00" in re.search(r'<h1>.*?class="sum">(.*?)<', drawn)[1]
    drawn = exactly(drawn)
    assert 'class="amount"' not in drawn, "the headline says it"
    assert ("amount", "5000000 €50\u00a0000.00") in facts_of(drawn)
    assert ("to", "p9") in facts_of(drawn)

    asked = {"amount": 100, "currency": "eur", "to": "p9"}
    told = exactly(card("refund.card", asked, key="key-2", action="act_2"))
    assert 'class="amount"' not in told, "its title says it"
    asked = {"amount": 200, "currency": "eur", "to": "p9"}
    told = card("refund.card", asked, key="key-3", action="act_3")
    assert "€2.00" in re.search(r'<h1>.*?class="sum">(.*?)<', told)[1]


def test_a_text_that_looks_like_another_value_stands_in_quotation_marks(card):
    """Whoever approves 1 must see that it is not the text “1”, and the other way round."""
    args = {"n": 1, "s": "1", "on": True, "word": "true", "none": None, "null": "null", "no": "",
            "end": "ann ", "sums": ["2.50", 2.5], "said": "“1”", "plain": "Ann 1", "id": "E-4711",
            "lines": "a\n b\n", "n ": 2}  # fmt: skip

    facts = dict(facts_of(exactly(card("api.post", args))))

    assert {name: facts[name] for name in ("n", "on", "none", "sums[1]", "plain", "id")} == {
        "n": "1", "on": "true", "none": "null", "sums[1]": "2.5", "plain": "Ann 1", "id": "E-4711",
    }  # fmt: skip
    assert (facts["s"], facts["word"], facts["null"]) == ("“1”", "“true”", "“null”")
    assert (facts["no"], facts["end"], facts["sums[0]"]) == ("“”", "“ann ”", "“2.50”")
    assert (facts["said"], facts["lines"]) == ("““1””", "a\n b")
    assert facts[html.escape('["n "]')] == "2", "a name whose end is not seen is no other name"


def test_a_row_of_a_plug_in_that_is_no_text_leaves_the_card_standing(card, ben):
    card("api.post", {"to": ["ann", "bob"]})
    approval = Approval.objects.get()
    approval.previews = [shown | {"rows": [["To", ["ann", "bob"]]]} for shown in approval.previews]
    approval.save()
    browser = Client()
    browser.force_login(ben)

    page = browser.get(f"/w/acme/approvals/{approval.pk}/")

    assert page.status_code == 200
    assert ("To", "['ann', 'bob']") in facts_of(exactly(page.content.decode()))


def test_a_field_that_becomes_a_text_is_told_from_the_number_that_it_was(card):
    drawn = exactly(card("crm.update", {"fields": {"floor": "1"}}, before={"floor": 1}))

    row = re.search(r'<th scope="row">floor</th><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td>', drawn)
    assert row
    assert row.groups() == ("1", "“1”")


def test_a_mail_stands_as_its_recipient_will_read_it(card):
    letter = "Dear Eve,\n\nyour invoice is <b>attached</b>.\n\nAcme"
    drawn = exactly(card("mail.send", {"to": ["eve@x.example"], "subject": "88", "body": letter}))

    assert html.escape(letter) in re.search(r'class="letter">(.*?)</div>', drawn, re.DOTALL)[1]
    assert facts_of(drawn)[:2] == [("To", "eve@x.example"), ("Subject", "88")]
    assert ("body", "(the text above)") in facts_of(drawn)


def test_of_two_texts_in_a_mail_neither_is_left_out(card):
    drawn = exactly(card("mail.send", {"to": "eve@x.example", "body": "short", "html": "<p>long"}))

    assert ("html", "<p>long") in facts_of(drawn)
    assert 'class="letter">short</div>' in drawn


def test_a_row_shows_what_its_fields_are_now_and_what_they_become(card):
    before = {"email": "old@x.example", "phone": "1", "name": "Eve"}
    args = {"fields": {"email": "new@x.example", "phone": "1", "tag": "vip"}}

    drawn = exactly(card("crm.update", args, before=before))

    rows = re.findall(r'<th scope="row">(.*?)</th><td class="diff-was">(.*?)</td>'
                      r'<td class="diff-now">(.*?)</td>', drawn)  # fmt: skip
    found = [tuple(re.sub(r"<.*?>", "", one) for one in row) for row in rows]
    changed = [("email", "old@x.example", "new@x.example"), ("tag", "nothing", "vip")]
    assert found == [*changed, ("phone", "1", "1")]  # said to stay as it is, and written
    assert "1 more field written with the value it has, as the agent saw it" in drawn
    assert drawn.index("more field written") < drawn.index(">phone<")


def test_a_row_whose_snapshot_is_kept_apart_shows_what_its_fields_are_now(card, acme):
    """As a client sends one of more than 64 KiB: by its digest."""
    content = json.dumps({"email": "old@x.example", "notes": "n" * 70_000}).encode()
    named = hashlib.sha256(content).hexdigest()
    Blob.objects.create(workspace=acme, sha256=named, content=content, byte_count=len(content))
    args = {"fields": {"email": "new@x.example"}}

    drawn = exactly(card("crm.update", args, before=[{"ref": f"sha256:{named}"}]))

    rows = re.findall(r'<th scope="row">(.*?)</th><td class="diff-was">(.*?)</td>'
                      r'<td class="diff-now">(.*?)</td>', drawn)  # fmt: skip
    found = [tuple(re.sub(r"<.*?>", "", one) for one in row) for row in rows]
    assert found == [("email", "old@x.example", "new@x.example")]


def test_a_request_has_its_line_first(card):
    args = {"method": "delete", "path": "/repos/acme/web", "force": True}
    assert ("Request", "DELETE /repos/acme/web") in facts_of(exactly(card("api.call", args)))


def test_a_calendar_entry_reads_as_one(card):
    args = {
        "title": "Review",
        "start": "2026-12-01T10:00:00+01:00",
        "end": "2026-12-01T11:30:00+01:00",
        "place": "Room 4",
        "invited": ["a@x.example", "b@x.example"],
    }
    assert facts_of(exactly(card("cal.add", args)))[:4] == [
        ("What", "Review"),
        ("When", "Tue 1 Dec 2026 10:00 – 11:30 +01:00"),
        ("Where", "Room 4"),
        ("Who", "a@x.example, b@x.example"),
    ]


def test_a_time_is_told_in_words_or_as_it_was_written(card):
    for start, end, words in (
        ("2026-12-01T10:00:00Z", "", "Tue 1 Dec 2026 10:00 UTC"),
        ("2026-12-01T23:00:00", "2026-12-02T01:00:00", "1 Dec 2026 23:00 – Wed 2 Dec 2026 01:00"),
        ("next week", "then", "next week – then"),
    ):
        drawn = card("cal.add", {"start": start, "end": end}, key=start, action=f"at-{len(start)}")
        assert words in dict(facts_of(exactly(drawn)))["When"]


def test_nothing_is_cut_off_before_a_decision(card):
    args: dict[str, Any] = {f"field_{number}": number for number in range(300)}
    args |= {"note": "n" * 30_000 + " and pay Mallory"}

    for tool in ("pay.card", "mail.send", "crm.update", "api.call", "cal.add", "plain.tool"):
        drawn = exactly(card(tool, args, key=tool, action=tool))
        assert dict(facts_of(drawn))["note"].endswith("and pay Mallory"), tool
        assert dict(facts_of(drawn))["field_299"] == "299", tool
        assert html.escape(json.dumps(args["note"])) in drawn  # the raw call has it, too
        assert "more characters" not in drawn


def test_every_target_of_a_call_is_named(card):
    targets = [{"type": "contact", "id": f"c{number}"} for number in range(8)]
    drawn = exactly(card("crm.merge", {"On": "contact c1", "Call": "x"}, targets=targets))

    assert [value for name, value in facts_of(drawn) if name == "On"] == [
        *(f"contact c{number}" for number in range(8)),
        "contact c1",  # an argument of that name is none the less shown
    ]
    assert ("Call", "x") in facts_of(drawn)


def test_hidden_characters_are_shown_wherever_a_title_stands(card, ben):
    drawn = card("api.call", {"path": "/web\u202egnp", "method": "GET"})

    assert "\u202e" not in drawn
    for title in (r"<title>(.*?)</title>", r"<h1>(.*?)</h1>", r"<h3[^>]*>(.*?)</h3>"):
        assert "⟦U+202E⟧" in re.search(title, drawn, re.DOTALL)[1]
    assert "⟦U+202E⟧" in drawn.split('id="inbox-list"')[1].split("</ul>")[0]
    assert "Hidden characters." in drawn


def test_a_long_title_says_that_it_goes_on_and_the_card_has_all_of_it(card):
    path = "/" + "a" * 400 + "/end"
    drawn = card("api.call", {"path": path, "method": "GET"})

    headline = Approval.objects.get().headline
    assert (len(headline), headline[-1]) == (300, "…")
    assert f"<h3>Call {path}</h3>" in drawn


def test_arguments_that_nobody_could_read_are_not_asked_about():
    """A long name is repeated in the path of each value below it: half a gigabyte of 64 KiB."""
    with pytest.raises(call_context.TooLargeToShow):
        call_context.flat({"n" * 32_000: [1] * 16_000})

    assert call_context.flat({"a": [1, {"b": None}]}) == [("a[0]", "1"), ("a[1].b", "null")]


def test_a_field_that_really_changes_is_never_called_the_same():
    for now, becomes in ((1, True), (0, False), ([1], [True]), (None, "Nora")):
        row = {"field": "v", "now": now, "was": becomes, "agent_wrote": "Nora"}
        drawn = call_context._diff({"diff": [row]})

        assert drawn["same"] == []
        assert [one["kind"] for one in drawn["diff"]] == ["changed"]


def test_the_sum_stands_beside_a_headline_that_does_not_say_it():
    for headline, currency, told in (
        ("Refund $1 286.00 to card ending 4421", "USD", ""),
        ("Refund what was paid to card ending 4421", "USD", "$1\u00a0286.00"),
        ("Send 51 286.00 CHF to Mia", "CHF", "1\u00a0286.00\u00a0CHF"),
    ):
        approval = Approval(headline=headline, amount_minor=128_600, currency=currency)
        assert card_context.amount_of(approval) == told
