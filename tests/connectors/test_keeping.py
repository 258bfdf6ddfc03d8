"""What an outside system says, or a connector, is kept as what it means, whatever its kinds are."""

from collections import OrderedDict
from dataclasses import asdict
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

import pytest

from connectors import normalization
from connectors.contract import DiffRow, Preview


class Words(str):
    """A text as XML libraries give it."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"Words({self!r})"


class Priority(StrEnum):
    HIGH = "high"


class Pair(NamedTuple):
    first: int
    second: int


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (Words("high"), "high"),
        (Priority.HIGH, "high"),
        ({"priority": Words("high")}, {"priority": "high"}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (OrderedDict(a=Words("b")), {"a": "b"}),
        (Pair(1, 2), [1, 2]),
        (Decimal("1.50"), "1.50"),
        (Words("a\x00b"), "a\N{REPLACEMENT CHARACTER}b"),
    ],
)
def test_a_drivers_own_kinds_are_kept_as_what_they_mean(said, kept):
    assert normalization.value(said) == kept
    assert type(normalization.value(said)) is type(kept)


def test_of_two_names_that_would_be_one_none_is_lost():
    kept = normalization.value({1: "a", "1": "b"})

    assert "'a'" in kept
    assert "'b'" in kept


def test_of_what_a_connector_uses_again_a_preview_keeps_what_it_was():
    to = ["ada@example.com"]
    sent = {"to": to, "times": 1}
    row = DiffRow("to", None, [], ("ada@example.com",))
    preview = Preview(kind="mail", title="Send a mail", will_send=sent, diff=[row])

    kept = normalization.as_json(preview)
    to.append("eve@example.com")

    assert kept["will_send"] == {"to": ["ada@example.com"], "times": 1}
    assert kept["diff"] == [
        {"field": "to", "was": None, "agent_wrote": [], "now": ["ada@example.com"]}
    ]
    assert kept.keys() == asdict(preview).keys()
