"""What agents hold in their hands comes to the desk as JSON that can be stored and hashed."""

import os
import subprocess
import sys
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from psycopg.types.multirange import Multirange
from psycopg.types.range import Range
from pydantic import (
    BaseModel,
    SecretBytes,
    SecretStr,
)

from amends.errors import TooLarge
from amends.events import new_id, statement
from amends.protocol.canonical import canonical, digest, idempotency_key
from amends.protocol.masking import MaskingKey, Unfit
from amends.values import as_targets, plain


class Fare(Enum):
    BASIC = "basic"


@dataclass
class Seat:
    row: int
    fare: Fare


@pytest.mark.parametrize(
    ("value", "json"),
    [
        (Seat(12, Fare.BASIC), {"row": 12, "fare": "basic"}),
        (Decimal("12.50"), "12.50"),
        (date(2026, 11, 21), "2026-11-21"),
        (datetime(2026, 11, 21, 10, 2, tzinfo=UTC), "2026-11-21T10:02:00+00:00"),
        (time(9, 30, tzinfo=UTC), "09:30:00+00:00"),
        (time(9, 30, tzinfo=ZoneInfo("Asia/Tokyo")), "09:30:00[Asia/Tokyo]"),
        (float("nan"), "nan"),
        (2**53, 2**53),
        (-(10**400), -(10**400)),
        ((1, {2}), [1, [2]]),
        (b"\x00\xff", "AP8="),
        (memoryview(b"\x00\xff"), "AP8="),
        (Range(1, 10), "[1,10)"),
        (Range(None, date(2026, 11, 21)), "(,2026-11-21)"),
        (Range("a,b", 'c"'), '["a,b","c\\"")'),
        (Range(empty=True), "empty"),
        (Multirange([Range(1, 2), Range(5, None)]), "{[1,2),[5,)}"),
        ("a\x00b\ud800", "a\ufffdb\ufffd"),
        ({1: True}, {"1": True}),
    ],
)
def test_everything_becomes_json(value, json):
    assert plain(value) == json
    canonical(plain(value))


def test_an_integer_without_end_is_refused_in_words():
    with pytest.raises(TooLarge, match="1000 digits"):
        plain({"n": 10**1000})


@pytest.mark.parametrize("number", [2**53 + 1, 2**60, 10**19 + 1, -(2**70), 10**400])
def test_no_other_number_and_no_text_has_the_digest_of_a_large_integer(number):
    others = [number + 1, number - 1, str(number)]
    if abs(number) < 1e300:
        others.append(float(number))

    assert digest({"n": number}) not in [digest({"n": other}) for other in others]
    assert canonical([number]) == f"[{number}]".encode()


def test_a_double_keeps_the_digest_that_it_had_even_where_it_comes_back_as_an_integer():
    assert (
        canonical({"b": 1e300, "a": [10**300, 1e16]})
        == b'{"a":[1e+300,10000000000000000],"b":1e+300}'
    )


def test_a_snapshot_tells_zero_from_minus_zero_which_a_json_number_does_not():
    told = statement(
        "action.succeeded",
        run="r",
        mask=(),
        data={"result": -0.0, "effects": [{"before": {"x": -0.0, "list": [0.0, -0.0]}}]},
    )

    assert told.data["effects"] == [{"before": {"x": "-0.0", "list": [0.0, "-0.0"]}}]
    assert told.data["result"] == 0


def test_the_key_is_the_same_for_the_same_operation_and_no_other():
    one: dict[str, Any] = {"workspace": "northwind", "run": "r", "tool": "book", "op": "book",
           "targets": [{"type": "seat", "id": "12A"}]}  # fmt: skip

    same = idempotency_key(**one)

    assert same == idempotency_key(**one)
    assert same == "sha256:" + same.removeprefix("sha256:").lower()
    changes: list[dict[str, Any]] = [
        {"run": "s"},
        {"op": "upgrade"},
        {"targets": []},
        {"workspace": "globex"},
    ]
    assert all(idempotency_key(**(one | change)) != same for change in changes)


def test_ids_are_in_order_of_time_and_of_version_7():
    ids = [new_id() for _ in range(3)]

    assert {uuid.UUID(one).version for one in ids} == {7}
    assert ids[0][:8] <= ids[-1][:8]


def test_the_span_that_the_agent_runs_in_is_named(desk, small_desk, monkeypatch):
    context = SimpleNamespace(is_valid=True, trace_id=0xABC, span_id=0xDEF)
    traced = ModuleType("opentelemetry.trace")
    span = SimpleNamespace(get_span_context=lambda: context)
    traced.__dict__["get_current_span"] = lambda: span
    monkeypatch.setitem(sys.modules, "opentelemetry", ModuleType("opentelemetry"))
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", traced)

    with desk.run("Move it"):
        pass
    desk.flush()

    assert small_desk.journal()[0]["trace"] == {
        "trace_id": f"{0xABC:032x}",
        "span_id": f"{0xDEF:016x}",
    }


