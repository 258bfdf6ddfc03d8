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
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import pytest
from psycopg.types.multirange import Multirange
from psycopg.types.range import Range
from pydantic import (
    BaseModel,
    Field,
    PlainSerializer,
    RootModel,
    SecretBytes,
    SecretStr,
    field_serializer,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

from amends.errors import TooLarge
from amends.events import new_id, statement
from amends.protocol.canonical import canonical, digest, idempotency_key
from amends.protocol.masking import Hidden, MaskingKey, Unfit
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


class Way(BaseModel):
    name: str


class ByTransfer(Way):
    iban: str
    pin: SecretStr


class Order(BaseModel):
    way: Way
    others: list[Way] = []


class Iban(RootModel[SecretStr]):
    pass


class Pay(BaseModel):
    to: Iban
    amount: int


def paid(account):
    return Pay(to=Iban(SecretStr(account)), amount=5)


class Shown(BaseModel):
    pin: SecretStr
    way: Way
    at: list[Annotated[datetime, PlainSerializer(lambda at: at.year)]]

    @field_serializer("pin")
    def show(self, pin):
        return pin.get_secret_value()

    @field_serializer("way")
    def name(self, way):
        return {"id": way.name[0]}


class Titled(BaseModel):
    full_name: str = Field(alias="fullName")
    title: str | None = None
    inner: str = "kept to itself"


class Renamed(BaseModel):
    who: Titled = Field(alias="by")

    def model_dump(self, **how):
        kept = {"who": {"inner"}}
        return super().model_dump(by_alias=True, exclude_none=True, exclude=kept, **how)


class Terse(BaseModel):
    way: Way

    def model_dump(self, *, mode="python"):  # type: ignore[override]
        return {"way": self.way.name if mode == "json" else self.way}


@dataclass
class Slot:
    begins: datetime


@pydantic_dataclass
class Ticket:
    number: int
    cache: str = Field("", exclude=True)


class Booking(BaseModel):
    slot: Slot
    ticket: Ticket
    ways: dict[str, Way]


MODELS = {
    "a secret that is a model of its own": (paid("DE1"), {"to": "DE1", "amount": 5}),
    "serializers": (
        Shown(pin=SecretStr("1234"), way=Way(name="Mia"), at=[datetime(2026, 3, 1, tzinfo=UTC)]),
        {"pin": "1234", "way": {"id": "M"}, "at": [2026]},
    ),
    "names and omissions of its own": (
        Renamed(by=Titled(fullName="Mia")),
        {"by": {"fullName": "Mia"}},
    ),
    "a dump of its own": (Terse(way=Way(name="Mia")), {"way": "Mia"}),
    "dataclasses": (
        Booking(
            slot=Slot(datetime(2026, 3, 1, 9, tzinfo=UTC)),
            ticket=Ticket(7, "x"),
            ways={"a": Way(name="Mia")},
        ),
        {
            "slot": {"begins": "2026-03-01T09:00:00Z"},
            "ticket": {"number": 7},
            "ways": {"a": {"name": "Mia"}},
        },
    ),
}


@pytest.mark.parametrize(("model", "told"), MODELS.values(), ids=MODELS)
def test_a_model_is_told_in_its_own_words(model, told):
    """In others it would be another call after an upgrade, and be made again; and what its author
    left out would be told."""
    assert plain(model) == told


class Split(BaseModel):
    seats: list[str]

    @field_serializer("seats", when_used="json")
    def each(self, seats):
        return [one for all_of in seats for one in all_of.split()]


def test_a_list_that_json_makes_longer_is_told_whole():
    """It was cut to as many items as the model holds: two calls were one."""
    assert plain(Split(seats=["1A 1B"])) == {"seats": ["1A", "1B"]}


def test_a_secret_that_is_a_model_of_its_own_is_told_apart_and_hidden():
    """Two of them were the same stars: the second payment was answered with the first's result."""
    one, other = (plain(paid(to))["to"] for to in ("DE1", "DE2"))

    assert isinstance(one, Hidden)
    assert one != other


def test_a_model_within_a_model_is_told_as_what_it_is():
    """Pydantic tells of it what the field's type names: two transfers were one call."""
    way = ByTransfer(name="Mia", iban="DE89", pin=SecretStr("1"))
    order = Order(way=way, others=[Way(name="Ben"), way])

    told = plain({"pay": order})["pay"]

    whole = {"name": "Mia", "iban": "DE89", "pin": "1"}
    assert told == {"way": whole, "others": [{"name": "Ben"}, whole]}
    assert isinstance(told["way"]["pin"], Hidden)


@dataclass
class Payee:
    name: str


@dataclass
class Account(Payee):
    iban: str
    note: str = ""


class Named(Payee):
    """No dataclass itself."""

    def __init__(self, name, iban):
        super().__init__(name)
        self.iban = iban


@pydantic_dataclass
class Party:
    name: str


@pydantic_dataclass
class Company(Party):
    number: SecretStr
    notes: str = Field("", exclude=True)


class Transfer(BaseModel):
    to: Payee
    also: list[Payee | None] = []
    pair: tuple[Payee, Account] | None = None


class Payees(RootModel[dict[str, Payee]]):
    pass


class Fixed(BaseModel):
    """As SQLModel 0.0.24 has it: none of Pydantic's newer words arrive."""

    way: Way
    last: Way | None = None

    def model_dump(self, *, mode="python"):  # type: ignore[override]
        return super().model_dump(mode=mode, exclude_none=True)


ACCOUNT = {"name": "Mia", "iban": "DE1"}
MIA = Account("Mia", "DE1")
BEYOND = {
    "a dataclass below that of its field": (Transfer(to=MIA), "to", ACCOUNT),
    "one in a list": (Transfer(to=Payee("Mia"), also=[None, MIA]), "also", [None, ACCOUNT]),
    "one beside its own class": (
        Transfer(to=Payee("Mia"), pair=(Account("Mia", "DE1", "!"), MIA)), "pair",
        [ACCOUNT | {"note": "!"}, ACCOUNT | {"note": ""}],
    ),
    "one that is no dataclass itself": (Transfer(to=Named("Mia", "DE1")), "to", ACCOUNT),
    "by itself": ({"to": Named("Mia", "DE1")}, "to", ACCOUNT),
    "in a root model": ({"all": Payees({"a": MIA})}, "all", {"a": ACCOUNT}),
    "a model of another class, unchecked": (
        Order.model_construct(way=Titled(fullName="Mia")), "way",
        {"full_name": "Mia"},
    ),
    "a dataclass for a model": (Order.model_construct(way=MIA), "way", ACCOUNT),
    "where a model has a dump of its own": (
        Fixed(way=ByTransfer(name="Mia", iban="DE1", pin=SecretStr("1"))), "way",
        ACCOUNT | {"pin": "1"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("value", "name", "told"), BEYOND.values(), ids=BEYOND)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_what_is_of_another_class_than_its_field_is_told_whole(value, name, told):
    """Only what the declared class has was told: two transfers were one call, and the second was
    answered with the first one's result."""
    assert plain(value)[name] == told


def test_what_such_a_class_leaves_out_stays_so_and_what_it_hides_is_hidden():
    class Deal(BaseModel):
        party: Party

    told = plain(Deal(party=Company(name="Mia", number=SecretStr("7"), notes="x")))

    assert told == {"party": {"name": "Mia", "number": "7"}}
    assert isinstance(told["party"]["number"], Hidden)


class Pins(BaseModel):
    by_fare: dict[Fare, SecretStr] = {}
    by_day: dict[date, SecretStr] = {}


def test_a_secret_whose_name_is_no_text_is_told_apart_too():
    told = plain(
        Pins(by_fare={Fare.BASIC: SecretStr("a")}, by_day={date(2026, 3, 1): SecretStr("b")})
    )

    assert told == {"by_fare": {"basic": "a"}, "by_day": {"2026-03-01": "b"}}


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
