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


def test_a_masked_snapshot_is_told_from_a_whole_one():
    assert masking.holds_mask(masking.masked({"rows": [{"iban": "DE89"}]}))
    assert not masking.holds_mask({"rows": [{"name": "Mia"}]})


def test_a_bottomless_value_is_refused():
    deep: dict[str, object] = {}
    for _ in range(40):
        deep = {"more": deep}

    with pytest.raises(masking.TooDeep):
        masking.masked(deep)
