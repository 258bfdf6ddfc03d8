"""Headlines: what a case is called, in the customer's terms, and what of it is a payload."""

from types import SimpleNamespace
from typing import Any

import pytest

from amends.protocol.vocabulary import EventType
from approvals import versions
from ledger import desk_events
from ledger.models import Action, Compensated
from recovery.casework import cases, settling
from recovery.corrections.facts import why
from recovery.planning import previews
from recovery.planning.drafting import Drafted
from recovery.triage import headlines
from tests.people import logged_in, person, team
from tests.recovery.cases.conftest import POLICY

WITH_SUMS = POLICY.replace(
    '"mail.send":       {class: external_irreversible}',
    '"mail.send":       {class: external_irreversible,'
    " preview: {kind: mail, amount: args.amount, currency: args.currency}}",
)


def test_a_mail_to_the_wrong_person_is_told_with_both_and_the_sum(begin_run, acme):
    versions.activate(versions.save(acme, WITH_SUMS, by=None), by=None)
    right, wrong = "jonas.weber@example.com", "jonas.weiss@example.com"
    run = begin_run()
    action = run.does(
        "mail.send",
        ("mail", wrong, None, {"subject": "Invoice 12"}),
        planned={"args": {"amount": 21_400, "currency": "usd"}},
    )
    check = {"name": "it went to the customer", "expected": right, "actual": wrong, "ok": False}
    run.send("action.verified", action, ok=False, checks=[check])
    run.ends()

    case = run.case()

    assert case.headline_in_full == (
        f"“Invoice 12” went to {wrong} instead of {right}, $214.00 at stake"
    )
    assert right not in case.headline + case.brief
    assert case.headline.endswith("“it went to the customer” is not so, $214.00 at stake")
    told = case.headline_in_full
    done = {"positions": [0], "outcome": "corrected", "verified": True}
    desk_events.record(acme, EventType.ACTION_COMPENSATED, run=run.run, action=action, data=done)
    assert run.case().headline_in_full == told, "what went wrong is still what went wrong"


def test_a_number_found_instead_of_the_text_that_looks_like_it_is_told_apart(
    begin_run, client, acme
):
    run = begin_run()
    action = run.does("mail.send", ("mail", "m1", None, {"subject": "12"}))
    checks = [
        {"name": "seats", "expected": 1, "actual": "1", "ok": False},
        {"name": "paid", "expected": True, "actual": None, "ok": False},
    ]
    run.send("action.verified", action, ok=False, checks=checks)
    run.ends()

    case = run.case()

    assert "“seats”; found “1” instead of 1" in case.headline_in_full
    client.force_login(person("sue", team(acme, "seniors", "view", "view_sensitive")))
    page = client.get(f"/w/acme/cases/{case.pk}/").text
    assert "seats: expected <code>1</code>, found <code>“1”</code>" in page
    assert "paid: expected <code>true</code>, found <code>null</code>" in page


@pytest.mark.parametrize(
    ("expected", "actual", "words"),
    [
        (True, "true", "found “true” instead of true"),
        ("nothing", None, "found nothing instead of “nothing”"),
        (None, "", "found “” instead of nothing"),
    ],
)
def test_no_two_that_differ_are_told_by_one_word(begin_run, expected, actual, words):
    run = begin_run()
    action = run.does("mail.send", ("mail", "m1", None, {"subject": "12"}))
    check = {"name": "paid", "expected": expected, "actual": actual, "ok": False}
    run.send("action.verified", action, ok=False, checks=[check])
    run.ends()

    assert f"“paid”; {words}" in run.case().headline_in_full


@pytest.mark.parametrize(
    ("expected", "actual", "words"),
    [
        (["cancel A1", "book B2"], ["book B2"], "Not so: “done”; missing “cancel A1”"),
        ([], ["book B2", "book B2"], "Not so: “done”; not expected “book B2” and “book B2”"),
        (["a"], ["b"], "Not so: “done”; missing “a”, not expected “b”"),
        (list("abcd"), [], "Not so: “done”; missing “a”, “b” and 2 more"),
        (["a", "b"], ["b", "a"], ""),
        ([{"a": 1}], [], ""),
    ],
)
def test_of_two_lists_is_told_what_is_on_one_of_them_alone(
    begin_run, client, acme, expected, actual, words
):
    run = begin_run()
    action = run.does("mail.send", ("mail", "m1", None, {"subject": "12"}))
    check = {"name": "done", "expected": expected, "actual": actual, "ok": False}
    run.send("action.verified", action, ok=False, checks=[check])
    run.ends()

    assert run.case().headline_in_full == words