class Payout(BaseModel):
    to: SecretStr
    parts: list[SecretBytes]
    amount: int


def test_what_hides_its_value_is_told_apart_and_never_told():
    """Pydantic writes each as the same stars: a transfer to one account was approved, and could be
    made to another."""
    key = MaskingKey(b"k" * 32)

    def asked(account, part=b"x"):
        args = {"payout": Payout(to=account, parts=[part], amount=5), "pin": SecretStr(account)}
        data = {"args": plain(args)}
        return statement("action.planned", run="r", data=data, mask=(), masking_key=key)

    said = [canonical(asked(*one).event["data"]) for one in
            (("DE89370400440532013000",), ("DE89370400440532013000",), ("GB33BUKB2020",),
             ("DE89370400440532013000", b"y"))]  # fmt: skip
    assert said[0] == said[1]
    assert len(set(said)) == 3
    assert b"***" not in said[0]
    assert b"DE89" not in said[0]
    assert "⟦masked:secret:v1:".encode() in said[0]
    bare = statement("action.planned", run="r", data={"to": plain(SecretStr("a"))}, mask=())
    assert bare.event["data"] == {"to": "⟦masked:secret⟧"}
    with pytest.raises(ValueError, match="cannot be hidden"):
        as_targets(("account", SecretStr("DE89")))


TOLD_OF_A_SET = """
from pydantic import BaseModel
from amends.values import plain
class Order(BaseModel):
    seats: set[str]
seats = {"1A", "2B", "3C", "4D"}
print(plain({"seats": seats, "order": Order(seats=seats)}))
"""


def test_a_set_is_the_same_in_each_process():
    """A process that comes back asks for the same call; each has an order of its own for texts."""
    told = {
        subprocess.run(
            [sys.executable, "-c", TOLD_OF_A_SET], env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in range(3)
    }  # fmt: skip
    assert len(told) == 1


def test_two_names_that_are_written_alike_are_not_told_as_one():
    with pytest.raises(Unfit, match="written alike"):
        plain({1: "eve", "1": "ben"})


class Payment:
    amount = 5


@pytest.mark.parametrize(
    "value", [Payment(), [{"pay": Payment()}], plain, (one for one in "ab"), object()]
)
def test_what_tells_nothing_of_itself_is_refused_in_words(value):
    """Its text was where it lies in memory: that was approved, whatever it held by then."""
    with pytest.raises(Unfit, match="tells nothing of itself: give what it holds"):
        plain(value)


@pytest.mark.parametrize(
    "value",
    [
        {SecretStr("a"): 1},
        {Payment(): 1},
        SimpleNamespace(pin=SecretStr("a")),
        SimpleNamespace(row=[Payment()]),
    ],
)
def test_what_hides_a_part_of_itself_is_refused_in_words(value):
    with pytest.raises(Unfit, match=r"would be told alike|tells nothing of itself"):
        plain(value)


class Sheet:
    """A table whose text shows its ends, as those of Polars and Arrow do."""

    def __init__(self, *cells):
        self.cells = cells

    def __str__(self):
        return f"[{self.cells[0]} ... {self.cells[-1]}]"

    def __dataframe__(self):
        return self.cells


class Tensor(Sheet):
    def tolist(self):
        return list(self.cells)


def test_a_table_is_told_by_what_it_holds_or_refused():
    """Two whose ends are alike had one text, and were one call."""
    assert plain(Tensor(1, 2, 3)) == [1, 2, 3]
    with pytest.raises(Unfit, match="leaves out and rounds"):
        plain({"rows": Sheet(1, 2, 3)})


class Printed(Sheet):
    """Prints as NumPy does: in part, unless it is asked for all."""

    shown = 2

    def __array__(self):
        return self

    def __str__(self):
        return str(self.cells) if len(self.cells) <= self.shown else super().__str__()


@contextmanager
def printoptions(*, threshold, **_):
    before, Printed.shown = Printed.shown, threshold
    yield
    Printed.shown = before


def test_an_array_of_numpys_keeps_its_text_and_has_all_of_it(monkeypatch):
    numpy = SimpleNamespace(ndarray=Printed, generic=Printed, printoptions=printoptions)
    monkeypatch.setitem(sys.modules, "numpy", numpy)

    told = plain([Printed(1, 2), Printed(1, 2, 3)])

    assert told == ["(1, 2)", "(1, 2, 3)"]
