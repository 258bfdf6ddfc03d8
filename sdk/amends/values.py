"""What an agent holds in its hands, as JSON that every part of the desk stores and hashes alike."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import enum
import functools
import hashlib
import json
import math
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, time
from typing import Any

from amends import errors
from amends.errors import TooLarge
from amends.protocol.canonical import INTEGER_DIGITS_MAX, INTEGER_END, canonical
from amends.protocol.masking import (
    DEPTH_MAX,
    Hidden,
    Unfit,
    without_last4,
)

HIDES = "get_secret_value"
"""What Pydantic's secrets have, and nothing else."""
STARS = "**********"
ALL_STARS = re.compile(r"(?<!\*)\*{10}(?!\*)")  # and not those of a number that is masked
SERIALIZERS = frozenset({"PlainSerializer", "WrapSerializer"})

_QUOTED_IN_RANGES = re.compile(r'[\s"\\,()\[\]]')
# PostgreSQL stores no NUL, and UTF-8 has no lone surrogates.
_NOT_TEXT = re.compile("[\x00\ud800-\udfff]")
# The text of what has none, such as `<Payment object at 0x7f0be394d2c0>`, and of what holds
# a secret or a long array.
_TELLS_LESS = re.compile(
    r"<.* at 0x[0-9a-fA-F]+.*>|Secret\w*\(b?'\*+'\)|array\([^'\"]*\.\.\.", re.DOTALL
)
# What is of many values, and how each is written out where they are NumPy's.
HOLDS_MANY = ("__array__", "__dataframe__", "__arrow_c_stream__", "toarray")
IN_FULL = {"threshold": sys.maxsize, "floatmode": "unique"}
IN_PART = "the text of a {} leaves out and rounds: give what it holds, as lists or a dict"
NOTHING = "a {} tells nothing of itself: give what it holds, as a dict or a dataclass"


class Unset(enum.Enum):
    """Nothing was said; None says that the thing was not there."""

    UNSET = enum.auto()


UNSET = Unset.UNSET


def plain(value: Any) -> Any:
    """The value as plain JSON; raises TooLarge for an integer of more than 1,000 digits, and Unfit
    for what tells nothing of itself: whoever approved it would not know what.

    Numbers stay numbers. What JSON does not know (a date, a Decimal, NaN) becomes its text, which
    PostgreSQL reads as the same value where the column is of that kind. What hides its value
    (Pydantic's SecretStr, whose text is always the same) becomes Hidden, and is masked by a mark.
    """
    if isinstance(value, Hidden):
        return value
    if callable(reveal := getattr(value, HIDES, None)) and not isinstance(value, type):
        return _hidden(reveal())
    if isinstance(value, enum.Enum):
        value = value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = _parts(value)
    if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):
        # Pydantic's models, which most frameworks hand to tools
        return _whole(_in_its_words(dump), value, frozenset([type(value)]))
    if isinstance(value, Mapping):
        named = {_name(name): plain(item) for name, item in value.items()}
        if len(named) < len(value):
            raise Unfit("two of its names are written alike, and only one would be told")
        return named
    if isinstance(value, list | tuple | set | frozenset):
        _must_be_its_items(value)
        told = [plain(item) for item in value]
        return _in_order(told) if isinstance(value, set | frozenset) else told
    return value if value is None or isinstance(value, bool) else _scalar(value)


def _must_be_its_items(value: Any) -> None:
    """Unfit for a named tuple that holds more than its items, as one of a subclass may."""
    kept, held = functools.cached_property, getattr(value, "__dict__", {})
    more = [one for one in held if not isinstance(getattr(type(value), one, None), kept)]
    if hasattr(value, "_fields") and any(one[0] != "_" for one in more):
        raise Unfit(f"a {type(value).__name__} holds more than its items: give it as a dict")


def _in_order(items: list[Any]) -> list[Any]:
    """What a set holds: each process has an order of its own, and the call is the same."""
    return sorted(items, key=canonical)


def _hidden(secret: Any) -> Hidden:
    known = plain(secret)
    return Hidden(known if isinstance(known, str) else canonical(known).decode())


