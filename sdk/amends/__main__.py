"""`amends`, or `python -m amends`: `verify` checks a proof offline, `aside` shows what could not be
sent, `policy` checks and applies a policy's file (docs/policy-api.md), `mcp-gateway`, `mcp-twins`
and `mcp-server` are for MCP (docs/mcp.md).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from amends import policy_file
from amends.client import default_spool
from amends.errors import in_words
from amends.mcp import commands as mcp
from amends.protocol import exports, proofs, signatures
from amends.spool import Spool


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
    policy_file.add(commands, _say)
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


def _say(*lines: str) -> None:
    sys.stdout.writelines(f"{_seen(line)}\n" for line in lines)


def _seen(text: object) -> str:
    """In one line, with what a terminal would obey or hide shown by its number: a file that proves
    nothing must not write “Proven” over what is said of it.
    """
    return "".join(one if one.isprintable() else f"⟦U+{ord(one):04X}⟧" for one in str(text))


if __name__ == "__main__":
    sys.exit(main())
