"""A customer's own licence service undoes what only it can undo."""

import time
from dataclasses import replace
from datetime import timedelta
from functools import partial

import httpx
import pytest
from django.utils import timezone

from connectors import calls, connections
from connectors.builtin import webhook
from connectors.contract import CannotRead, Money, Refused, Target
from workspaces import clock


@pytest.fixture
def mood(licences):
    base = licences.at["url"].removesuffix("/amends")

    def change(word):
        httpx.post(f"{base}/mood", content=word).raise_for_status()

    change("well")
    yield change
    change("well")


@pytest.fixture
def licence(licences, request):
    """A licence that no other test has touched."""
    return Target("licence", f"L-{request.node.name}")


def release(connection, target, key):
    return calls.apply(connection, "release_licence", {}, target, key=key)


def probe(connection, target, key):
    return calls.probe(connection, "release_licence", {}, target, key=key).found


def released(licences, name):
    return [one for one in licences.journal.entries() if one["released"] == name]


def test_a_licence_is_released_once_and_read_back(licences, licence_connection, mood):
    target = Target("licence", "L-7")

    seen = calls.observe(licence_connection, "release_licence", {}, target, key="w-0")
    first = release(licence_connection, target, "w-1")
    again = release(licence_connection, target, "w-1")
    read_back = calls.verify(licence_connection, "release_licence", {}, target, key="w-1")

    assert seen.state == {"holder": "mia", "seat": 7}
    assert (first.outcome, again.outcome) == ("applied", "applied")
    assert read_back.ok
    assert len(released(licences, "L-7")) == 1


def test_a_worker_whose_clock_is_off_is_believed_by_the_service(
    licence_connection, mood, licence, monkeypatch
):
    """The service refuses what was not signed lately: nothing was undone, and people were asked."""
    right = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() + timedelta(hours=1))
    monkeypatch.setattr(clock, "_asked", {})

    assert release(licence_connection, licence, "w-astray").outcome == "applied"


def test_a_licence_that_is_gone_already_is_a_success(licence_connection, mood, licence):
    assert release(licence_connection, licence, "w-gone").outcome == "applied"


def test_a_service_that_breaks_after_the_effect_is_asked_again(licences, licence_connection, mood):
    target = Target("licence", "L-8")
    mood("dies-after")
    answer = release(licence_connection, target, "w-8")
    mood("well")

    assert answer.outcome == "unknown"
    assert probe(licence_connection, target, "w-8") == "present"
    assert len(released(licences, "L-8")) == 1


def test_a_key_that_never_arrived_is_proven_absent(licence_connection, mood, licence):
    assert probe(licence_connection, licence, "w-never") == "absent"


def test_no_effect_is_believed_only_from_the_service_itself(licence_connection, mood, licence):
    mood("locked")

    answer = release(licence_connection, licence, "w-locked")

    assert answer.outcome == "no_effect"
    assert answer.detail == "the licence is locked by billing"


def test_a_server_that_broke_is_not_believed_that_nothing_happened(
    licences, licence_connection, mood, licence
):
    base = licences.at["url"].removesuffix("/amends")
    httpx.post(f"{base}/hold", json={"id": licence.id, "holder": "Mia Li"}).raise_for_status()
    mood("lies")

    answer = release(licence_connection, licence, "w-lies")

    assert answer.outcome == "unknown"
    assert len(released(licences, licence.id)) == 1


def test_a_service_that_does_not_know_either_proves_no_absence(licence_connection, mood, licence):
    mood("at-a-loss")

    assert probe(licence_connection, licence, "w-lost") == "cannot_tell"


@pytest.mark.parametrize("word", ["garbled", "huge"])
def test_any_other_answer_is_unknown(licence_connection, mood, licence, word):
    mood(word)

    assert release(licence_connection, licence, f"w-{word}").outcome == "unknown"


def test_an_answer_that_drips_in_is_cut_at_the_limit(
    licence_connection, mood, licence, monkeypatch
):
    declared = webhook._operation
    monkeypatch.setattr(
        webhook, "_operation", lambda *given: replace(declared(*given), limit_seconds=2.0)
    )
    mood("slow")
    began = time.monotonic()

    answer = release(licence_connection, licence, "w-slow")

    assert answer.outcome == "unknown"
    assert time.monotonic() - began < 15