def _name(name: Any) -> str:
    """A name of a mapping, as it is written: what has none would be told by where it lies."""
    if hasattr(name, HIDES):
        raise Unfit("a name in it is hidden, and two of them would be told alike")
    told = str(name)
    if not isinstance(name, str) and _TELLS_LESS.search(told):
        raise Unfit(NOTHING.format(type(name).__name__))
    return _text(told)


def _parts(value: Any) -> dict[str, Any]:
    """What a dataclass holds by name; a subclass that is none itself may hold more than fields."""
    found = {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
    is_its_own, kept = "__dataclass_fields__" in vars(type(value)), functools.cached_property
    for name, one in () if is_its_own else getattr(value, "__dict__", {}).items():
        if name[0] != "_" and not isinstance(getattr(type(value), name, None), kept):
            found.setdefault(name, one)
    return found


def _in_its_words(dump: Callable[..., Any]) -> Any:
    """A model's JSON as it tells itself, with the secrets in it."""
    told, held = plain(_dumped(dump, mode="json")), None
    with contextlib.suppress(TypeError):  # a set of models, which Python's own dump cannot make
        held = _dumped(dump)
    return _with_hidden(told, held)


def _dumped(dump: Callable[..., Any], **how: Any) -> Any:
    """What a model dumps, and each model within it as what it is, where Pydantic can do so."""
    try:
        return dump(polymorphic_serialization=True, **how)
    except TypeError:  # of Pydantic before 2.13, or a method of the model's own
        return dump(**how)


def _with_hidden(told: Any, held: Any) -> Any:
    """A model's JSON, where a secret is only stars, with what the model holds at these places."""
    if hasattr(held, HIDES):
        return plain(held)
    if isinstance(told, dict):
        return {name: _with_hidden(told[name], one) for name, one in _by_name(told, held)}
    if isinstance(told, list) and isinstance(held, list | tuple | set | frozenset):
        if len(told) == len(held):
            found = list(map(_with_hidden, told, held))
            return _in_order(found) if isinstance(held, set | frozenset) else found
        held = None  # in words of the model's own
    if isinstance(told, list):
        return [_with_hidden(one, None) for one in told]
    if told == STARS and not isinstance(held, str):
        raise Unfit("a secret in it is told as stars, and two of them would be alike")
    return told


def _by_name(told: dict[str, Any], held: Any) -> list[tuple[str, Any]]:
    """What is held under each name that is told: JSON may write a name otherwise than its text."""
    held = held if isinstance(held, Mapping) else {}
    by_name = {_text(str(name)): item for name, item in held.items()}
    if len(told) == len(held) and by_name.keys() != told.keys():
        return list(zip(told, held.values(), strict=True))
    return [(name, by_name.get(name)) for name in told]


def _whole(told: Any, value: Any, declared: frozenset[type]) -> Any:
    """What is told of a value, and what it holds beyond the classes that its place declares: a
    dataclass of another class is told by these, and before Pydantic 2.13 so is a model.
    """
    kind: Any = type(value)
    if getattr(kind, "__pydantic_root_model__", False):
        classes = _declared(kind)["root"]
        return told if classes is None else _whole(told, value.root, classes)
    if isinstance(told, dict) and _fields(kind):
        above = [one for one in kind.__mro__[1:] if one in declared]
        is_exact = kind in declared and not any(map(_fields, above))
        more = {} if is_exact else _beyond(told, value, above)
        if not isinstance(more, dict):
            return more
        for name, classes in _declared(kind).items():
            at, item = _written(kind, name) & told.keys(), getattr(value, name, None)
            if classes is not None:
                named = classes if is_exact else _shapes(classes)
                told |= {written: _whole(told[written], item, named) for written in at}
        return told | more
    if isinstance(told, dict) and isinstance(value, Mapping):
        return _whole_mapping(told, value, declared)
    are_items = isinstance(told, list) and isinstance(value, list | tuple | set | frozenset)
    if are_items and isinstance(value, tuple):
        _must_be_its_items(value)
        if any(len(told) == len(getattr(one, "_fields", ())) for one in _shapes(declared)):
            told = [*told, *map(plain, value[len(told) :])]
    if are_items and len(told) == len(value):
        found = [_whole(one, item, declared) for one, item in zip(told, value, strict=True)]
        return _in_order(found) if isinstance(value, set | frozenset) else found
    return told


def _whole_mapping(
    told: dict[str, Any], value: Mapping[Any, Any], declared: frozenset[type]
) -> dict[str, Any]:
    """The same of a mapping: a typed dict is told by the names that its place declares. What else
    is not told a model leaves out in words of its own, a secret perhaps.
    """
    if len(told) == len(value):
        items = zip(told.items(), value.values(), strict=True)
        return {name: _whole(one, item, declared) for (name, one), item in items}
    names = [one.__annotations__ for one in _shapes(declared) if issubclass(one, dict)]
    if not names:
        return told
    held = {_text(str(name)): item for name, item in value.items()}
    known = set(told).union(*names)
    more = {name: plain(one) for name, one in held.items() if name not in known and one is not None}
    return {name: _whole(one, held.get(name), declared) for name, one in told.items()} | more


def _beyond(told: dict[str, Any], value: Any, above: list[type]) -> Any:
    """What it holds beyond what is told and what a class above it that its place declares has; not
    what is at its default, which a model may leave out. Each part is looked at once.
    """
    kind: Any = type(value)
    serializer = vars(kind).get("__pydantic_serializer__")
    dump = functools.partial(serializer.to_python, value) if serializer else None
    own = _in_its_words(dump) if dump else _parts(value)
    if not isinstance(own, dict):
        return own
    known = {written for one in above for name in _fields(one) for written in _written(one, name)}
    parts = {at: one for one in _fields(kind).items() for at in _written(kind, one[0])}
    more = {}
    for written, one in own.items():
        name, part = parts.get(written, (written, None))
        item, is_told = getattr(value, name, None), _written(kind, name) & told.keys()
        if not (is_told or written in known) and item != getattr(part, "default", UNSET):
            classes = _declared(kind).get(name, frozenset()) if dump else None
            more[written] = plain(one) if classes is None else _whole(one, item, _shapes(classes))
    return more


def _fields(kind: type) -> Mapping[str, Any]:
    """By name, of a model or a dataclass; none of anything else."""
    found = getattr(kind, "__pydantic_fields__", None) or getattr(kind, "model_fields", None)
    if isinstance(found, Mapping):
        return found
    is_dataclass = dataclasses.is_dataclass(kind)
    return {part.name: part for part in dataclasses.fields(kind)} if is_dataclass else {}


def _written(kind: type, name: str) -> set[str]:
    """The names under which a field may be told."""
    part = _fields(kind).get(name)
    others = (getattr(part, at, None) for at in ("alias", "serialization_alias"))
    return {name, *(other for other in others if isinstance(other, str))}


@functools.lru_cache(maxsize=1_000)
def _declared(kind: type) -> dict[str, frozenset[type] | None]:
    """The classes that each field's type names; None for what its author tells in other words."""
    words = getattr(kind, "__pydantic_decorators__", None)
    if words and any(one.info.mode == "plain" for one in words.model_serializers.values()):
        return dict.fromkeys(_fields(kind))
    serializers = words.field_serializers.values() if words else ()
    spoken = {name for one in serializers for name in one.info.fields}
    hints = _hints(kind)
    found: dict[str, frozenset[type] | None] = {}
    for name, part in _fields(kind).items():
        parts = [hints.get(name), getattr(part, "annotation", None), *getattr(part, "metadata", ())]
        named = [one for each in parts for one in _named(each)]
        is_spoken = any(type(one).__name__ in SERIALIZERS for one in named) or name in spoken
        classes = frozenset(one for one in named if isinstance(one, type))
        found[name] = None if is_spoken or "*" in spoken else classes
    return found


@functools.lru_cache(maxsize=1_000)
def _shapes(declared: frozenset[type]) -> frozenset[Any]:
    """The typed dicts and named tuples among classes, and those that these name."""
    found, left = set[Any](), list[Any](declared)
    while left:
        one = left.pop()
        if one not in found and (hasattr(one, "__required_keys__") or hasattr(one, "_fields")):
            found.add(one)
            parts = [part for hint in _hints(one).values() for part in _named(hint)]
            left += [part for part in parts if isinstance(part, type)]
    return frozenset(found)


def _hints(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001 - a name that is not there at run time: each is looked at then
        return {}


def _named(kind: Any, within: tuple[Any, ...] = ()) -> Iterator[Any]:
    """A type and those that it names; an alias of its own (`TypeAliasType`) may name itself."""
    yield kind
    parts = [*typing.get_args(kind), typing.get_origin(kind)]
    with contextlib.suppress(Exception):  # a name that is not there at run time
        parts.append(getattr(kind, "__value__", None))
    for part in parts:
        if part is not None and part not in within:
            yield from _named(part, (*within, kind))


def as_text(value: Any) -> str:
    """In JSON, by which two are told apart, for to Python 1 equals True."""
    return json.dumps(value, sort_keys=True)


def is_json(value: Any) -> bool:
    """Whether the value is plain JSON as it stands, so that nothing is lost on its way."""
    if isinstance(value, dict):
        return all(type(name) is str for name in value) and all(map(is_json, value.values()))
    if type(value) is list:
        return all(map(is_json, value))
    is_number = type(value) is not float or math.isfinite(value)
    return value is None or (type(value) in (bool, int, float, str) and is_number)


NO_TEXT = (
    "a text in it holds NUL or half a character, which no database keeps, so that another one would"
    " be approved: encode it, as base64 perhaps"
)


class Replaced(str):
    """A text in which what no database keeps was replaced."""

    __slots__ = ()


def asked_for(args: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as plain JSON; raises `errors.Unfit` where people would approve something else, and
    TypeError for what is no mapping.
    """
    try:
        told = plain(args)
        _must_be_kept(told, 2)  # in an event's data
    except (Unfit, RecursionError) as error:
        raise errors.Unfit(str(error)) from error
    if not isinstance(told, dict):
        raise TypeError(f"arguments are a mapping by name, not a {type(args).__name__}")
    return told


def _must_be_kept(told: Any, depth: int) -> None:
    if isinstance(told, Replaced):
        raise Unfit(NO_TEXT)
    if isinstance(told, dict | list):
        if depth > DEPTH_MAX and told:
            raise Unfit(f"it is nested deeper than {DEPTH_MAX} levels")
        for one in (*told, *told.values()) if isinstance(told, dict) else told:
            _must_be_kept(one, depth + 1)


def _scalar(value: Any) -> Any:
    if isinstance(value, int):
        if abs(value) >= INTEGER_END:
            raise TooLarge(f"an integer has more than {INTEGER_DIGITS_MAX} digits")
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, date | time):
        # A time of day in a zone has no offset, for that depends on the day (RFC 9557).
        zone = value.tzinfo if isinstance(value, time) and value.utcoffset() is None else None
        return value.isoformat() + (f"[{zone}]" if zone else "")
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return _text(str(value)) if isinstance(value, str) else _in_words(value)


def _in_words(value: Any) -> Any:
    """The text of what JSON does not know, where that tells all; else what a table holds."""
    numpy = sys.modules.get("numpy")
    is_numpys = numpy is not None and isinstance(value, numpy.ndarray | numpy.generic)
    if not is_numpys and any(hasattr(value, one) for one in HOLDS_MANY):
        return plain(_content(value))
    with numpy.printoptions(**IN_FULL) if numpy else contextlib.nullcontext():
        told = _drivers_text(value)
    if _TELLS_LESS.search(told):
        raise Unfit(NOTHING.format(type(value).__name__))
    return _text(told)


def _content(value: Any) -> Any:
    """What a table or an array has, whose text leaves out what is in the middle, and rounds."""
    table = value.to_frame() if hasattr(value, "iloc") and hasattr(value, "to_frame") else value
    if hasattr(table, "iloc") and table.columns.is_unique:  # pandas
        return {"index": table.index.tolist(), "columns": table.to_dict("list")}
    if hasattr(table, "tolist"):
        return table.tolist()
    raise Unfit(IN_PART.format(type(value).__name__))


def _drivers_text(value: Any) -> str:
    """Ranges (psycopg's, asyncpg's) as PostgreSQL writes them, whose own text says `None`."""
    if hasattr(value, "lower_inc"):
        return _range(value)
    if type(value).__name__.endswith("Multirange"):
        return "{" + ",".join(map(_range, value)) + "}"
    return str(value)


def _range(value: Any) -> str:
    if value.isempty:
        return "empty"
    opens, closes = "[" if value.lower_inc else "(", "]" if value.upper_inc else ")"
    return f"{opens}{_bound(value.lower)},{_bound(value.upper)}{closes}"


def _bound(value: Any) -> str:
    if value is None:
        return ""
    text = str(plain(value))
    if text and not _QUOTED_IN_RANGES.search(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def signed_zeros(snapshot: Any) -> Any:
    """A snapshot in which -0.0 is a text: a float column has its sign, a JSON number none."""
    if isinstance(snapshot, dict):
        return {name: _signed(value) for name, value in snapshot.items()}
    return snapshot


def _signed(value: Any) -> Any:
    if isinstance(value, list):
        return [_signed(item) for item in value]
    is_zero = isinstance(value, float) and value == 0
    return str(value) if is_zero and math.copysign(1, value) < 0 else value


def _text(text: str) -> str:
    kept, count = _NOT_TEXT.subn("\ufffd", text)
    return Replaced(kept) if count else kept


# Targets: what a call changes, and the snapshots of it.

Target = tuple[str, object] | Mapping[str, object]
PAIR = 2
NO_TARGET = (
    "{!r} is no target: give a pair of type and id, such as ('reservation', 'XEHM4B'), a mapping of"
    " both, or a list of these"
)


def per_target(snapshot: Any, count: int) -> list[Any]:
    """Snapshots, one per target. ValueError if there are not as many."""
    if snapshot is UNSET or count == 0:
        return [UNSET] * count
    snapshots = [snapshot] if count == 1 and not isinstance(snapshot, list) else snapshot
    if not isinstance(snapshots, list) or len(snapshots) != count:
        raise ValueError(f"{count} targets need a list of {count} snapshots")
    return [plain(one) for one in snapshots]


def as_targets(target: object) -> list[dict[str, str]]:
    """`("reservation", "XEHM4B")`, a mapping of type and id, or a list of these, or ValueError."""
    if target is None:
        return []
    if isinstance(target, str) or not isinstance(target, Sequence | Mapping):
        raise ValueError(NO_TARGET.format(target))  # noqa: TRY004 - as for a pair of three
    if isinstance(target, Mapping):
        if not {"type", "id"} <= set(target):
            raise ValueError(NO_TARGET.format(target))
        return [{"type": str(target["type"]), "id": _id(target["id"])}]
    if isinstance(target, tuple) and len(target) == PAIR and isinstance(target[0], str):
        return [{"type": target[0], "id": _id(target[1])}]
    return [one for each in target for one in as_targets(each)]


def _id(value: object) -> str:
    if hasattr(value, HIDES):
        raise ValueError("the id of a target cannot be hidden: calls are told apart by it")
    if _TELLS_LESS.search(told := str(value)) or ALL_STARS.search(told):
        raise ValueError(f"{told!r} is no id of a target: another one may look alike, or this one")
    return told


def check_of(check: Mapping[str, Any] | tuple[str, Any, Any]) -> dict[str, Any]:
    """A read-back as it is told, with whether it holds."""
    if isinstance(check, tuple):
        check = dict(zip(("name", "expected", "actual"), check, strict=True))
    told: dict[str, Any] = plain(check)
    return {**told, "ok": bool(told.get("ok", told.get("expected") == told.get("actual")))}


def digest_of(asked: Mapping[str, Any]) -> str:
    """What must not differ under one key, as the desk digests it."""
    return "sha256:" + hashlib.sha256(without_last4(canonical(asked))).hexdigest()
