"""A Pydantic model comes to the desk in its own words, and what stands in it as what it is."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import pytest
from pydantic import (
    BaseModel,
    Field,
    PlainSerializer,
    RootModel,
    SecretStr,
    field_serializer,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypeAliasType, TypedDict  # what Pydantic takes before Python 3.12

from amends.protocol.masking import Hidden, Unfit
from amends.values import plain


class Fare(Enum):
    BASIC = "basic"


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


class AccountDict(TypedDict):
    name: str


class Person(NamedTuple):
    name: str


class PersonAt(NamedTuple):
    name: str
    iban: str


class Remitted(Person):
    iban: str


class Sent(BaseModel):
    by_dict: AccountDict | None = None
    by_tuple: Person | None = None
    all_of: list[AccountDict] = []


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_a_typed_dict_or_a_named_tuple_with_more_than_is_declared_is_told_whole():
    """Only the declared names were told: transfers to two accounts were one call."""
    held = {"name": "Mia", "iban": "DE1"}
    sent = Sent.model_construct(by_dict=held, by_tuple=PersonAt("Mia", "DE1"), all_of=[held])

    assert plain(sent) == {"by_dict": held, "by_tuple": ["Mia", "DE1"], "all_of": [held]}


Name = TypeVar("Name")


class NamedBy(TypedDict, Generic[Name]):
    name: Name


class Placed(BaseModel):
    place: str = "Bern"


class PlacedFor(Placed):
    payer: AccountDict


AliasedDict = TypeAliasType("AliasedDict", AccountDict)


class Kept(BaseModel):
    at: Placed | None = None
    like: Any = None
    alias: AliasedDict | None = None
    generic: NamedBy[str] | None = None


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("name", ["at", "like", "alias", "generic"])
def test_so_it_is_wherever_its_type_is_named(name):
    """In a model of another class than its place's, behind an alias and of a generic typed dict the
    rest was left out: transfers to two accounts were one call.
    """
    held = {"name": "Mia", "iban": "DE1"}
    is_within = name in {"at", "like"}
    kept = Kept.model_construct()
    setattr(kept, name, PlacedFor.model_construct(payer=held) if is_within else held)

    assert plain(kept)[name] == ({"place": "Bern", "payer": held} if is_within else held)


class Booked(TypedDict):
    to: Annotated[AccountDict, Field(title="whom it is paid to")]


class Leaving(BaseModel):
    """It leaves out of itself what its author says; a call of it is the call that it was."""

    meta: dict[str, Any] = {}
    payer: AccountDict | None = None
    days: tuple[int, ...] = ()

    def model_dump(self, **how: Any) -> dict[str, Any]:
        told = super().model_dump(exclude={"meta": {"token"}, "payer": {"name"}}, **how)
        return told | {"days": list(told["days"])[:1]}


def test_what_a_models_author_leaves_out_stays_out():
    said = Leaving(meta={"token": "s3cr3t", "for": "Mia"}, payer={"name": "Mia"}, days=(1, 2))

    assert plain(said) == {"meta": {"for": "Mia"}, "payer": {}, "days": [1]}


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_a_typed_dict_within_another_one_is_told_whole():
    class Order(BaseModel):
        booked: list[Booked]

    held = {"to": {"name": "Mia", "iban": "DE1"}}
    assert plain(Order.model_construct(booked=[held])) == {"booked": [held]}


def test_a_named_tuple_that_holds_more_than_its_items_is_refused_in_words():
    more = Remitted("Mia")
    more.iban = "DE1"

    for value in (more, Sent.model_construct(by_tuple=more)):
        with pytest.raises(Unfit, match="a Remitted holds more than its items"):
            plain(value)
    assert plain(Remitted("Mia")) == ["Mia"]


def test_models_within_models_are_each_looked_at_once():
    class Node(BaseModel):
        child: Any = None

    node = None
    for _ in range(30):
        node = Node(child=node)

    assert str(plain(node)).count("child") == 30


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
