"""`amends`, or `python -m amends`: `verify` checks a proof offline, `aside` shows what could not be
sent, `policy` checks and applies a policy's file (docs/policy-api.md), `mcp-gateway`, `mcp-twins`
and `mcp-server` are for MCP (docs/mcp.md).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from amends.client import default_spool
from amends.errors import AmendsError, Refused, in_words
from amends.mcp import commands as mcp
from amends.protocol import exports, proofs, signatures
from amends.spool import Spool
from amends.wire import Wire


def main(arguments: list[str] | None = None) -> int:
    """0 if proven or nothing is set aside, 1 if not, 2 if it could not be checked."""
    parser = argparse.ArgumentParser(prog="amends")
    commands = parser.add_subparsers(required=True)
    verify = commands.add_parser("verify", help="check a proof, a download or an export offline")
    verify.add_argument(
        "file", type=Path, help="a .tlog-proof file, a download, or the folder of an export"
    )
    verify.add_argument(
        "--key", action="append", required=True,
        help="the log's public key, or a file that holds it; may be given several times",
    )  # fmt: skip
    verify.set_defaults(act=_verify)
    aside = commands.add_parser("aside", help="events that were refused and are kept on disk")
    aside.add_argument("id", nargs="*", help="of the events that --retry is about; none: all")
    aside.add_argument(
        "--spool", type=Path, help="the file; else AMENDS_SPOOL, or AMENDS_URL and AMENDS_KEY"
    )
    aside.add_argument("--retry", action="store_true", help="put them back in line to be sent")
    aside.set_defaults(act=_aside)
    _add_policy(commands)
    mcp.add(commands)
    options = parser.parse_args(arguments)
    found: int = options.act(options)
    return found


def _verify(options: argparse.Namespace) -> int:
    try:
        keys = [proofs.LogKey.parse(line) for given in options.key for line in _key_lines(given)]
        if options.file.is_dir():
            _say(*_report_of_export(exports.verify_export(options.file, keys)))
            return 0
        found, signed = signatures.verify(_text(options.file), keys)
    except proofs.NotProven as reason:
        _say(f"NOT PROVEN: {reason}")
        return 1
    except (proofs.NeedsVerifyExtra, OSError, UnicodeDecodeError) as reason:
        sys.stderr.write(f"Could not check: {_seen(reason)}\n")
        return 2
    _say(*_report(found, signed))
    return 0


def _aside(options: argparse.Namespace) -> int:
    """Show what is set aside, or put it back in line: the agent sends it, now or when it starts."""
    url, key = os.environ.get("AMENDS_URL", ""), os.environ.get("AMENDS_KEY", "")
    path = options.spool or default_spool(url, key)
    if not path.is_file():
        sys.stderr.write(f"There is no spool at {path}. Name it with --spool or AMENDS_SPOOL.\n")
        return 2
    spool = Spool(path)
    try:
        if options.retry:
            found = spool.unpark(options.id or None)
            _say(f"{found} events are in line again, and sent by the agent that keeps {path}.")
            return 0
        for event, problem in spool.parked():
            _say(f"{event['id']}  {event['type']}  {event['run']}  {in_words(problem)}")
        found = spool.count_parked()
    finally:
        spool.close()
    _say(f"{found} events are set aside in {path}." if found else "Nothing is set aside.")
    return 1 if found else 0


def _key_lines(given: str) -> list[str]:
    text = given if "+" in given and not Path(given).is_file() else _text(Path(given))
    lines = ((line, line.strip()) for line in text.split("\n"))
    return [line for line, plain in lines if plain and not plain.startswith("#")]


def _text(path: Path) -> str:
    if path.stat().st_size > proofs.FILE_BYTES_MAX:
        raise OSError(f"{path} is larger than {proofs.FILE_BYTES_MAX} bytes")
    return path.read_bytes().decode("utf-8-sig")  # every end of a line as it is


def _report_of_export(found: exports.VerifiedExport) -> list[str]:
    of = f" of {found.workspace}" if found.workspace else ""
    gone = found.size - found.events
    return [
        f"Proven: all {found.size} entries{of} under the signed head of {found.origin}.",
        f"{found.events} events are the ones that were recorded; those of {gone} are not there.",
    ]


def _report(found: proofs.Verified, signed: signatures.Assertion | None) -> list[str]:
    leaf = found.leaf
    lines = [
        f"Proven: entry {found.index} of {found.size} in the log {found.origin}.",
        f"  event      {leaf.get('event')} ({leaf.get('type')})",
        f"  workspace  {leaf.get('workspace')}",
        f"  received   {leaf.get('received')}",
        f"  actor      {leaf.get('actor')}",
        f"  digest     {leaf.get('digest')}",
    ]
    if found.event is not None:
        lines.append("What the file says is what was recorded: its digest is in the log.")
    if signed is not None:
        lines.append(
            f"Its person signed it on {signed.origin}, with a key that was on record before it was"
            " asked."
        )
    return lines


# The policy as a file: checked against a desk before it is merged, and put in force after it, by CI
# with the token of a person who administers (AMENDS_TOKEN). Nothing is kept here: the desk judges,
# and says no in its own words.

POLICY_BYTES_MAX = 1024 * 1024
ANSWER_SECONDS_MAX = 60.0
"""A month's calls and each open question are judged before the desk answers."""
DIFF_LINES_MAX = 200
"""A comment of a pull request has an end."""


