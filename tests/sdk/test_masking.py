"""Secrets never leave: the rule, told by the vectors that the ledger runs as well."""

import json
from pathlib import Path

import pytest

from amends import masking

VECTORS = json.loads(Path(__file__).parents[1].joinpath("data/masking.json").read_text("utf-8"))


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda vector: vector["name"])
def test_the_rule_masks_what_the_table_says(vector):
    given = json.dumps(vector["in"])

    out = masking.masked(vector["in"], vector.get("paths", ()))

    assert out == vector["out"]
    assert json.dumps(vector["in"]) == given  # Mia's own object is left as it was
    assert masking.masked(out, vector.get("paths", ())) == out


@pytest.mark.parametrize("vector", VECTORS["marked"], ids=lambda vector: vector["name"])
def test_marks_tell_values_apart_as_the_table_says(vector):
    key = masking.MaskingKey(bytes.fromhex(VECTORS["key"]), shows_last4=vector.get("last4", False))
    paths = vector.get("paths", ())

    out = masking.masked(vector["in"], paths, key)

    assert out == vector["out"]
    assert masking.masked(out, paths, key) == out


def test_without_the_key_nothing_can_be_compared_and_it_shows_nowhere():
    key = masking.MaskingKey(bytes.fromhex(VECTORS["key"]))

    assert masking.holds_bare(masking.masked({"rows": [{"iban": "DE89"}]}))
    assert not masking.holds_bare(masking.masked({"rows": [{"iban": "DE89"}]}, (), key))
    assert masking.holds_bare("words ⟦masked:card:v1:00⟧")
    assert VECTORS["key"] not in repr(key)


def test_a_masked_snapshot_is_told_from_a_whole_one():
    assert masking.holds_mask(masking.masked({"rows": [{"iban": "DE89"}]}))
    assert not masking.holds_mask({"rows": [{"name": "Mia"}]})


def test_a_bottomless_value_is_refused():
    deep: dict[str, object] = {}
    for _ in range(40):
        deep = {"more": deep}

    with pytest.raises(masking.TooDeep):
        masking.masked(deep)
