"""From JSON or YAML text to plain values, each with its place in the text; and what is wrong where.

JSON is read by the JSON reader, and YAML by the part of YAML that says the same things: no tags, no
aliases (a few of them can stand for gigabytes), no dates, no duplicate keys.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import yaml

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong at one place. Line and column count from 1, or are None without a text."""

    message: str
    path: str = ""
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        where = f"line {self.line}, column {self.column}: " if self.line else ""
        return f"{where}{self.path + ': ' if self.path else ''}{self.message}"

    def as_json(self) -> dict[str, Any]:
        return {
            "message": self.message,
            "path": self.path,
            "line": self.line,
            "column": self.column,
        }


class Invalid(ValueError):
    """We stopped because this cannot be a policy; `problems` says what to mend, and where."""

    def __init__(self, problems: Sequence[Mistake]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


class PolicyUnreadable(Invalid):
    """We stopped because the policy in force was saved by a version with other bounds and is no
    policy by ours: nothing is judged until a version that is one is put in force.
    """

    TOLD = "The policy in force cannot be read: "
    """How this begins among what nobody can meet (`PolicyVersion.unmet`)."""


def spelled(path: Path) -> str:
    """A path as people write it: policies."crm.update".requires[0].group."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = part.replace("_", "").isalnum()
            text += ("." if text else "") + (part if plain else f'"{part}"')
    return text.encode(errors="replace").decode()  # half a pair cannot be shown as it is


DOCUMENT_CHARACTERS_MAX = 256 * 1024  # the largest policy we have seen has 40 KiB
DEPTH_MAX = 24
JSON_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[{}\[\],:]|[^\s{}\[\],:"]+')
PLAIN_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null")}


@dataclass(frozen=True, slots=True)
class LocatedDocument:
    """A document as values, and where each stands: path → (line, column), counted from 1."""

    value: Any
    places: dict[Path, tuple[int, int]] = field(default_factory=dict)

    def problem(self, path: Path, message: str, spelled_path: str) -> Mistake:
        known = path
        while known and known not in self.places:
            known = known[:-1]
        line, column = self.places.get(known, (None, None))
        return Mistake(message, spelled_path, line, column)


def read(source: str) -> LocatedDocument:
    """The values of a JSON or YAML document, the caller's to change, and their places. Raises
    Invalid.
    """
    found = _read(source)
    return LocatedDocument(deepcopy(found.value), found.places)


# To save a document and put it in force reads it five times, a page of the editor as often.
@lru_cache(maxsize=8)
def _read(source: str) -> LocatedDocument:
    if len(source) > DOCUMENT_CHARACTERS_MAX:
        raise Invalid([Mistake(f"longer than {DOCUMENT_CHARACTERS_MAX} characters")])
    if not source.strip():
        raise Invalid([Mistake("the document is empty", line=1, column=1)])
    if source.lstrip()[0] in "{[":
        try:
            value = json.loads(source)
        except json.JSONDecodeError as wrong:
            problem = Mistake(f"not JSON: {wrong.msg}", line=wrong.lineno, column=wrong.colno)
            raise Invalid([problem]) from wrong
        except (ValueError, RecursionError) as wrong:
            raise Invalid([Mistake(f"not JSON: {wrong}")]) from wrong
        return LocatedDocument(value, _JsonPlaces(source).places)
    return _read_yaml(source)


class _JsonPlaces:
    """Where each value of a JSON text stands. The text was read before, so its form is right."""

    def __init__(self, source: str) -> None:
        self.places: dict[Path, tuple[int, int]] = {}
        self._lines = [0, *(found.end() for found in re.finditer("\n", source))]
        self._tokens = JSON_TOKEN.finditer(source)
        self._value(next(self._tokens), ())

    def _at(self, place: int) -> tuple[int, int]:
        line = bisect_right(self._lines, place)
        return line, place - self._lines[line - 1] + 1

    def _value(self, token: re.Match[str], path: Path) -> None:
        here = self.places.setdefault(path, self._at(token.start()))
        if token[0] in "{[" and len(path) >= DEPTH_MAX:
            raise Invalid([Mistake(f"more than {DEPTH_MAX} levels deep", "", *here)])
        if token[0] == "{":
            self._object(path)
        elif token[0] == "[":
            self._list(path)

    def _object(self, path: Path) -> None:
        for token in self._tokens:
            if token[0] == "}":
                return
            if token[0] == ",":
                continue
            name, here = json.loads(token[0]), self._at(token.start())
            if (*path, name) in self.places:
                raise Invalid([Mistake(f"“{name}” stands twice in one object", "", *here)])
            self.places[*path, name] = here  # people look for the name first
            next(self._tokens)  # the colon
            self._value(next(self._tokens), (*path, name))

    def _list(self, path: Path) -> None:
        place = 0
        for token in self._tokens:
            if token[0] == "]":
                return
            if token[0] != ",":
                self._value(token, (*path, place))
                place += 1


def _read_yaml(source: str) -> LocatedDocument:
    try:
        _check_events(source)
        node = yaml.compose(source, Loader=yaml.SafeLoader)
        reader = _Nodes()
        return LocatedDocument(reader.value(node, ()), reader.places)
    except yaml.MarkedYAMLError as wrong:
        place, said = _place(wrong.problem_mark or wrong.context_mark), f"{wrong.context} {wrong}"
        hint = next((words for seen, words in MEANT.items() if seen in said), "")
        raise Invalid([Mistake(f"not YAML: {wrong.problem}{hint}", "", *place)]) from wrong
    except (yaml.YAMLError, RecursionError) as wrong:
        raise Invalid([Mistake(f"not YAML: {wrong}")]) from wrong


MEANT = {
    "scanning an alias": "; a glob that begins with “*” stands in quotes",
    "scanning a tag": "; a condition that begins with “!” stands in quotes",
    "parsing a flow mapping": "; a condition with “:” or “,” in it stands in quotes",
    "'\\t'": "; lines begin with spaces",
}
"""What mostly stands behind a mistake, by the parser's words."""


def _place(mark: Any) -> tuple[int, int] | tuple[None, None]:
    return (mark.line + 1, mark.column + 1) if mark else (None, None)


def _check_events(source: str) -> None:
    depth = 0
    for event in yaml.parse(source, Loader=yaml.SafeLoader):
        place = _place(event.start_mark)
        if getattr(event, "tag", None):
            words = "tags are not read: a condition that begins with “!” stands in quotes"
            raise Invalid([Mistake(words, "", *place)])
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            words = "anchors and aliases are not read: a glob that begins with “*” stands in quotes"
            raise Invalid([Mistake(words, "", *place)])
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                raise Invalid([Mistake(f"more than {DEPTH_MAX} levels deep", "", *place)])
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Nodes:
    """Turns composed YAML nodes into values, and remembers where they stood."""

    def __init__(self) -> None:
        self.places: dict[Path, tuple[int, int]] = {}
        self._constructor = yaml.SafeLoader("")

    def value(self, node: Any, path: Path) -> Any:
        if node is None:
            return None
        here = (node.start_mark.line + 1, node.start_mark.column + 1)
        self.places[path] = here
        if isinstance(node, yaml.SequenceNode):
            return [self.value(inner, (*path, place)) for place, inner in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if node.tag not in PLAIN_TAGS:
            kind = node.tag.rsplit(":", 1)[-1]
            raise Invalid([Mistake(f"{kind} is not a JSON value: quote it", "", *here)])
        try:
            return self._constructor.construct_object(node)
        except ValueError as wrong:  # of so many digits Python makes no number
            raise Invalid([Mistake(f"not a value: {wrong}", "", *here)]) from wrong

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name_node, value_node in node.value:
            here = (name_node.start_mark.line + 1, name_node.start_mark.column + 1)
            if not isinstance(name_node, yaml.ScalarNode):
                raise Invalid([Mistake("a name is a text", "", *here)])
            name = str(name_node.value)
            if name in found:
                raise Invalid([Mistake(f"“{name}” stands twice", "", *here)])
            found[name] = self.value(value_node, (*path, name))
            self.places[*path, name] = here  # people look for the name first
        return found