class SaidNo(Exception):
    """We stopped because the desk says no; `lines` say why, and where in the file."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


def _add_policy(commands: Any) -> None:
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
    check.set_defaults(act=partial(_ask_desk, _check))
    put.set_defaults(act=partial(_ask_desk, _apply))


def _ask_desk(act: Callable[[argparse.Namespace, Wire], int], options: argparse.Namespace) -> int:
    """0 where it is so, 1 where the desk says no, 2 where it could not be asked."""
    url, token = os.environ.get("AMENDS_URL", ""), os.environ.get("AMENDS_TOKEN", "")
    if not url or not token:
        _say("Set AMENDS_URL, and AMENDS_TOKEN to a person's token: Settings, API tokens")
        return 2
    try:
        wire = Wire(url, token, read_seconds=ANSWER_SECONDS_MAX)
        try:
            return act(options, wire)
        finally:
            wire.close()
    except SaidNo as no:
        _say(*no.lines)
        return 1
    except (AmendsError, OSError, ValueError) as wrong:
        _say(f"Could not ask: {wrong}")
        return 2


def _check(options: argparse.Namespace, wire: Wire) -> int:
    _say(*_report_of_policy(options.file, _looked_at(wire, options.file)))
    return 0


def _apply(options: argparse.Namespace, wire: Wire) -> int:
    found = _looked_at(wire, options.file)
    number, seen = found["number"], found["in_force"]
    if found["digest"] == seen:
        _say(f"{options.file} is in force already: version {number}.")
        return 0
    if options.over is not None and (why := _why_not_over(wire, options.over, found)):
        _say(why)
        return 1
    asked = {"source": _document(options.file), "note": options.note, "after": found["newest"]}
    saved = _post(wire, "policies", asked, options.file)["number"]
    try:
        _post(wire, f"policies/{saved}/activate", {"seen": seen}, options.file)
    except SaidNo:
        _say(f"Version {saved} is saved, and not in force.")
        raise
    _say(f"Version {saved} is in force.")
    return 0


def _why_not_over(wire: Wire, over: Path, found: dict[str, Any]) -> str:
    """Why what is in force is not this document, empty where it is; by its text first, for the desk
    may no longer take it: a team that it names has gone.
    """
    number, seen = found["number"], found["in_force"]
    now = wire.get("policies/in-force")
    if (now["digest"], now["source"]) == (seen, _document(over)):
        return ""
    digest = _looked_at(wire, over)["digest"]
    if digest == seen:
        return ""
    if not number:
        return f"No version is in force, so {over} is not: leave --over out this time."
    known = wire.get("policies", params={"limit": "1000"})["policies"]
    saved = [one["number"] for one in known if one["digest"] == digest and not one["activated_at"]]
    if saved:
        return (
            f"Version {number} is in force, and not {over}, which was saved as version {saved[0]}"
            " and never put in force: an earlier apply was refused. Give --over the document that"
            f" version {number} is."
        )
    return (
        f"Version {number} is in force, and it is not {over}: bring what was changed on the page"
        " into the repository first."
    )


def _looked_at(wire: Wire, file: Path) -> dict[str, Any]:
    return _post(wire, "policies/check", {"source": _document(file)}, file)


def _post(wire: Wire, path: str, body: dict[str, Any], file: Path) -> dict[str, Any]:
    """What the desk answers. Raises SaidNo, or as `Wire` does where it is not the desk's answer."""
    try:
        return wire.post(path, json.dumps(body, ensure_ascii=False).encode())
    except Refused as refused:
        if not refused.is_the_desks:
            raise
        raise SaidNo(list(_mistakes(file, refused.problem))) from refused


def _document(file: Path) -> str:
    with file.open("rb") as opened:
        found = opened.read(POLICY_BYTES_MAX + 1)
    if len(found) > POLICY_BYTES_MAX:
        raise OSError(f"{file} is larger than {POLICY_BYTES_MAX} bytes")
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


def _report_of_policy(file: Path, found: dict[str, Any]) -> Iterator[str]:
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


def _say(*lines: str) -> None:
    sys.stdout.writelines(f"{_seen(line)}\n" for line in lines)


def _seen(text: object) -> str:
    """In one line, with what a terminal would obey or hide shown by its number: a file that proves
    nothing must not write “Proven” over what is said of it.
    """
    return "".join(one if one.isprintable() else f"⟦U+{ord(one):04X}⟧" for one in str(text))


if __name__ == "__main__":
    sys.exit(main())