@pytest.mark.parametrize(
    ("state", "told", "person"),
    [
        ("failed", "then failed (“no room left”)", "stopped half-way"),
        ("cancelled", "and was cancelled half-way", "was cancelled after part of it"),
        ("completed", "and nobody has verified it", "Nobody could confirm"),
    ],
)
def test_that_nobody_verified_it_is_said_where_nothing_graver_is(
    begin_run, acme, state, told, person
):
    """A run that failed was headed *nobody has verified it*, and its error stood below alone."""
    verified = POLICY.replace("SNAPSHOT}", "SNAPSHOT, verify: PERSON}")
    versions.activate(versions.save(acme, verified, by=None), by=None)
    run = begin_run()
    raised = ({"priority": "low"}, {"priority": "high"})
    run.does("tickets.update", ("ticket", "main/T-1", *raised))
    run.ends(state, error={"message": "no room left"} if state == "failed" else None)

    case = run.case()

    assert case.headline.endswith(told)
    assert case.reasons[-1] == "verification_missing"
    assert person in why(case)
    later = run.does("tickets.update", ("ticket", "main/T-2", *raised))
    run.send("action.verified", later, ok=False)
    reasons = run.case().reasons
    assert reasons.index("verification_failed") < reasons.index("verification_missing")


def test_below_a_short_headline_stands_only_what_was_done(desk, begin_run):
    run = begin_run()
    action = run.does("tickets.update", *((kind * 30, "1", {}, {"a": 1}) for kind in "abcd"))
    run.send("action.verified", action, ok=False, checks=[{"name": "as asked", "ok": False}])
    run.ends()

    told = desk.get(f"/w/acme/cases/{run.case().pk}/").context["case"]

    assert told["headline"] == "A check found it wrong: “as asked” is not so"
    assert told["story"].startswith("Agent “ticket-desk” changed a on ")
    assert "not so" not in told["story"]


def test_what_is_only_an_id_is_told_in_the_words_of_the_agent(begin_run):
    run = begin_run()
    action = run.plans("cards.charge", ("card", "4421"))
    effect = {
        "target": {"type": "charge", "id": "ch_00001"},
        "before": None,
        "after": {"id": "ch_00001"},
        "summary": "charged $1,286.00 to the card ending 4421",
    }
    run.send("action.succeeded", action, attempt="1", effects=[effect])
    run.ends("failed", error={"type": "Boom", "message": "no room"})

    assert run.case().headline == (
        "Agent “ticket-desk” reports “charged $1,286.00 to the card ending 4421”,"
        " then failed (“no room”)"
    )


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            "Server error '504 Gateway Timeout' for url 'https://pay.example.com/v1'",
            "no answer in time (“504 Gateway Timeout”)",
        ),
        (
            "504 Server Error: Gateway Timeout for url: https://pay.example.com/v1",
            "no answer in time (“504 Gateway Timeout”)",
        ),
        (
            "Client error '418 No Tea' for url 'https://pay.example.com/v1'",
            "the service refused the request (“418 No Tea”)",
        ),
        ("451 4.4.1 no route", "the mail server did not answer (“451 4.4.1 no route”)"),
        ("[Errno 111] Connection refused", "nothing answered at its address (“[Errno 111]"),
        ("pool(host='x'): Read timed out. (10)", "no answer in time (“pool(host='x'): Read"),
        ("5.9.9 is not in our list", "“5.9.9 is not in our list”"),
        ("504 rooms are full", "“504 rooms are full”"),
        ("No “room” left", '“No "room" left”'),
    ],
)
def test_what_a_code_means_is_told_before_what_the_system_said(begin_run, message, told):
    run = begin_run()
    run.fails("mail.send", outcome="unknown", message=message)

    assert run.case().brief.startswith(f"Outcome unknown: {told}")


def test_of_what_is_no_mail_the_codes_of_mail_say_nothing(begin_run):
    run = begin_run()
    action = run.plans("cards.charge", ("card", "4421"))
    error = {"type": "Old", "message": "4.4.1 is too old"}
    run.send("action.failed", action, attempt="1", outcome="unknown", error=error)

    assert run.case().brief == "Outcome unknown: “4.4.1 is too old”"


def test_what_is_cut_of_a_systems_words_ends_as_its_words(begin_run):
    run = begin_run()
    run.fails("mail.send", outcome="unknown", message="no room " * 40)

    assert run.case().brief.startswith("Outcome unknown: “no room no room")
    assert run.case().brief.endswith("…”")
    assert len(run.case().brief) <= headlines.BRIEF_CHARACTERS_MAX


