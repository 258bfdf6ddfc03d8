"""What masking tells of its own values; the rule's vectors are run where events come in."""

import pytest

from amends.protocol import masking

KEY = masking.MaskingKey(bytes(range(32)))


def test_without_the_key_nothing_can_be_compared_and_it_shows_nowhere():
    assert masking.holds_bare(masking.masked({"rows": [{"iban": "DE89"}]}))
    assert not masking.holds_bare(masking.masked({"rows": [{"iban": "DE89"}]}, (), KEY))
    assert masking.holds_bare("words ⟦masked:card:v1:00⟧")
    assert bytes(range(32)).hex() not in repr(KEY)


def test_a_masked_snapshot_is_told_from_a_whole_one():
    assert masking.holds_mask(masking.masked({"rows": [{"iban": "DE89"}]}))
    assert not masking.holds_mask({"rows": [{"name": "Mia"}]})


def test_a_bottomless_value_is_refused():
    deep: dict[str, object] = {}
    for _ in range(40):
        deep = {"more": deep}

    with pytest.raises(masking.Unfit):
        masking.masked(deep)
