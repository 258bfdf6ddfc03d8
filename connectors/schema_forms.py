"""Forms made of a connector's own schema, so that nobody writes JSON: settings, credentials and
the arguments of an operation, each field with what the schema says that it means.

What a schema has is one of few kinds: text, number, flag, choice, list of words, pairs (a line for
each name and its value), a group of these, or entries (groups that people name, such as tables).
What is as the schema has it anyway is left out, so that settings say only what people said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from django import forms
from django.forms.utils import ErrorDict

from workspaces.forms import without_hint

ENTRIES_MAX = 100
TEXT_CHARACTERS_MAX = 8_000
MISSING: Any = object()
"""Nothing was said, or what the schema has anyway."""
NEEDED = forms.ValidationError("This is needed.", code="required")


@dataclass(slots=True)
class Node:
    """One place of a schema: its kind, what it means, and what is below it."""

    kind: str
    label: str = ""
    meaning: str = ""
    default: Any = MISSING
    choices: tuple[str, ...] = ()
    of_text: bool = False
    required: frozenset[str] = frozenset()
    parts: dict[str, Node] = field(default_factory=dict)


@dataclass(slots=True)
class FieldGroup:
    """Fields that stand together; `adds` is the place to which one more can be added."""

    legend: str = ""
    meaning: str = ""
    fields: list[Any] = field(default_factory=list)
    adds: str = ""
    what: str = ""
    may_fold: bool = False


KINDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "flag"}


def node_of(struct: type[msgspec.Struct]) -> Node:
    """The struct's JSON Schema as a tree."""
    schema = msgspec.json.schema(struct)
    return _read(schema, schema.get("$defs", {}), "")


def _read(schema: Mapping[str, Any], known: Mapping[str, Any], name: str) -> Node:
    said, defined = _resolved(schema, known)
    node = Node(
        "any",
        schema.get("title") or _label(name),
        str(schema.get("description", "")),
        schema.get("default", MISSING),
    )
    if "enum" in said:
        node.kind, node.choices = "choice", tuple(str(one) for one in said["enum"])
    elif "anyOf" in said:  # words, or pairs instead of them
        node.kind = "pairs"
        node.choices = tuple(word for one in said["anyOf"] for word in one.get("enum", ()))
    elif said.get("type") == "array":
        node.kind = "list"
    elif said.get("type") == "object":
        _read_object(node, said, known)
    else:
        node.kind = KINDS.get(str(said.get("type")), "any")
    if defined and not node.meaning and node.kind in {"group", "entries"}:
        node.meaning = str(said.get("description", "")).partition("\n\n")[0]
    return node


def _read_object(node: Node, said: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    if "properties" in said or said.get("additionalProperties") is False:
        node.kind, node.required = "group", frozenset(said.get("required", ()))
        parts = said.get("properties", {})
        node.parts = {part: _read(one, known, part) for part, one in parts.items()}
        return
    each = said.get("additionalProperties")
    inner = _resolved(each, known)[0] if isinstance(each, dict) else {}
    if isinstance(each, dict) and "properties" in inner:
        node.kind, node.parts = "entries", {"": _read(each, known, node.label)}
    else:
        node.kind, node.of_text = "pairs", inner.get("type") == "string"


def _resolved(
    schema: Mapping[str, Any], known: Mapping[str, Any]
) -> tuple[Mapping[str, Any], bool]:
    """What a reference names, and what is left where null is one of two; whether it was named."""
    named = False
    while True:
        if "$ref" in schema:
            schema, named = known[str(schema["$ref"]).rpartition("/")[2]], True
            continue
        either = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
        if len(either) != 1:
            return ({"anyOf": either} if either else schema), named
        schema = either[0]


def _label(name: str) -> str:
    words = name.replace("_", " ").capitalize()
    return re.sub(r"\b[Uu]rl\b", "URL", words)


class ListField(forms.CharField):
    """Words, divided by commas or lines."""

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value) or ""
        return [
            word for line in text.splitlines() for word in map(str.strip, line.split(",")) if word
        ]

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(map(str, value)) if isinstance(value, list) else value


class AnyField(forms.CharField):
    """Text; what reads as a number, true, false, null or JSON is that."""

    def to_python(self, value: Any) -> Any:
        return _value(super().to_python(value) or "")

    def prepare_value(self, value: Any) -> Any:
        return value if value is None or value == "" else _text(value)


