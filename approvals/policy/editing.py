"""Changing one rule in the text of a policy, with everything else as its author wrote it.

The table of rules and the document beside it are one: a change in the table is a change of its
text. Comments, order and spelling stay, as far as they stand in what is not changed. Each change is
made in several ways, from the gentlest to a text that is written anew, and the first counts that
reads as it should.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from approvals.policy import splicing
from approvals.policy.reading import Invalid, Mistake, Path, read, spelled

WRAPPER = "agentSafety"
RULES, ALWAYS, REVIEW, TWINS = "policies", "always", "review", "twins"
SECTIONS = (RULES, ALWAYS, REVIEW)
"""Where rules stand; each is one or several under a glob, and so are twins."""
CATALOGUES = ("tools", TWINS)
"""What is said of tools by their globs, and is no rule."""
INDENT = 2

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EditResult:
    """The text after the change, and the comments that were lost with what they stood in."""

    source: str
    lost: tuple[str, ...] = ()


class RulePosition(NamedTuple):
    """One rule, and where it stands: section, glob, place under it, and whether in a list."""

    section: str
    glob: str
    place: int
    entry: Entry
    path: Path
    """As problems name it."""

    def holds(self, problem_path: str) -> bool:
        """Whether a problem with this path is one of this rule."""
        own = spelled(self.path)
        return problem_path == own or problem_path.startswith((f"{own}.", f"{own}["))


def rows(source: str, sections: Sequence[str] = SECTIONS) -> list[RulePosition]:
    """Every rule of a document in its order. Raises Invalid where it cannot be read."""
    value = read(source).value
    root = (WRAPPER,) if isinstance(value, dict) and WRAPPER in value else ()
    found = []
    for section in sections:
        globs = _inside(value).get(section)
        for glob, given in (globs if isinstance(globs, dict) else {}).items():
            for place, one in enumerate(_many(given)):
                at = (*root, section, glob, *([place] if isinstance(given, list) else []))
                if isinstance(one, dict):
                    found.append(RulePosition(section, glob, place, one, at))
    return found


def entries(source: str) -> list[tuple[str, int, Entry]]:
    """The rules that decide: glob, place under it, what stands there. Raises Invalid."""
    return [(one.glob, one.place, one.entry) for one in rows(source, (RULES,))]


def with_rules(source: str, glob: str, rules: Sequence[Entry], section: str = RULES) -> EditResult:
    """The document in which exactly these rules stand under `glob`; without any, it is taken out.

    Raises Invalid where the document cannot be read.
    """

    def change(globs: dict[str, Any]) -> None:
        globs.pop(glob, None) if not rules else globs.update({glob: _given(rules)})

    def ways(text: _Text) -> Iterable[str | None]:
        name, there = splicing.member(text.section(section), glob)
        if name is None:
            return [text.with_new(section, glob, _given(rules))] if rules else [source]
        if not rules:
            return [text.without_glob(section, glob)]
        put = splicing.value_put(source, there, name, _given(rules), is_json=text.is_json)
        return [splicing.spliced(source, [put])]

    return _changed(source, section, change, ways)


def added(source: str, glob: str, rule: Entry, section: str = RULES) -> EditResult:
    """The document with one more rule under `glob`: a new glob first, another rule of one last."""

    def change(globs: dict[str, Any]) -> None:
        globs[glob] = _given([*_many(globs.get(glob, [])), rule])

    def ways(text: _Text) -> Iterable[str | None]:
        name, there = splicing.member(text.section(section), glob)
        if name is None:
            return [text.with_new(section, glob, dict(rule))]
        many = _given([*_many(text.globs(section)[glob]), rule])
        put = splicing.value_put(source, there, name, many, is_json=text.is_json)
        return [
            splicing.one_more(source, there, name, dict(rule), is_json=text.is_json),
            splicing.spliced(source, [put]),
        ]

    return _changed(source, section, change, ways)


def removed(source: str, glob: str, place: int, section: str = RULES) -> EditResult:
    """The document without the rule at `place` under `glob`; the same where there is none."""
    many = _many((_inside(read(source).value).get(section) or {}).get(glob, []))
    if not 0 <= place < len(many):
        return EditResult(source)
    left = [one for n, one in enumerate(many) if n != place]
    if not left:
        return with_rules(source, glob, [], section)

    def change(globs: dict[str, Any]) -> None:
        globs[glob] = left

    def ways(text: _Text) -> Iterable[str | None]:
        name, there = splicing.member(text.section(section), glob)
        if not isinstance(there, yaml.SequenceNode):
            return []
        take = splicing.without_one if there.flow_style else splicing.lines_without
        out = take(source, there, place)
        put = splicing.value_put(source, there, name, left, is_json=text.is_json)
        return [splicing.spliced(source, [one]) for one in (out, put) if one is not None]

    return _changed(source, section, change, ways)


def replaced(source: str, row: RulePosition, rule: Entry) -> EditResult:
    """The document in which `rule` stands in the place of one, under the same glob."""
    glob, place, section = row.glob, row.place, row.section

    def change(globs: dict[str, Any]) -> None:
        if isinstance(globs[glob], list):
            globs[glob][place] = dict(rule)
        else:
            globs[glob] = dict(rule)

    def ways(text: _Text) -> Iterable[str | None]:
        name, there = splicing.member(text.section(section), glob)
        is_list = isinstance(there, yaml.SequenceNode)
        node, name = (there.value[place], None) if is_list else (there, name)
        is_json = text.is_json
        fields = splicing.fields_changed(source, node, row.entry, rule, is_json=is_json)
        put = splicing.value_put(source, node, name, dict(rule), is_json=is_json)
        return [splicing.spliced(source, one) for one in (fields, [put]) if one is not None]

    return _changed(source, section, change, ways)


def relocated(source: str, row: RulePosition, rule: Entry, glob: str, section: str) -> EditResult:
    """The same under another glob, or in another section."""
    if (glob, section) == (row.glob, row.section):
        return replaced(source, row, rule)
    taken = removed(source, row.glob, row.place, row.section)
    put = added(taken.source, glob, rule, section)
    return EditResult(put.source, _lost(source, put.source))


def moved(source: str, row: RulePosition, step: int) -> EditResult:
    """The document in which a rule stands one place further up (-1) or down (1): among the rules of
    its glob, and at their end the glob with all of its rules; the same where it is the outermost.
    """
    globs = _inside(read(source).value)[row.section]
    order, many = list(globs), _many(globs[row.glob])
    if 0 <= row.place + step < len(many):
        return _swapped(source, row.section, row.glob, min(row.place, row.place + step))
    at = order.index(row.glob)
    if not 0 <= at + step < len(order):
        return EditResult(source)
    return _swapped(source, row.section, None, min(at, at + step))


def _swapped(source: str, section: str, glob: str | None, place: int) -> EditResult:
    def change(globs: dict[str, Any]) -> None:
        if glob is not None:
            many = globs[glob]
            many[place], many[place + 1] = many[place + 1], many[place]
            return
        pairs = list(globs.items())
        pairs[place], pairs[place + 1] = pairs[place + 1], pairs[place]
        globs.clear()
        globs.update(pairs)

    def ways(text: _Text) -> Iterable[str | None]:
        name, node = splicing.member(text.root, section)
        if glob is not None:
            name, node = splicing.member(node, glob)
        return [splicing.swapped(source, node, name, place)]

    return _changed(source, section, change, ways, is_ordered=True)


class _Text:
    """A document as composed nodes. Raises YAMLError where it is none."""

    def __init__(self, source: str, value: Any) -> None:
        self.source, self.value = source, value
        self.is_json = source.lstrip()[:1] == "{"
        self.root = yaml.compose(source, Loader=yaml.SafeLoader)
        if isinstance(value, dict) and WRAPPER in value:
            self.root = splicing.member(self.root, WRAPPER)[1]

    def section(self, name: str) -> Any:
        return splicing.member(self.root, name)[1]

    def globs(self, section: str) -> dict[str, Any]:
        found = _inside(self.value).get(section)
        return found if isinstance(found, dict) else {}

    def with_new(self, section: str, glob: str, given: Any) -> str | None:
        """With a glob that was not there, and the section, where that is missing."""
        is_json = self.is_json
        pair = f"{splicing.flow(glob, is_json=is_json)}: {splicing.flow(given, is_json=is_json)}"
        name, node = splicing.member(self.root, section)
        if isinstance(node, yaml.MappingNode):
            return splicing.first_pair(self.source, node, pair, name)
        if node is not None or not isinstance(self.root, yaml.MappingNode):
            return None
        if self.root.flow_style or WRAPPER in self.value:
            return splicing.first_pair(self.source, self.root, f'"{section}": {{{pair}}}')
        end = "" if self.source.endswith("\n") else "\n"
        return f"{self.source}{end}{section}:\n{' ' * INDENT}{pair}\n"

    def without_glob(self, section: str, glob: str) -> str | None:
        node = self.section(section)
        place = [key.value for key, _ in node.value].index(glob)
        take = splicing.without_one if node.flow_style else splicing.lines_without
        out = take(self.source, node, place)
        if out is None:  # the last one: an object without members is left
            name = splicing.member(self.root, section)[0]
            out = splicing.value_put(self.source, node, name, {}, is_json=self.is_json)
        return splicing.spliced(self.source, [out])


def document_of(source: str) -> dict[str, Any]:
    """The values of a document, without its wrapper. Raises Invalid where it cannot be read."""
    return _inside(read(source).value)


def with_settings(source: str, changes: Mapping[str, Any]) -> EditResult:
    """The document in which these stand under their names; None takes one out.

    Raises Invalid where it cannot be read.
    """
    value = read(source).value
    old = _inside(value)
    if not changes:
        return EditResult(source)
    wanted = json.loads(json.dumps(value))
    into = _inside(wanted)
    for name, one in changes.items():
        into.pop(name, None) if one is None else into.update({name: one})

    def ways(text: _Text) -> Iterable[str | None]:
        spans = splicing.fields_changed(source, text.root, old, into, is_json=text.is_json)
        return [] if spans is None else [splicing.spliced(source, spans)]

    return _written_as(source, value, wanted, ways)


def _changed(
    source: str,
    section: str,
    change: Callable[[dict[str, Any]], None],
    ways: Callable[[_Text], Iterable[str | None]],
    *,
    is_ordered: bool = False,
) -> EditResult:
    """A section after `change`, written in the first of the `ways` that reads so."""
    value = read(source).value
    inside = _inside(value)
    wanted = json.loads(json.dumps(value))
    globs = inside.get(section)
    if globs is not None and not isinstance(globs, dict):
        raise Invalid([Mistake(f"“{section}” is no object")])
    into = _inside(wanted)
    into[section] = into.get(section) or {}
    change(into[section])
    return _written_as(source, value, wanted, ways, is_ordered=is_ordered)


def _written_as(
    source: str,
    value: Any,
    wanted: Any,
    ways: Callable[[_Text], Iterable[str | None]],
    *,
    is_ordered: bool = False,
) -> EditResult:
    """The first of the `ways` to write it that reads as what is wanted; in that order only where
    the order is the change.
    """
    try:
        found = list(ways(_Text(source, value)))
    except yaml.YAMLError:
        found = []
    for text in found:
        if text is not None and _reads_as(text, wanted, is_ordered=is_ordered):
            return EditResult(text, _lost(source, text))
    text = _written(source, wanted)
    return EditResult(text, _lost(source, text))


def _reads_as(text: str, wanted: Any, *, is_ordered: bool) -> bool:
    try:
        found = read(text).value
    except Invalid:
        return False
    return bool(found == wanted) and (not is_ordered or json.dumps(found) == json.dumps(wanted))


def _inside(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Invalid([Mistake("an object is wanted here")])
    inner = value.get(WRAPPER, value)
    return inner if isinstance(inner, dict) else {}


def _many(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _given(rules: Sequence[Entry]) -> Any:
    return dict(rules[0]) if len(rules) == 1 else [dict(one) for one in rules]


def _written(source: str, value: Any) -> str:
    if source.lstrip()[:1] == "{":
        return json.dumps(value, indent=INDENT, ensure_ascii=False) + "\n"
    text: str = yaml.safe_dump(value, allow_unicode=True, sort_keys=False, width=120)
    return text


def _lost(source: str, text: str) -> tuple[str, ...]:
    kept = _comments(text)
    return tuple(one for one in _comments(source) if one not in kept)


def _comments(source: str) -> list[str]:
    """The comments of a YAML text, each as it stands; JSON has none."""
    if source.lstrip()[:1] == "{":
        return []
    found = []
    ends = [
        (token.start_mark.index, token.end_mark.index)
        for token in yaml.scan(source)
        if isinstance(token, yaml.ScalarToken)
    ]
    place = 0
    for line in source.splitlines(keepends=True):
        for column, character in enumerate(line):
            at = place + column
            starts = column == 0 or line[column - 1] in " \t"
            if character == "#" and starts and not any(a <= at < b for a, b in ends):
                found.append(line[column:].strip())
                break
        place += len(line)
    return found
