"""Secrets never enter: the rule of client and ledger, and canonical JSON."""

import copy
import json
from decimal import Decimal

import pytest
import rfc8785
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from amends.protocol.masking import (
    MaskingKey,
    MaskingScan,
    Unfit,
    holds_bare,
    holds_mask,
    mask_in_place,
    masked,
    without_last4,
)
from amends.protocol.vocabulary import EventType
from config.local.places import ROOT
from ledger import desk_events
from ledger.canonical import canonical, is_plain
from ledger.models import Event

DATA = json.loads((ROOT / "tests" / "data" / "masking.json").read_text())
VECTORS, MARKED = DATA["vectors"], DATA["marked"]
JSON = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**53) + 1, 2**53 - 1)
    | some.floats(allow_nan=False, allow_infinity=False) | some.text(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
    max_leaves=20,
)  # fmt: skip


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_shared_vectors(vector):
    paths, given = vector.get("paths", []), json.dumps(vector["in"])
    assert masked(vector["in"], paths) == vector["out"]
    assert json.dumps(vector["in"]) == given  # the agent's own object is left as it was
    assert masked(vector["out"], paths) == vector["out"]
    raw = json.dumps(vector["in"], ensure_ascii=False).encode()
    assert mask_in_place(json.loads(raw), paths, MaskingScan.at(raw)) == vector["out"]
    escaped = json.dumps(vector["in"]).encode()
    assert mask_in_place(json.loads(escaped), paths, MaskingScan.at(escaped)) == vector["out"]


@pytest.mark.parametrize("vector", MARKED, ids=lambda vector: vector["name"])
def test_the_shared_vectors_of_marks(vector):
    key = MaskingKey(bytes.fromhex(DATA["key"]), shows_last4=vector.get("last4", False))
    paths = vector.get("paths", [])
    assert masked(vector["in"], paths, key) == vector["out"]
    assert masked(vector["out"], paths, key) == vector["out"]
    raw = json.dumps(vector["in"], ensure_ascii=False).encode()
    assert mask_in_place(json.loads(raw), paths, MaskingScan.at(raw, key)) == vector["out"]


def test_what_is_shown_of_a_value_is_not_compared_and_what_tells_it_apart_is():
    secret, other = {"iban": "DE89370400440532013000"}, {"iban": "GB33BUKB20201555553000"}
    quiet = MaskingKey(bytes.fromhex(DATA["key"]))
    showing = MaskingKey(bytes.fromhex(DATA["key"]), shows_last4=True)

    def compared(value, key):
        return without_last4(canonical(masked(value, (), key)))

    assert compared(secret, quiet) == compared(secret, showing)
    assert compared(secret, showing) != compared(other, showing)


def test_digits_hidden_behind_escapes_are_found():
    raw = b'{"x": "' + "".join(f"\\u00{ord(c):02x}" for c in "4242424242424242").encode() + b'"}'
    assert holds_mask(mask_in_place(json.loads(raw), (), MaskingScan.at(raw)))


def test_the_callers_own_value_is_left_alone():
    data = {"password": "hunter2", "list": [{"token": "x"}]}
    masked(data)
    assert data == {"password": "hunter2", "list": [{"token": "x"}]}


def test_thirty_two_levels_are_kept_and_one_more_is_not():
    def nested(levels):
        value: object = 1
        for _ in range(levels):
            value = {"a": value}
        return value

    assert masked(nested(32)) == nested(32)
    with pytest.raises(Unfit):
        masked(nested(33))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JSON)
def test_the_fast_encoder_writes_what_rfc_8785_says(value):
    if is_plain(value):
        assert canonical(value, plain=True) == rfc8785.dumps(value)
    assert canonical(value) == rfc8785.dumps(value)


@given(some.floats(allow_nan=False, allow_infinity=False))
def test_a_float_comes_back_from_postgresql_with_the_same_digest(number):
    """numeric writes 1e300 as an integer of 301 digits."""
    if abs(number) >= 1e16:
        assert canonical(int(Decimal(repr(number)))) == canonical(number)


@pytest.mark.django_db
def test_the_desk_masks_what_it_says_itself_and_leaves_what_it_was_given(northwind):
    told = {"args": {"api_key": "k-123", "notes": ["card 4111 1111 1111 1111", "ok"], "n": 1}}
    before = copy.deepcopy(told)

    desk_events.record(northwind, EventType.CASE_OPENED, data=told)

    said = Event.objects.get().data["args"]
    key = desk_events.masking_key(northwind)
    card = key.placeholder("card", "4111111111111111")
    assert said["api_key"] == key.placeholder("apikey", "k-123")
    assert said["notes"] == [f"card {card}", "ok"]
    assert said["n"] == 1
    assert told == before


def test_showing_the_last_four_changes_no_mark_of_what_holds_a_card():
    told = {"secret": {"number": "4242424242424242"}, "card": {"number": "4242424242424242"}}
    secret = bytes.fromhex(DATA["key"])
    quiet, showing = MaskingKey(secret), MaskingKey(secret, shows_last4=True)
    assert masked(told, ["card"], quiet) == masked(told, ["card"], showing)


def test_without_the_key_nothing_can_be_compared_and_it_shows_nowhere():
    key = MaskingKey(bytes(range(32)))

    assert holds_bare(masked({"rows": [{"iban": "DE89"}]}))
    assert not holds_bare(masked({"rows": [{"iban": "DE89"}]}, (), key))
    assert holds_bare("words ⟦masked:card:v1:00⟧")
    assert bytes(range(32)).hex() not in repr(key)


def test_a_masked_snapshot_is_told_from_a_whole_one():
    assert holds_mask(masked({"rows": [{"iban": "DE89"}]}))
    assert not holds_mask({"rows": [{"name": "Mia"}]})