def test_what_is_settled_as_not_done_puts_no_money_at_stake(begin_run, acme, ada):
    versions.activate(versions.save(acme, WITH_SUMS, by=None), by=None)
    run = begin_run()
    args = {"amount": 8_900, "currency": "usd"}
    run.fails("mail.send", outcome="unknown", args=args)
    run.ends("failed")
    case = run.case()
    assert case.headline.endswith(", $89.00 at stake")
    (action,) = settling.facts_now(case).unknown()

    done = settling.settle_action(
        case, action, outcome="no_effect", evidence="line 7", by=ada, seen=case.revision
    )

    assert "did not happen" in done.headline
    assert "at stake" not in done.headline


def test_what_was_undone_puts_no_money_at_stake(begin_run, acme, ada):
    versions.activate(versions.save(acme, WITH_SUMS, by=None), by=None)
    run = begin_run()
    paid = {"args": {"amount": 8_900, "currency": "usd"}}
    run.does("mail.send", ("mail", "m-1", None, {"subject": "Invoice"}), planned=paid)
    run.ends("failed")
    assert run.case().headline.endswith(", $89.00 at stake")
    Action.objects.update(compensated=Compensated.COMPENSATED)

    told = cases.report(run.case().run, text="The seat is still wrong", by=ada)

    assert "reported" in told.reasons
    assert "at stake" not in told.headline


def test_a_call_whose_plan_never_came_is_told_as_one_without_a_name(begin_run, ada):
    run = begin_run()
    run.does("tickets.update", ("ticket", "T-1", {"priority": "low"}, {"priority": "high"}))
    run.send("action.started", "act_9", attempt="1")
    run.send("action.failed", "act_9", attempt="1", outcome="unknown", error={"message": "504"})
    run.ends("failed")

    case = run.case()

    assert case.headline.endswith("and may have run an unnamed call: its outcome is unknown")
    page = logged_in(ada).get(f"/w/acme/cases/{case.pk}/").content.decode()
    assert "whether an unnamed call happened" in " ".join(page.split())
    assert page.count("<code>unnamed call</code>") == 1, "and so its line says"


@pytest.mark.parametrize(
    ("titles", "told", "short"),
    [
        (
            ["Restore priority on ticket {}"] * 130,
            "Restore priority on 130 tickets",
            "Restore priority on 130 tickets",
        ),
        (
            ["Restore priority and updated_by on ticket {}"] * 2 + ["Close ticket {}"] * 2,
            "Restore priority and updated_by on 2 tickets, then close 2 tickets",
            "Restore priority and updated_by on 2 tickets, then close 2 tickets",
        ),
        (
            ["Refund $12.00 to ticket {}"] * 4,
            "Refund $12.00 to ticket 0, then refund $12.00 to ticket 1, then 2 steps more",
            "Refund $12.00 to ticket 0, then refund $12.00 to ticket 1, then 2 steps more",
        ),
        (
            ["Restore everything on ticket {}"] * 3 + ["Tell whoever asked for it, and wait"] * 2,
            (
                "Restore everything on 3 tickets, then tell whoever asked for it, and wait, then"
                " tell whoever asked for it, and wait"
            ),
            "Restore everything on 3 tickets, then 2 steps more",
        ),
        (
            ["Restore ticket {}"] * 3,
            "Restore ticket 0, then restore ticket 1, then restore ticket 2",
            "Restore ticket 0, then restore ticket 1, then restore ticket 2",
        ),
    ],
)
def test_a_plan_of_many_like_steps_is_called_by_how_many_they_are(titles, told, short):
    """Never by a sum, which would be read as that of all, nor where each can be named."""
    steps: Any = [
        SimpleNamespace(
            preview=SimpleNamespace(title=title.format(number)),
            step=SimpleNamespace(target_type="ticket", target_id=str(number)),
        )
        for number, title in enumerate(titles)
    ]

    drafted = Drafted(steps=steps)

    assert (previews.headline(drafted), previews.brief(drafted)) == (told, short)


def test_what_is_undone_twice_is_one_target_each_time():
    steps: Any = [
        SimpleNamespace(
            preview=SimpleNamespace(title=f"Restore priority on ticket {target}"),
            step=SimpleNamespace(target_type="ticket", target_id=target),
        )
        for target in ("A", "B", "C", "A")
    ]
    told = "Restore priority on 3 tickets, then restore priority on ticket A"
    assert previews.headline(Drafted(steps=steps)) == told