class PairsField(forms.CharField):
    """A line for each name and its value, `name: value`; or one of `choices` alone."""

    widget = forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "mono"})

    def __init__(
        self, *, choices: tuple[str, ...] = (), of_text: bool = False, **options: Any
    ) -> None:
        super().__init__(**options)
        self.choices, self.of_text = choices, of_text

    def to_python(self, value: Any) -> Any:
        text = (super().to_python(value) or "").strip()
        if text in self.choices:
            return text
        found: dict[str, Any] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            name, colon, said = (part.strip() for part in line.partition(":"))
            if not colon or not name:
                raise forms.ValidationError(
                    f"Line {number} has no “name: value”: {line.strip()[:60]}"
                )
            found[name] = said if self.of_text else _value(said)
        return found

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return "\n".join(
            f"{name}: {said if self.of_text else _text(said)}" for name, said in value.items()
        )


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _text(value: Any) -> str:
    """As `_value` reads it back: text that would be read as something else stands in quotes."""
    if isinstance(value, str) and _value(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)


PLAIN_FIELDS: Mapping[str, type[forms.Field]] = {
    "flag": forms.BooleanField,
    "integer": forms.IntegerField,
    "number": forms.FloatField,
}
TEXT_FIELDS: Mapping[str, type[forms.CharField]] = {
    "text": forms.CharField,
    "list": ListField,
    "any": AnyField,
}


