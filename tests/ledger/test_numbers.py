"""Numbers of any size reach the ledger and come back as they were told, or are refused in words."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from amends.protocol import canonical as clients
from amends.protocol.canonical import double_of
from ledger.canonical import canonical
from ledger.models import Effect, Event
from ledger.proofs import is_as_digested
from tests.ledger.conftest import event, post

WIDE = some.integers(10**15, 10**30) | some.integers(-(10**40), -(10**15))


@given(WIDE)
@example(2**53)
@example(2**53 + 1)
@example(10**20)
@example(10**21)
def test_desk_and_client_spell_an_integer_alike_and_no_two_alike(number):
    spelling = canonical({"n": number})

    assert spelling == clients.canonical({"n": number})
    assert spelling != canonical({"n": str(number)})
    assert spelling not in (canonical({"n": number + 1}), canonical({"n": number - 1}))
    if (double := double_of(number)) is not None:
        assert spelling == canonical({"n": double})
    else:
        assert spelling == b'{"n":%d}' % number


def test_names_beside_a_wide_integer_are_sorted_as_rfc_8785_sorts_them():
    """U+10000 is a pair of surrogates in UTF-16, and so comes before U+FFFF."""
    value = {"\uffff": 2**60 + 1, "\U00010000": [1.0, "\u2028\n"], "a": {}}

    written = canonical(value)

    assert written == clients.canonical(value)
    assert list(json.loads(written)) == ["a", "\U00010000", "\uffff"]


@pytest.mark.django_db(transaction=True)
def test_numbers_of_every_size_come_back_as_they_were_told_and_still_prove(call, token):
    told = {
        "id": 2**60 + 1,
        "huge": -(10**400) - 7,
        "double": 1e300,
        "seventeen": 0.1 + 0.2,
        "small": 5e-324,
        "text": str(2**60 + 1),
        "one": 1.0,
    }
    done = event(
        "action.succeeded", action="a", data={"target": {"type": "t", "id": "1"}, "after": told}
    )

    (answer,) = call(post([event("run.started"), done]))

    assert [one["status"] for one in answer.json()["results"]] == ["accepted", "accepted"]
    after = Effect.objects.get().after
    assert canonical(after) == canonical(told)
    assert after == told | {"double": 10**300}  # the same number, as PostgreSQL writes it
    assert type(after["id"]) is int
    assert type(after["text"]) is str
    for one in Event.objects.all():
        assert is_as_digested(one)


@pytest.mark.django_db(transaction=True)
def test_the_same_event_with_the_number_as_a_text_is_another_event(call, token):
    number = event("run.started", data={"labels": {"order": 2**60 + 1}})
    text = number | {"data": {"labels": {"order": str(2**60 + 1)}}}

    first, second = call(post([number]), post([text]))

    assert first.json()["results"][0]["status"] == "accepted"
    assert second.json()["results"][0]["problem"]["type"] == "urn:amends:problem:conflict"
