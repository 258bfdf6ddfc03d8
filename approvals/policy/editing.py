"""Changing one rule in the text of a policy, with everything else as its author wrote it.

The table of rules and the document beside it are one: a change in the table is a change of its
text. Comments, order and spelling stay, but for those inside the rule that is replaced.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from approvals.policy.reading import Invalid, Problem, read

WRAPPER = "agentSafety"
RULES = "policies"
INDENT = 2

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Edited:
    """The text after the change, and the comments that were lost with what they stood in."""

    source: str
    lost: tuple[str, ...] = ()


def entries(source: str) -> list[tuple[str, int, Entry]]:
    """Every rule of a document in its order: glob, place under it, what stands there. Raises
    Invalid where it cannot be read.
    """
    rules = _inside(read(source).value).get(RULES)
    found: list[tuple[str, int, Entry]] = []
    for glob, given in (rules if isinstance(rules, dict) else {}).items():
        many = given if isinstance(given, list) else [given]
        found += [(glob, place, one) for place, one in enumerate(many) if isinstance(one, dict)]
    return found


def with_rules(source: str, glob: str, rules: Sequence[Entry]) -> Edited:
    """The document in which exactly these rules stand under `glob`; without any, it is taken out.

    Raises Invalid where the document cannot be read.
    """
    value = read(source).value
    wanted = _changed(value, glob, rules)
    text = _edited(source, value, glob, rules)
    try:
        is_same = text is not None and read(text).value == wanted
    except Invalid:
        is_same = False
    if text is None or not is_same:
        text = _written(source, wanted)
    kept = _comments(text)
    return Edited(text, tuple(one for one in _comments(source) if one not in kept))


def added(source: str, glob: str, rule: Entry) -> Edited:
    """The document with one more rule under `glob`."""
    return with_rules(source, glob, [*_under(source, glob), rule])


def removed(source: str, glob: str, place: int) -> Edited:
    """The document without the rule at `place` under `glob`; the same where there is none."""
    rules = _under(source, glob)
    return with_rules(source, glob, [one for n, one in enumerate(rules) if n != place])


def _under(source: str, glob: str) -> list[Entry]:
    return [one for name, _, one in entries(source) if name == glob]


def _inside(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Invalid([Problem("an object is wanted here")])
    inner = value.get(WRAPPER, value)
    return inner if isinstance(inner, dict) else {}


def _given(rules: Sequence[Entry]) -> Any:
    return dict(rules[0]) if len(rules) == 1 else [dict(one) for one in rules]


def _changed(value: Any, glob: str, rules: Sequence[Entry]) -> Any:
    whole = json.loads(json.dumps(value))
    inner = whole.get(WRAPPER, whole)
    under = inner.get(RULES) or {}
    under.pop(glob, None) if not rules else under.update({glob: _given(rules)})
    inner[RULES] = under
    return whole


def _edited(source: str, value: Any, glob: str, rules: Sequence[Entry]) -> str | None:
    """By the places in the text; None where it has a form that this does not know."""
    try:
        node = yaml.compose(source, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return None
    if isinstance(value, dict) and WRAPPER in value:
        node = _member(node, WRAPPER)[1]
    if not isinstance(node, yaml.MappingNode):
        return None
    is_json = source.lstrip()[0] == "{"
    policies = _member(node, RULES)[1]
    if not isinstance(policies, yaml.MappingNode):
        return None
    name, there = _member(policies, glob)
    written = _flow(_given(rules), is_json=is_json)
    if not rules:
        return _without(source, policies, name, there) if name is not None else source
    if name is None:
        return _inserted(source, policies, f"{_flow(glob, is_json=is_json)}: {written}")
    start, end = there.start_mark.index, there.end_mark.index
    tail = source[start:end]
    end -= len(tail) - len(tail.rstrip())
    if there.start_mark.line != name.start_mark.line and not there.flow_style:
        start = name.end_mark.index + 1
        written = f" {written}"
    return source[:start] + written + source[end:]


def _member(node: Any, name: str) -> tuple[Any, Any]:
    """The nodes of a name and of its value; None and None where it is not there."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next(((key, value) for key, value in pairs if key.value == name), (None, None))


def _inserted(source: str, policies: Any, line: str) -> str:
    if policies.flow_style:
        place = policies.start_mark.index + 1
        return f"{source[:place]}{line}{', ' if policies.value else ''}{source[place:]}"
    first = policies.value[0][0].start_mark
    start = first.index - first.column
    return f"{source[:start]}{' ' * first.column}{line}\n{source[start:]}"


def _without(source: str, policies: Any, name: Any, there: Any) -> str | None:
    if policies.flow_style or len(policies.value) == 1:
        return None
    start = name.start_mark.index - name.start_mark.column
    tail = source[start : there.end_mark.index].rstrip()
    return source[:start] + source[start + len(tail) :].partition("\n")[2]


def _flow(value: Any, *, is_json: bool) -> str:
    if is_json:
        return json.dumps(value, ensure_ascii=False)
    text: str = yaml.safe_dump(
        value, default_flow_style=True, allow_unicode=True, sort_keys=False, width=10**6
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _written(source: str, value: Any) -> str:
    if source.lstrip()[0] == "{":
        return json.dumps(value, indent=INDENT, ensure_ascii=False) + "\n"
    text: str = yaml.safe_dump(value, allow_unicode=True, sort_keys=False, width=120)
    return text


def _comments(source: str) -> list[str]:
    """The comments of a YAML text, each as it stands; JSON has none."""
    if source.lstrip()[:1] == "{":
        return []
    found = []
    ends = [(token.start_mark.index, token.end_mark.index) for token in _scalars(source)]
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


def _scalars(source: str) -> list[Any]:
    return [one for one in yaml.scan(source) if isinstance(one, yaml.ScalarToken)]