def test_what_is_no_signing_secret_is_refused_before_any_call_needs_it(licence_connection, ada):
    with pytest.raises(connections.BadSettings, match="has to be a whsec_… secret"):
        connections.set_secret(licence_connection, "compensate", {"secret": "hello"}, by=ada)


def test_a_wrong_signing_secret_is_refused(licence_connection, licence, ada, mood):
    wrong = {"secret": "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}
    for purpose in ("observe", "compensate"):
        connections.set_secret(licence_connection, purpose, wrong, by=ada)

    assert release(licence_connection, licence, "w-sig").outcome == "no_effect"
    with pytest.raises(CannotRead, match="signature"):
        calls.observe(licence_connection, "release_licence", {}, licence, key="w-sig")


def test_arguments_that_were_not_declared_are_refused(licence_connection, licence):
    answer = calls.apply(
        licence_connection, "release_licence", {"seat": "seven"}, licence, key="w-args"
    )

    assert answer.outcome == "no_effect"
    assert "seat" in answer.detail


def test_a_service_that_is_down_is_no_effect(licence_connection, licence):
    licence_connection.settings["url"] = "http://127.0.0.1:9/amends"

    answer = release(licence_connection, licence, "w-down")

    assert answer.outcome == "no_effect"


@pytest.mark.parametrize(
    ("named", "args", "money"),
    [
        ("cur", {"amount": 9500, "cur": "eur"}, Money(9500, "EUR")),
        ("EUR", {"amount": 9500}, Money(9500, "EUR")),
        ("cur", {"amount": 9500, "cur": "USDT"}, None),
        ("cur", {"amount": 9500}, None),
        ("cur", {"amount": True, "cur": "EUR"}, None),
    ],
)
def test_money_is_a_whole_number_of_a_currency_and_nothing_else(
    licence_connection, licence, named, args, money
):
    declared = licence_connection.settings["operations"]["release_licence"]
    declared |= {"title": "Refund {money}", "amount": "amount", "currency": named, "args": None}

    shown = calls.preview(licence_connection, "release_licence", args, licence, key="w-money")

    assert shown.money == money
    assert shown.title == f"Refund {money or 'what was paid'}"


def test_a_snapshot_with_a_masked_value_is_not_put_back_as_it_reads(licence_connection, licence):
    declared = licence_connection.settings["operations"]["release_licence"]
    declared["leaves"] = "before"
    before = {"holder": "mia", "token": "⟦masked:secret⟧"}

    with pytest.raises(Refused, match="holds a masked value"):
        calls.preview(licence_connection, "release_licence", {}, licence, before=before)


@pytest.mark.parametrize("leaves", ["gone", {"state": "refunded"}, None])
def test_a_masked_value_is_sent_to_no_service_that_might_put_it_back(
    licence_connection, licence, leaves
):
    declared = licence_connection.settings["operations"]["release_licence"]
    declared["leaves"] = leaves
    before = {"holder": "mia", "of": [{"token": "⟦masked:secret⟧"}]}
    ask = partial(calls.preview, licence_connection, "release_licence", {}, licence)

    shown = ask(before=before, expected={"holder": "tom"})

    assert "before" not in shown.will_send
    assert shown.will_send["expected"] == {"holder": "tom"}
    assert shown.will_send["reason"] == "(the plan’s reason)", "it is sent, and not empty"
    assert ("Not sent", webhook.NOT_SENT) in shown.rows
    assert ask(before={"a": 1}).will_send["before"] == {"a": 1}


@pytest.mark.parametrize(
    ("before", "target", "said"),
    [
        ("Refund it to card ending ", "card ending 0077", "0077"),
        ("Refund it to card ", "card 4421", "4421"),
        ("Release ", "licence seat-1", "licence seat-1"),
        ("Void the card ", "card", "card"),
    ],
)
def test_a_title_does_not_say_the_same_words_twice(before, target, said):
    assert webhook._after(before, target) == said
