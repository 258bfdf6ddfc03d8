"""Trails of work that nobody here has seen before: travel, files, trading and post.

Runs are drawn from a seed, so that no template was written for one of them. Whoever reads such a
page has nothing else, so each of the six questions has its answer on it: what happened, what was
meant, what is so now, who did it and when, what must I do, how do I check or contest it.
"""

import random
import re
from html import unescape
from typing import Any

import pytest
from django.utils import translation

from amends.protocol.vocabulary import EventType
from ledger import desk_events
from ledger.models import Effect
from recovery import corrections
from recovery.casework import cases
from recovery.corrections import recorded_values, sentences
from tests.recovery.cases.cast import AgentRun

SEED = 7
READ = 10

# Request, and the calls of its domain: tool, kind and id of the target, before, after, summary.
Call = tuple[str, str, str, Any, Any, str]
DOMAINS: dict[str, tuple[str, list[Call]]] = {
    "travel": (
        "Move my stay in Porto to the week after Easter",
        [
            ("stays.book", "stay", "P-88120", None, {"nights": 3}, "booked three nights in Porto"),
            ("seats.change", "seat", "TP 512", {"row": "12A"}, {"row": "31E"}, ""),
            ("cars.cancel", "rental_car", "R-77", {"class": "small"}, None, "cancelled the car"),
        ],
    ),
    "files": (
        "Tidy the folder of the tax return",
        [
            ("files.rename", "file", "tax/2025.pdf", {"name": "2025"}, {"name": "old"}, ""),
            ("files.delete", "file", "tax/receipts.zip", {"bytes": 9}, None, "deleted receipts"),
            ("files.share", "share", "tax", {"with": "nobody"}, {"with": "everyone"}, ""),
        ],
    ),
    "trading": (
        "Sell ten shares of ACME if they fall below 40",
        [
            ("orders.place", "order", "O-1", None, {"shares": 100}, "sold 100 shares of ACME"),
            ("orders.limit", "order", "O-2", {"limit": 40}, {"limit": 4}, ""),
            ("alerts.set", "alert", "A-5", None, {"below": 40}, "set an alert at 40"),
        ],
    ),
    "post": (
        "Send my sister's birthday parcel to her new address",
        [
            ("parcels.send", "parcel", "RR123", None, {"to": "Oak 1"}, "sent parcel RR123"),
            ("addresses.change", "address", "sister", {"street": "Elm 9"}, {"street": "Oak 1"}, ""),
            ("mail.send", "mail", "ida@example.com", None, {"subject": "On its way"}, ""),
        ],
    ),
}


@pytest.fixture
def trails(acme, ada, client, agent, policy):
    """Ten pages: what each was asked for, and its text as a reader sees it."""
    luck, pages = random.Random(SEED), []  # noqa: S311
    for number in range(READ):
        request, calls = DOMAINS[luck.choice(sorted(DOMAINS))]
        run = AgentRun(agent, f"run_{number}").begins(request)
        for tool, kind, name, before, after, summary in luck.sample(calls, luck.randint(1, 3)):
            action = run.plans(tool, (kind, name))
            effect = {"target": {"type": kind, "id": name}, "before": before, "after": after}
            effect |= {"summary": summary} if summary else {}
            run.send("action.succeeded", action, attempt="1", effects=[effect])
            outcome = luck.choice(["compensated", "corrected", "repaired", None])
            if outcome:
                data = {"positions": [0], "outcome": outcome, "verified": True}
                desk_events.record(
                    acme, EventType.ACTION_COMPENSATED, run=run.run, action=action, data=data
                )
        run.ends("failed", error={"type": "Stopped", "message": "no answer"})
        case = run.case() or cases.report(run.row, text="This is not what I asked for", by=ada)
        (drafted,) = corrections.draft(case)
        told = corrections.publish(drafted, by=ada, seen=drafted.revision)
        path = corrections.link_of(told).removeprefix("http://localhost")
        pages.append((request, client.get(path).text))
    return pages


def seen(page):
    """The page as text, one line for each block of it."""
    body = page.partition("<main")[2].partition("</main>")[0]
    text = unescape(re.sub(r"<(?!/?(?:b|code|time|a|span)\b)[^>]+>", "\n", body))
    lines = (re.sub(r"<[^>]+>", "", line).strip() for line in text.splitlines())
    return "\n".join(filter(None, lines))


