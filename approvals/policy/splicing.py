"""Putting a value into a YAML or JSON text, out of it, or elsewhere in it, by the places of nodes.

Each function gives the text after the change, or None where the text has a form that it does not
know. Nobody relies on what it gives before it was read again (approvals/policy/editing.py).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

Span = tuple[int, int, str]
"""From where to where in the text, and what stands there instead."""


def flow(value: Any, *, is_json: bool) -> str:
    """A value in one line."""
    if is_json:
        return json.dumps(value, ensure_ascii=False)
    text: str = yaml.safe_dump(
        value, default_flow_style=True, allow_unicode=True, sort_keys=False, width=10**6
    )
    return text.removesuffix("\n").removesuffix("\n...")


def member(node: Any, name: str) -> tuple[Any, Any]:
    """The nodes of a name and of its value; None and None where it is not there."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next(((key, value) for key, value in pairs if key.value == name), (None, None))


def is_block(node: Any) -> bool:
    return isinstance(node, yaml.CollectionNode) and not node.flow_style


def end_of(source: str, node: Any) -> int:
    """Behind the last character of a node, without the comments and the blank that follow it."""
    if is_block(node) and node.value:
        last = node.value[-1]
        return end_of(source, last[1] if isinstance(node, yaml.MappingNode) else last)
    start, end = node.start_mark.index, node.end_mark.index
    text: str = source[start:end]
    return int(start) + len(text.rstrip())


def spliced(source: str, spans: Sequence[Span]) -> str | None:
    """All of these put in, at one place in their order; None where they overlap."""
    text, before = source, len(source) + 1
    in_order = sorted(spans, key=lambda one: one[:2])
    for start, end, words in in_order[::-1]:
        if end > before or start > end:
            return None
        text, before = text[:start] + words + text[end:], start
    return text


def value_put(source: str, node: Any, name: Any, value: Any, *, is_json: bool) -> Span:
    """The span that puts `value` in the place of a node, which stands under `name` or in a list."""
    words, start = flow(value, is_json=is_json), node.start_mark.index
    if name is not None and is_block(node) and node.start_mark.line != name.start_mark.line:
        start, words = name.end_mark.index + 1, f" {words}"
    return start, end_of(source, node), words


def fields_changed(
    source: str, node: Any, old: Mapping[str, Any], new: Mapping[str, Any], *, is_json: bool
) -> list[Span] | None:
    """Field by field, so that what is not changed keeps its spelling and its comments."""
    if not isinstance(node, yaml.MappingNode) or not node.value:
        return None
    spans: list[Span] = []
    for place, (name, value) in enumerate(node.value):
        if name.value not in new:
            out = _without_pair(source, node, place)
            if out is None:
                return None
            spans.append(out)
        elif (before := old.get(name.value)) != (after := new[name.value]):
            inner = None
            if after and isinstance(before, Mapping) and isinstance(after, Mapping):
                inner = fields_changed(source, value, before, after, is_json=is_json)
            whole = value_put(source, value, name, after, is_json=is_json)
            spans += [whole] if inner is None else inner
    more = [
        f"{flow(name, is_json=is_json)}: {flow(value, is_json=is_json)}"
        for name, value in new.items()
        if name not in old
    ]
    if more:
        spans.append(_more_pairs(source, node, more))
    return spans


def _more_pairs(source: str, node: Any, more: Sequence[str]) -> Span:
    end = end_of(source, node.value[-1][1])
    if node.flow_style:
        return end, end, "".join(f", {one}" for one in more)
    indent = " " * node.value[0][0].start_mark.column
    at = line_end(source, end)
    lines = "".join(f"{indent}{one}\n" for one in more)
    return at, at, lines if source[:at].endswith("\n") else f"\n{lines}"


def _without_pair(source: str, node: Any, place: int) -> Span | None:
    name, value = node.value[place]
    start, end = name.start_mark.index, end_of(source, value)
    if node.flow_style:
        return without_one(source, node, place)
    at = line_start(source, start)
    if source[at:start].strip():  # behind the dash of a list
        return None
    return at, line_end(source, end), ""


