"""The policy as a file: checked against a desk before it is merged, put in force after it.

`amends policy check` and `apply` are for CI, by the token of a person who administers
(AMENDS_TOKEN). Nothing is kept here: the desk judges, and says no in its own words.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from amends.errors import AmendsError, Refused, in_words
from amends.wire import Wire

FILE_BYTES_MAX = 1024 * 1024
ANSWER_SECONDS_MAX = 60.0
"""A month's calls and each open question are judged before the desk answers."""
DIFF_LINES_MAX = 200
"""A comment of a pull request has an end."""
Say = Callable[[str], None]


class SaidNo(Exception):
    """We stopped because the desk says no; `lines` say why, and where in the file."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


def add(commands: Any, say: Say) -> None:
    """Add `policy` to the commands; `say` prints one line."""
    policy = commands.add_parser("policy", help="check a policy's file, or put it in force")
    acts = policy.add_subparsers(required=True)
    check = acts.add_parser("check", help="what is wrong with it, or what it would have said")
    put = acts.add_parser("apply", help="save it as a version and put that in force")
    for act in (check, put):
        act.add_argument("file", type=Path, help="the document, JSON or YAML")
    put.add_argument("--note", default="", help="why, in a sentence")
    put.add_argument(
        "--over", type=Path, metavar="FILE",
        help="the document that has to be in force now, as the repository had it before",
    )  # fmt: skip
    check.set_defaults(act=lambda options: _asked(options, say, _check))
    put.set_defaults(act=lambda options: _asked(options, say, _apply))


Act = Callable[[argparse.Namespace, Wire, Say], int]


def _asked(options: argparse.Namespace, say: Say, act: Act) -> int:
    """0 where it is so, 1 where the desk says no, 2 where it could not be asked."""
    url, token = os.environ.get("AMENDS_URL", ""), os.environ.get("AMENDS_TOKEN", "")
    if not url or not token:
        say("Set AMENDS_URL, and AMENDS_TOKEN to a person's token: Settings, API tokens")
        return 2
    try:
        wire = Wire(url, token, read_seconds=ANSWER_SECONDS_MAX)
        try:
            return act(options, wire, say)
        finally:
            wire.close()
    except SaidNo as no:
        for line in no.lines:
            say(line)
        return 1
    except (AmendsError, OSError, ValueError) as wrong:
        say(f"Could not ask: {wrong}")
        return 2


def _check(options: argparse.Namespace, wire: Wire, say: Say) -> int:
    for line in _report(options.file, _looked_at(wire, options.file)):
        say(line)
    return 0


def _apply(options: argparse.Namespace, wire: Wire, say: Say) -> int:
    found = _looked_at(wire, options.file)
    number, seen = found["number"], found["in_force"]
    if found["digest"] == seen:
        say(f"{options.file} is in force already: version {number}.")
        return 0
    if options.over is not None and not _is_in_force(wire, options.over, seen):
        say(
            f"Version {number} is in force, and it is not {options.over}: bring what was changed"
            " on the page into the repository first."
            if number
            else f"No version is in force, so {options.over} is not: leave --over out this time."
        )
        return 1
    asked = {"source": _text(options.file), "note": options.note, "after": found["newest"]}
    saved = _post(wire, "policies", asked, options.file)["number"]
    try:
        _post(wire, f"policies/{saved}/activate", {"seen": seen}, options.file)
    except SaidNo:
        say(f"Version {saved} is saved, and not in force.")
        raise
    say(f"Version {saved} is in force.")
    return 0


def _is_in_force(wire: Wire, over: Path, seen: str) -> bool:
    """Whether it is the document that was `seen` in force; by its text first, for the desk may no
    longer take it: a team that it names has gone.
    """
    now = wire.get("policies/in-force")
    if (now["digest"], now["source"]) == (seen, _text(over)):
        return True
    return bool(_looked_at(wire, over)["digest"] == seen)


def _looked_at(wire: Wire, file: Path) -> dict[str, Any]:
    return _post(wire, "policies/check", {"source": _text(file)}, file)


def _post(wire: Wire, path: str, body: dict[str, Any], file: Path) -> dict[str, Any]:
    """What the desk answers. Raises SaidNo, or as `Wire` does where it is not the desk's answer."""
    try:
        return wire.post(path, json.dumps(body, ensure_ascii=False).encode())
    except Refused as refused:
        if not refused.is_the_desks:
            raise
        raise SaidNo(list(_mistakes(file, refused.problem))) from refused


def _text(file: Path) -> str:
    with file.open("rb") as opened:
        found = opened.read(FILE_BYTES_MAX + 1)
    if len(found) > FILE_BYTES_MAX:
        raise OSError(f"{file} is larger than {FILE_BYTES_MAX} bytes")
    try:
        return found.decode()
    except UnicodeDecodeError as wrong:
        raise ValueError(f"{file} is no text in UTF-8") from wrong


def _mistakes(file: Path, problem: dict[str, Any]) -> Iterator[str]:
    """As compilers tell them, so that editors and CI find the place; else the problem in words."""
    for one in problem.get("problems") or ():
        at = f"{file}:{one['line']}:{one['column']}" if one.get("line") else str(file)
        yield f"{at}: {one['path'] + ': ' if one.get('path') else ''}{one['message']}"
    if not problem.get("problems"):
        yield in_words(problem)
    if waiting := problem.get("approvals"):
        yield f"Approvals that wait: {', '.join(map(str, waiting))}"


def _report(file: Path, found: dict[str, Any]) -> Iterator[str]:
    number = found["number"]
    instead = f"version {number}" if number else "the defaults"
    if found["digest"] == found["in_force"]:
        yield f"{file} is in force: version {number}."
        return
    yield f"{file} is a policy. It would take the place of {instead}."
    yield from _tried(found["dry_run"])
    if not number:
        return
    yield "The difference:"
    diff = found["diff"]
    yield from (f"  {line}" for line in diff[:DIFF_LINES_MAX])
    if len(diff) > DIFF_LINES_MAX:
        yield f"  and {len(diff) - DIFF_LINES_MAX} lines more"


def _tried(found: dict[str, Any] | None) -> Iterator[str]:
    """What a dry run says; of none, why there is none."""
    if found is None:
        yield "The policy in force cannot be read, so there is no dry run."
        return
    yield found["words"]
    for one in found["changes"]:
        told = f"{one['was']} becomes {one['becomes']}. {one['why']}"
        yield f"- {one['tool']} in {one['run']}: {told}"
    yield from (f"- {words}" for words in (*found["open_questions"], *found["cannot_run"]))
