"""`python -m amends verify FILE --key KEY`: check a proof offline."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from amends import proofs


def main(arguments: list[str] | None = None) -> int:
    """0 if proven, 1 if not, 2 if it could not be checked."""
    parser = argparse.ArgumentParser(prog="python -m amends")
    commands = parser.add_subparsers(required=True)
    verify = commands.add_parser("verify", help="check a proof or a downloaded correction offline")
    verify.add_argument("file", type=Path, help="a .tlog-proof file or a downloaded correction")
    verify.add_argument(
        "--key", action="append", required=True,
        help="the log's public key, or a file that holds it; may be given several times",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    try:
        keys = [proofs.LogKey.parse(line) for given in options.key for line in _key_lines(given)]
        found = proofs.verify(_text(options.file), keys)
    except proofs.NotProven as reason:
        _say(f"NOT PROVEN: {reason}")
        return 1
    except (proofs.NeedsVerifyExtra, OSError, UnicodeDecodeError) as reason:
        sys.stderr.write(f"Could not check: {reason}\n")
        return 2
    _say(_report(found))
    return 0


def _key_lines(given: str) -> list[str]:
    text = given if "+" in given and not Path(given).is_file() else _text(Path(given))
    return [line for line in text.splitlines() if line.strip()]


def _text(path: Path) -> str:
    if path.stat().st_size > proofs.FILE_BYTES_MAX:
        raise OSError(f"{path} is larger than {proofs.FILE_BYTES_MAX} bytes")
    return path.read_text(encoding="utf-8")


def _report(found: proofs.Verified) -> str:
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
    return "\n".join(lines)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