class SchemaForm(forms.Form):
    """The fields of a schema, in groups; `value()` is what they say, once the form is valid.

    `given` is what is kept so far. An `overlay` says only what differs from something else: every
    field may be empty, nothing has a default, and entries stay as they are given. `offered` are
    the values of texts among which people choose.
    """

    def __init__(
        self,
        data: Any = None,
        *,
        schema: type[msgspec.Struct],
        given: Mapping[str, Any] | None = None,
        overlay: bool = False,
        offered: Mapping[str, Sequence[str]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(data, **options)
        self.root, self.given, self.overlay = node_of(schema), dict(given or {}), overlay
        self.offered = offered or {}
        self.plan: list[FieldGroup] = [FieldGroup()]
        self._declare(self.root, "", self.given)
        self._begin_what_was_asked_for()

    def _declare(self, node: Node, path: str, given: Any) -> None:
        """The plain fields of a group first, then what stands in groups of its own."""
        given = given if isinstance(given, dict) else {}
        group = self.plan[-1]
        for name, part in node.parts.items():
            if part.kind not in {"group", "entries"}:
                place = f"{path}{name}"
                needed = path == "" and name in node.required
                kept = given.get(name)
                self.fields[place] = self._field(part, needed, self._offered_for(place, kept))
                begins = part.default not in (MISSING, None, "", [], {})
                is_said = not self.overlay and (name in node.required or begins)
                without_hint(self.fields[place], really=is_said)
                default = None if self.overlay or part.default is MISSING else part.default
                self.initial[place] = given.get(name, default)
                group.fields.append(place)
        if self.overlay:
            return
        for name, part in node.parts.items():
            if part.kind == "group":
                legend = f"{group.legend}: {part.label.lower()}" if group.legend else part.label
                self.plan.append(FieldGroup(f"{legend} (optional)", part.meaning, may_fold=True))
                self._declare(part, f"{path}{name}.", given.get(name))
            elif part.kind == "entries":
                self._declare_entries(part, f"{path}{name}", given.get(name) or {})

    def _declare_entries(self, node: Node, path: str, given: Mapping[str, Any]) -> None:
        each, what = node.parts[""], node.label.removesuffix("s").lower()
        names = list(given)
        for at in range(self._count(path, len(names))):
            name = names[at] if at < len(names) else ""
            self.plan.append(
                FieldGroup(f"{what.capitalize()} {name or at + 1}", "" if at else node.meaning)
            )
            place = f"{path}.{at}"
            self.fields[f"{place}:name"] = forms.CharField(
                label="Name", max_length=200, required=False, help_text=each.meaning
            )
            without_hint(self.fields[f"{place}:name"])
            self.initial[f"{place}:name"] = name
            self.plan[-1].fields.append(f"{place}:name")
            self._declare(each, f"{place}.", given.get(name))
            if name:
                self.fields[f"{place}:gone"] = forms.BooleanField(
                    label=f"Remove this {what}", required=False
                )
                self.plan[-1].fields.append(f"{place}:gone")
        self.plan[-1].adds, self.plan[-1].what = self.add_prefix(path), what
        self.fields[f"{path}:count"] = forms.IntegerField(
            widget=forms.HiddenInput(), required=False
        )
        self.initial[f"{path}:count"] = self._count(path, len(names))

    def _count(self, path: str, given: int) -> int:
        """How many entries stand there: as many as were sent, and one more where that was asked."""
        if not self.is_bound:
            return max(given, 1)
        sent = str(self.data.get(self.add_prefix(f"{path}:count"), ""))
        count = int(sent) if sent.isascii() and sent.isdigit() and len(sent) <= 3 else given  # noqa: PLR2004
        more = self.data.get("more") == self.add_prefix(path)
        return min(max(count, given, 1) + more, ENTRIES_MAX)

    def _begin_what_was_asked_for(self) -> None:
        """One more entry stands there as a first one does: counted, with what it begins with."""
        for path in [
            name.removesuffix(":count") for name in self.fields if name.endswith(":count")
        ]:
            if not self.is_bound or self.data.get("more") != self.add_prefix(path):
                continue
            sent: Any = self.data
            said, count = sent.copy(), self.initial[f"{path}:count"]
            said[self.add_prefix(f"{path}:count")] = count
            for name in [one for one in self.fields if one.startswith(f"{path}.{count - 1}.")]:
                if self.initial.get(name):
                    said.setdefault(self.add_prefix(name), self.initial[name])
            self.data = said

    def _offered_for(self, place: str, kept: Any) -> list[str]:
        """What people choose among; what is kept is one of them, also where it is gone since."""
        offered = self.offered.get(place)
        return sorted({*offered, *([kept] if kept else [])}) if offered else []

    def _field(
        self,
        node: Node,
        required: bool,  # noqa: FBT001 - of the schema
        offered: Sequence[str] = (),
    ) -> forms.Field:
        said: dict[str, Any] = {
            "label": node.label,
            "help_text": node.meaning,
            "required": required and not self.overlay and node.kind != "flag",
        }
        if offered:
            names = [(one, one) for one in offered]
            return forms.ChoiceField(choices=[("", "Choose one"), *names], **said)
        if node.kind == "choice":
            empty = [] if node.default is not MISSING and not self.overlay else [("", "—")]
            words = [(one, one.replace("_", " ")) for one in node.choices]
            return forms.ChoiceField(choices=[*empty, *words], **said)
        if node.kind in PLAIN_FIELDS:
            return PLAIN_FIELDS[node.kind](**said)
        said["max_length"] = TEXT_CHARACTERS_MAX
        if node.kind == "pairs":
            said["required"] = False
            return PairsField(choices=node.choices, of_text=node.of_text, **said)
        return TEXT_FIELDS[node.kind](**said)

    @property
    def groups(self) -> list[dict[str, Any]]:
        """For parts/groups.html: [{legend, meaning, fields, adds, what, folded}]."""
        return [
            {
                "legend": one.legend,
                "meaning": one.meaning,
                "fields": [self[name] for name in one.fields],
                "adds": one.adds,
                "folded": one.may_fold
                and not any(self[name].value() or self[name].errors for name in one.fields),
                "what": one.what,
            }
            for one in self.plan
        ]

    def without_errors(self) -> SchemaForm:
        """As it was sent, and not judged yet: somebody only asked for one more entry."""
        self._errors = ErrorDict()
        self.cleaned_data = {}
        return self

    def clean(self) -> dict[str, Any]:
        found = self._collected(self.root, "", self.given)
        self.said = {} if found is MISSING else found
        return self.cleaned_data

    def value(self) -> dict[str, Any]:
        """What the fields say, as the schema has it; of a valid form."""
        return self.said

    def _collected(self, node: Node, path: str, given: Any) -> Any:
        """A group's value, MISSING where nothing in it is said; what is needed is told there."""
        given = given if isinstance(given, dict) else {}
        found: dict[str, Any] = {}
        for name, part in node.parts.items():
            place = f"{path}{name}"
            if part.kind == "group":
                value = self._collected(part, f"{place}.", given.get(name))
            elif part.kind == "entries":
                value = self._entries(part, place, given.get(name) or {})
            else:
                value = self._plain(part, place, name in node.required)
                if value is not MISSING and value == part.default and name not in given:
                    value = MISSING
            if self.overlay and part.kind in {"group", "entries"}:
                value = given.get(name, MISSING)
            if value is not MISSING:
                found[name] = value
        if not found and path:
            return MISSING
        if not self.overlay:
            for name in node.required - found.keys():
                if f"{path}{name}" in self.fields and f"{path}{name}" not in self.errors:
                    self.add_error(f"{path}{name}", NEEDED)
        return found

    def _plain(self, node: Node, place: str, required: bool) -> Any:  # noqa: FBT001 - as above
        value = self.cleaned_data.get(place)
        is_empty = value is None or value in ("", [], {})
        if not is_empty:
            return value
        if node.kind == "pairs" and required:
            return None if not node.of_text and node.default is MISSING else {}
        return MISSING

    def _entries(self, node: Node, path: str, given: Mapping[str, Any]) -> Any:
        found: dict[str, Any] = {}
        for at in range(ENTRIES_MAX):
            place = f"{path}.{at}"
            if f"{place}:name" not in self.fields:
                break
            if self.cleaned_data.get(f"{place}:gone"):
                continue
            name = self.cleaned_data.get(f"{place}:name", "")
            value = self._collected(node.parts[""], f"{place}.", given.get(name))
            if not name and value is MISSING:
                continue
            if not name:
                self.add_error(f"{place}:name", NEEDED)
            elif name in found:
                self.add_error(f"{place}:name", "Another one has this name.")
            found[name] = {} if value is MISSING else value
        return found or MISSING
