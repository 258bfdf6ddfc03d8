"""Arguments of a call as fields that a person may correct, and their text read back as values.

A field is typed as the tool's announced schema says (JSON Schema), else as its value is now.
Nothing is added or taken away. What is masked cannot be corrected, for the desk does not know it;
what names the target is not, for that would be another call.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from amends.protocol.canonical import INTEGER_MAX
from amends.protocol.masking import holds_mask
from workspaces import formatting
from workspaces.free_text import InvalidInput

FIELDS_MAX = 200
TARGET_CHARACTERS_MIN = 3
"""A shorter id is looked for as the whole value alone: it stands in too many texts by chance."""
CHOICES_MAX = 100
INTEGER = re.compile(r"-?[0-9]{1,16}")
NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,16})?([eE][+-]?[0-9]{1,2})?")
AMBIGUOUS = re.compile(r"[.\[\]]|^$|^\s|\s$")
"""In a name: signs that a path is spelled with, and ends that nobody sees."""
LINE_END = re.compile("\r\n|\r|\n")
BOUNDS: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("at least", lambda value, bound: value >= bound),
    "maximum": ("at most", lambda value, bound: value <= bound),
    "exclusiveMinimum": ("more than", lambda value, bound: value > bound),
    "exclusiveMaximum": ("less than", lambda value, bound: value < bound),
}
MASKED = "It is masked: its value is known to the agent alone."
TARGET = "It names what the call is about. Another target is another call: reject this one instead."
UNTYPED = "What it could hold instead is not known."
TOO_MANY = f"Only the first {FIELDS_MAX} can be changed here."

Path = tuple[str | int, ...]


def words_of(path: str) -> str:
    """`args.booking_reference`, as a policy names it, in words: `booking reference`."""
    return path.removeprefix("args.").replace("_", " ")


@dataclass(frozen=True, slots=True)
class ArgumentField:
    """One value among the arguments: where it is, what it is, what it may be, or why it stays."""

    number: int
    path: Path
    value: Any
    kind: str
    schema: Mapping[str, Any]
    why_not: str

    @property
    def name(self) -> str:
        return spelled(self.path)

    @property
    def text(self) -> str:
        return as_text(self.value)

    @property
    def choices(self) -> list[str]:
        if self.kind == "boolean":
            return ["true", "false"]
        return [as_text(one) for one in self.schema.get("enum", ())] if self.kind == "enum" else []

    @property
    def offered(self) -> list[str]:
        """The choices, and before them what stands there and is none of them: a browser that finds
        nothing selected sends the first one.
        """
        choices = self.choices
        return choices if not choices or self.text in choices else [self.text, *choices]

    @property
    def is_long(self) -> bool:
        has_lines = LINE_END.search(self.text) is not None
        return has_lines or (self.kind == "string" and len(self.text) > 80)  # noqa: PLR2004


def spelled(path: Path) -> str:
    """`items[0].amount`, as the card spells it; `["items.amount"]` of a name that would else be
    spelled as another path is.
    """
    return "".join(map(_step, path)).removeprefix(".")


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f"[{json.dumps(step, ensure_ascii=False)}]" if AMBIGUOUS.search(step) else f".{step}"


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def fields(
    args: Any, schema: Mapping[str, Any], targets: Sequence[Mapping[str, Any]]
) -> list[ArgumentField]:
    """Every value of the arguments, in their order."""
    ids = [str(one["id"]) for one in targets if one.get("id")]
    found = []
    for number, (path, value) in enumerate(leaves_of(args, ())):
        own = _schema_at(schema, path)
        kind = _kind(value, own)
        found.append(
            ArgumentField(number, path, value, kind, own, _why_not(number, value, kind, ids))
        )
    return found


def corrected(args: Any, found: Sequence[ArgumentField], typed: Mapping[int, str]) -> Any:
    """The arguments with what was typed into the fields of these numbers. Raises InvalidInput."""
    changed = json.loads(json.dumps(args))
    for field in touched(found, typed):
        if field.why_not:
            raise InvalidInput(f"{formatting.quoted(field.name)} stays. {field.why_not}")
        inside = changed
        for step in field.path[:-1]:
            inside = inside[step]
        inside[field.path[-1]] = _read(_as_typed(typed[field.number], field), field)
    return changed


def touched(found: Sequence[ArgumentField], typed: Mapping[int, str]) -> list[ArgumentField]:
    """Those into which something else was typed than stands there."""
    return [one for one in found if _lines(typed.get(one.number, one.text)) != _lines(one.text)]


def leaves_of(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value within, with where it stands."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from leaves_of(inner, (*path, name))
    elif isinstance(value, list) and value:
        for place, inner in enumerate(value):
            yield from leaves_of(inner, (*path, place))
    elif path:
        yield path, value


def _schema_at(schema: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """What the schema says of the value at the path; empty where it does not say it plainly."""
    found = dict(schema)
    for step in path:
        inner = found.get("items" if isinstance(step, int) else "properties")
        if not isinstance(step, int):
            inner = inner.get(step) if isinstance(inner, dict) else None
        if not isinstance(inner, dict):
            return {}
        found = inner
    only = [one for one in _any_of(found) if one.get("type") != "null"]
    return found | only[0] if len(only) == 1 else found


def _kind(value: Any, schema: Mapping[str, Any]) -> str:
    """The type to read a text as; empty where none is known."""
    choices = schema.get("enum")
    if isinstance(choices, list) and 0 < len(choices) <= CHOICES_MAX:
        return "enum"
    told = [schema, *_any_of(schema)]
    kinds = {kind for one in told for kind in _listed(one.get("type"))} - {"null"}
    for kind in ("boolean", "string", "number", "integer"):
        if kinds == {kind} or (kinds == {"integer", "number"} and kind == "number"):
            return kind
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) else "number"
    return "string" if isinstance(value, str) else ""


def _any_of(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What an agent announced need not be a schema at all."""
    told = schema.get("anyOf")
    return [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []


def _listed(kinds: Any) -> Sequence[str]:
    told = kinds if isinstance(kinds, list) else [kinds]
    return [one for one in told if isinstance(one, str)]


def _why_not(number: int, value: Any, kind: str, ids: Sequence[str]) -> str:
    if number >= FIELDS_MAX:
        return TOO_MANY
    if holds_mask(value):
        return MASKED
    if any(names_target(value, one) for one in ids):
        return TARGET
    return "" if kind else UNTYPED


def names_target(value: Any, id_: str) -> bool:
    """Whether the value is the id of the target, or a text in which it stands."""
    text = as_text(value)
    return text == id_ or (len(id_) >= TARGET_CHARACTERS_MIN and id_ in text)


def _lines(text: str) -> list[str]:
    """A form sends each end of a line as two characters, whatever the value has."""
    return LINE_END.split(text)


def _as_typed(text: str, field: ArgumentField) -> str:
    """With the ends of lines that the value has; where these differ, of one character."""
    ends = set(LINE_END.findall(field.text))
    return (ends.pop() if len(ends) == 1 else "\n").join(_lines(text))


def _read(text: str, field: ArgumentField) -> Any:
    value = _typed(text, field)
    name = formatting.quoted(field.name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        for word, (words, holds) in BOUNDS.items():
            bound = field.schema.get(word)
            if isinstance(bound, int | float) and not holds(value, bound):
                raise InvalidInput(f"{name} is {words} {bound}: the tool says so.")
    if isinstance(value, str):
        most, least = field.schema.get("maxLength"), field.schema.get("minLength")
        if isinstance(most, int) and len(value) > most:
            raise InvalidInput(f"{name} has at most {most} characters: the tool says so.")
        if isinstance(least, int) and len(value) < least:
            raise InvalidInput(f"{name} has at least {least} characters: the tool says so.")
    return value


def _typed(text: str, field: ArgumentField) -> Any:
    name = formatting.quoted(field.name)
    if field.kind == "string":
        return text
    if field.kind == "enum":
        for one in field.schema["enum"]:
            if as_text(one) == text:
                return one
        raise InvalidInput(f"{name} is one of {', '.join(field.choices)}.")
    plain = text.strip()
    if field.kind == "boolean" and plain in {"true", "false"}:
        return plain == "true"
    if field.kind == "integer" and INTEGER.fullmatch(plain) and abs(int(plain)) <= INTEGER_MAX:
        return int(plain)
    if field.kind == "number" and NUMBER.fullmatch(plain):
        if INTEGER.fullmatch(plain) and abs(int(plain)) <= INTEGER_MAX:
            return int(plain)
        number = float(plain)
        if Decimal(repr(number)) == Decimal(plain):
            return number
    kinds = {"integer": "a whole number", "number": "a number, as 12.5"}
    raise InvalidInput(f"{name} is {kinds.get(field.kind, 'true or false')}.")