def test_each_of_ten_answers_the_six_questions_by_itself_and_calls_nothing_what_it_is_not(trails):
    told = [(request, page, seen(page)) for request, page in trails]
    for words in ("Correction sent", "Left as it is", "Undone", "Made again", "Cancelled"):
        assert any(words in text for _, _, text in told), "the draw shows each of them"
    for request, page, text in told:
        answers = {
            "what happened": re.search("What changed, and what we did|What could not be", text),
            "what was meant": f"What you had asked for\n{request}" in text,
            "what is so now": re.search(r"What you have now\n\S+", text),
            "who and when": re.search(r"By our assistant “ticket-desk”, \w+\.? \d+", text),
            "what must I do": re.search(r"What you need to do\n\S+", text),
            "how do I check": "Verify" in text and "/verify/" in page,
            "how do I contest": "You may contest this" in text and "/report/" in page,
        }
        assert not [name for name, found in answers.items() if not found], text
        for private in ("act_", "None", "{", "compensated", "null"):
            assert private not in text, text
        stands = "Left as it is" in text or "What could not be undone" in text
        if stands:
            assert "What it had done has been undone" not in text, text
            assert "This was not carried out" not in text, text
        gone = re.findall(r"“deleted receipts”\.\nIt (?:was left|cannot)", text)
        if gone:
            assert "File receipts.zip does not exist any more." in text, text
        changed = re.findall(r"The limit of order O-2 was changed from 40 to 4\.\n(.*)", text)
        assert "It was cancelled. Cancelled" not in changed, "a change is undone, not cancelled"


def test_a_flag_and_a_balance_are_told_as_people_say_them(acme, ada, agent, policy):
    run = AgentRun(agent, "run_1").begins("Hold my post, and sweep what is left into savings")
    for name, before, after in [
        ("mail_hold", {"active": False}, {"active": True}),
        ("cash_account", {"cash_minor": 1_210_000, "currency": "sek"},
         {"cash_minor": 6_510_000, "currency": "sek"}),
    ]:  # fmt: skip
        action = run.plans(f"{name}.set", (name, "A-1"))
        effect = {"target": {"type": name, "id": "A-1"}, "before": before, "after": after}
        run.send("action.succeeded", action, attempt="1", effects=[effect])
    run.ends("failed", error={"type": "Stopped", "message": "no answer"})
    (drafted,) = corrections.draft(run.case())

    told = [item["what"] for item in drafted.facts["items"]]
    assert told == [
        "The active of mail hold A-1 was changed from no to yes.",
        (
            "The cash of cash account A-1 was changed from 12\u00a0100.00\u00a0SEK"
            " to 65\u00a0100.00\u00a0SEK."
        ),
    ]
    with translation.override("de"):
        german = sentences.what(drafted.facts["items"][0])
    assert german == "Eintrag „mail hold“ A-1: „active“ von nein auf ja geändert."


def test_a_balance_of_nobody_knows_what_is_not_told_as_a_hundred_times_of_it(
    acme, ada, agent, policy
):
    run = AgentRun(agent, "run_1").begins("Book my fee")
    for number, more in enumerate(({}, {"fee": 1})):
        before, after = ({"balance_minor": one, "currency": "EURO", **more} for one in (5000, 100))
        after |= dict.fromkeys(more, 2)
        action = run.plans("ledger.book", ("account", f"A-{number}"))
        effect = {"target": {"type": "account", "id": f"A-{number}"}}
        effects = [effect | {"before": before, "after": after}]
        run.send("action.succeeded", action, attempt="1", effects=effects)
        data = {"positions": [0], "outcome": "restored", "verified": True}
        desk_events.record(
            acme, EventType.ACTION_COMPENSATED, run=run.run, action=action, data=data
        )
    run.ends("failed", error={"type": "Stopped", "message": "no answer"})
    case = run.case() or cases.report(run.row, text="wrong", by=ada)
    (drafted,) = corrections.draft(case)

    told = [item["what"] for item in drafted.facts["items"]]
    assert sorted(told) == [
        "The balance of account A-0 was changed.",
        "The fee of account A-1 was changed from 1 to 2. Also changed: balance.",
    ]
    assert "5000" not in str(drafted.facts) + str(drafted.wording)