def without_one(source: str, node: Any, place: int) -> Span | None:
    """The span that takes one of several out of a collection in one line, with its comma."""
    if len(node.value) == 1:
        return None
    if place + 1 < len(node.value):
        return _start(node, place), _start(node, place + 1), ""
    return _end(source, node, place - 1), _end(source, node, place), ""


def lines_without(source: str, node: Any, place: int) -> Span | None:
    """The same of one that stands in lines of its own; what stands above it is left."""
    if len(node.value) == 1:
        return None
    at = line_start(source, _start(node, place))
    return at, line_end(source, _end(source, node, place)), ""


def one_more(source: str, node: Any, name: Any, value: Any, *, is_json: bool) -> str | None:
    """`value` behind the one or the several that stand under `name`, which become a list."""
    words = flow(value, is_json=is_json)
    start, end = node.start_mark.index, end_of(source, node)
    if isinstance(node, yaml.MappingNode) and node.flow_style:
        return spliced(source, [(start, start, "["), (end, end, f", {words}]")])
    if not node.value or not isinstance(node, yaml.CollectionNode):
        return None
    if node.flow_style:
        last = _end(source, node, len(node.value) - 1)
        return spliced(source, [(last, last, f", {words}")])
    if node.start_mark.line == name.start_mark.line:
        return None
    first, after = line_start(source, start), line_end(source, end)
    lines, column = source[first:after], node.start_mark.column
    if isinstance(node, yaml.MappingNode):
        deeper = ["  " + line if line.strip() else line for line in lines.splitlines(keepends=True)]
        deeper[0] = f"{' ' * column}- {deeper[0].lstrip()}"
        lines = "".join(deeper)
    lines += "" if lines.endswith("\n") else "\n"
    return f"{source[:first]}{lines}{' ' * column}- {words}\n{source[after:]}"


def first_pair(source: str, node: Any, pair: str, name: Any = None) -> str:
    """One more name with its value, before all others of a mapping, which stands under `name`; the
    comments above the first stay above it.
    """
    if node.flow_style:
        place = node.start_mark.index + 1
        return f"{source[:place]}{pair}{', ' if node.value else ''}{source[place:]}"
    first = node.value[0][0].start_mark
    start = first.index - first.column
    if name is not None and name.end_mark.line < first.line:
        start = line_end(source, name.end_mark.index)
    return f"{source[:start]}{' ' * first.column}{pair}\n{source[start:]}"


def swapped(source: str, node: Any, name: Any, place: int) -> str | None:
    """The one at `place` of a collection, which stands under `name`, and the next one, each in the
    other's place, with the comments above it.
    """
    if node.flow_style:
        spans = [(_start(node, n), _end(source, node, n)) for n in (place, place + 1)]
        (a, b), (c, d) = spans
        return spliced(source, [(a, b, source[c:d]), (c, d, source[a:b])])
    if node.start_mark.line == name.start_mark.line:
        return None
    source += "" if source.endswith("\n") else "\n"
    above = _end(source, node, place - 1) if place else name.end_mark.index
    start = line_end(source, above)
    middle, end = (line_end(source, _end(source, node, n)) for n in (place, place + 1))
    return source[:start] + source[middle:end] + source[start:middle] + source[end:]


def _start(node: Any, place: int) -> int:
    one = node.value[place]
    index: int = (one[0] if isinstance(node, yaml.MappingNode) else one).start_mark.index
    return index


def _end(source: str, node: Any, place: int) -> int:
    one = node.value[place]
    return end_of(source, one[1] if isinstance(node, yaml.MappingNode) else one)


def line_start(source: str, place: int) -> int:
    return source.rfind("\n", 0, place) + 1


def line_end(source: str, place: int) -> int:
    """Behind the end of the line in which `place` stands."""
    found = source.find("\n", place)
    return len(source) if found < 0 else found + 1