def test_each_of_several_fields_says_from_what_to_what_and_a_record_its_sum(
    acme, ada, agent, policy, client
):
    run = AgentRun(agent, "run_1").begins("Rebook my cruise")
    told = [
        ("cruise_cabin", "B-204", {"deck": 4, "paid_minor": 900, "currency": "eur", "tags": ["a"]},
         {"deck": 2, "paid_minor": 99_900, "currency": "eur", "tags": ["b"]}),
        ("seat", "22A", {"state": "free", "holder": None}, {"state": "held", "holder": "noah"}),
        ("shipping_label", "DE-7", None, {"price_minor": 679, "currency": "eur"}),
    ]  # fmt: skip
    for kind, name, before, after in told:
        action = run.plans("some.tool", (kind, name))
        effect = {"target": {"type": kind, "id": name}, "before": before, "after": after}
        run.send("action.succeeded", action, attempt="1", effects=[effect])
    run.ends("failed", error={"type": "Stopped", "message": "no answer"})
    case = cases.report(run.row, text="wrong", by=ada)
    (drafted,) = corrections.draft(case)
    published = corrections.publish(drafted, by=ada, seen=drafted.revision)
    path = corrections.link_of(published).removeprefix("http://localhost")

    pages = {
        one: seen(client.get(path, headers={"accept-language": one}).text)
        for one in ("en", "de", "fr", "es")
    }

    changed = "was changed: deck from 4 to 2 and paid from €9.00 to €999.00. Also changed: tags."
    assert f"Cruise cabin B-204 {changed}" in pages["en"]
    for one, sentence in {
        "en": "The state of seat 22A was changed from “free” to “held”. Also changed: holder.",
        "de": "Sitzplatz 22A: Zustand von „free“ auf „held“ geändert. Ebenfalls geändert: Inhaber.",
        "fr": "Siège 22A a changé : état de «\xa0free\xa0» à «\xa0held\xa0». Autres changements",
        "es": "Asiento 22A cambió: estado de «free» a «held». Otros cambios: titular.",
    }.items():
        assert sentence in pages[one], one
    assert "Shipping label DE-7 was made. In the record: price €6.79." in pages["en"]
    assert "Eintrag „cruise cabin“ B-204 wurde geändert: „deck“ von 4 auf 2 und" in pages["de"]
    assert "Etikett „shipping label“ DE-7" in pages["de"]
    assert "In der Aufzeichnung: Preis 6,79\N{NO-BREAK SPACE}€." in pages["de"]


@pytest.mark.parametrize(
    ("record", "is_all"),
    [
        ({"amount": 5_000, "amount_captured": 5_000, "currency": "eur"}, True),
        ({"price_minor": 5_000}, True),
        ({"amount": 90_000, "fee_minor": 5_000, "currency": "eur"}, False),
        ({"amount": 90_000, "seats": 5_000, "currency": "eur"}, False),
        ({"year": 5_000, "currency": "eur"}, False),
        ({"amount": 5_000, "currency": "jpy"}, False),
        (None, False),
    ],
)
def test_a_thing_is_of_the_sum_that_was_paid_back_only_where_its_record_says_that_of_it(
    record, is_all
):
    moved = {"amount_minor": 5_000, "currency": "EUR"}

    assert recorded_values.is_all(Effect(after=record), moved) is is_all


def test_whoever_is_left_without_a_thing_is_not_told_that_nothing_is_to_be_done(
    acme, ada, agent, policy, client
):
    run = AgentRun(agent, "run_1").begins("Tidy my payments")
    action = run.plans("standing.cancel", ("standing_order", "rent"))
    target = {"type": "standing_order", "id": "rent"}
    effect = {"target": target, "before": {"on": 1}, "after": None}
    run.send("action.succeeded", action, attempt="1", effects=[effect])
    data = {"positions": [0], "outcome": "corrected", "verified": True}
    desk_events.record(acme, EventType.ACTION_COMPENSATED, run=run.run, action=action, data=data)
    run.ends("failed", error={"type": "Stopped", "message": "no answer"})
    case = run.case() or cases.report(run.row, text="wrong", by=ada)
    (drafted,) = corrections.draft(case)
    published = corrections.publish(drafted, by=ada, seen=drafted.revision)

    page = client.get(corrections.link_of(published).removeprefix("http://localhost"))

    assert "You need not do anything." not in page.text
    assert "If what still stands does not suit you" in page.text
