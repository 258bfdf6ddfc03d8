"""`amends`, or `python -m amends`: `verify` checks a proof offline, `aside` shows what could not be
sent, `policy` checks and applies a policy's file (docs/policy-api.md), `mcp-gateway`, `mcp-twins`
and `mcp-server` are for MCP (docs/mcp.md).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from amends.client import connect, default_spool
from amends.errors import AmendsError, Refused, in_words
from amends.mcp.mapping import Mapped, ResourceKind, Safe, Template, default_safe, load
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
    _add_mcp(commands)
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


# MCP: between a client and a server, the desk's way to undo, and an agent's own record. What needs
# the extra is imported where it is used, so that the other commands do without.

WAIT_SECONDS = 3600.0
NEEDS = "This needs the extra: pip install 'amends[mcp]' (%s)\n"
OF_TOOLS = (
    ("--target", "TOOL=ARG", "the argument that names what a tool changes"),
    ("--reads", "TOOL", "a tool that only reads, by your word and not by the server's"),
    ("--repeatable", "TOOL", "a tool that is run again when it is called alike again"),
    ("--snapshot", "TOOL=READTOOL:ARG", "read, before and after, what ARG of TOOL names"),
)


def _add_mcp(commands: Any) -> None:
    gateway = commands.add_parser(
        "mcp-gateway",
        help="stand between an MCP client and a server: amends mcp-gateway -- SERVER…",
    )
    _of_server(gateway)
    gateway.add_argument("--listen", metavar="HOST:PORT", help="serve streamable HTTP, not stdio")
    many: dict[str, Any] = {"action": "append", "default": []}
    for option, form, about in OF_TOOLS:
        gateway.add_argument(option, metavar=form, help=about, **many)
    gateway.add_argument("--prefix", default="", help="before each tool's name at the desk: files.")
    gateway.add_argument("--run", help="the run that all calls belong to; you end it yourself")
    gateway.add_argument("--on-behalf-of", metavar="ID=NAME", help="the person it is done for")
    gateway.add_argument("--wait-seconds", type=float, default=WAIT_SECONDS,
                         help="how long a call waits for people (%(default)s)")  # fmt: skip
    gateway.set_defaults(act=partial(_serve, _gateway))
    twins = commands.add_parser(
        "mcp-twins", help="the desk's way to undo over an MCP server: amends mcp-twins -- SERVER…"
    )
    _of_server(twins)
    twins.add_argument("--listen", required=True, metavar="HOST:PORT")
    twins.set_defaults(act=partial(_serve, _twins))
    server = commands.add_parser("mcp-server", help="an agent's own runs, as an MCP server (stdio)")
    server.set_defaults(act=partial(_serve, _server))


def _of_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", nargs="*", metavar="SERVER", help="the server's program")
    parser.add_argument("--url", help="the address of a remote server, instead of a program")
    parser.add_argument("--tools", type=Path, metavar="FILE.toml", help="what its tools change")


async def _gateway(options: argparse.Namespace) -> None:
    from amends.mcp import transports
    from amends.mcp.gateway import Settings

    _check_server(options)
    person = None
    if options.on_behalf_of:
        who, _, name = options.on_behalf_of.partition("=")
        person = {"id": who, "name": name or who}
    async with connect(heeds_sigterm=False) as desk:
        settings = Settings(
            desk, _mapped(options), Safe(default_safe()), prefix=options.prefix, run=options.run,
            on_behalf_of=person, wait_seconds=options.wait_seconds,
        )  # fmt: skip
        open_server = transports.server_at(options.command, options.url)
        if options.listen:
            await transports.over_http(settings, open_server, *_address(options.listen))
        else:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - asyncio.run gave us one
            with contextlib.suppress(NotImplementedError):  # Windows
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await transports.over_stdio(settings, open_server)


def _mapped(options: argparse.Namespace) -> Mapped:
    """What is said of the server: the file, and then what the command line adds."""
    found = load(options.tools) if options.tools else Mapped()
    for tool in options.reads:
        found = found.told(tool, effect_class="read_only")
    for tool in options.repeatable:
        found = found.told(tool, repeatable=True)
    for tool, arg in map(_pair, options.target):
        found = found.told(tool, target=(arg, f"{{{arg}}}"))
    for tool, read in map(_pair, options.snapshot):
        reader, _, arg = read.partition(":")
        if not arg:
            raise ValueError(f"--snapshot {tool}={read}: say it as TOOL=READTOOL:ARG")
        found = found.told(tool, target=(arg, f"{{{arg}}}"))
        found = found.with_kind(ResourceKind(arg, Template(reader, {arg: "{id}"})))
    return found


async def _twins(options: argparse.Namespace) -> None:
    from amends.mcp import transports
    from amends.mcp.twins import Restorer, twins_of

    _check_server(options)
    secret = os.environ.get("AMENDS_TWINS_SECRET")
    if not secret or not options.tools:
        raise ValueError("set AMENDS_TWINS_SECRET (whsec_…), and name the tools' file with --tools")
    open_server = transports.server_at(options.command, options.url)
    restorer = Restorer(open_server, Safe(default_safe()), asyncio.get_running_loop())
    store = default_spool("", "").parent / "mcp-twins.sqlite"
    twins = twins_of(load(options.tools), restorer, secrets=secret.split(), store=store)
    await transports.listen(twins.asgi, *_address(options.listen))


async def _server(_options: argparse.Namespace) -> None:
    from amends.mcp.server import server_of

    async with connect(heeds_sigterm=False) as desk:
        await server_of(desk).run_stdio_async()


def _serve(
    work: Callable[[argparse.Namespace], Coroutine[Any, Any, None]], options: argparse.Namespace
) -> int:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    try:
        asyncio.run(work(options))
    except ImportError as missing:
        sys.stderr.write(NEEDS % missing)
        return 2
    except (AmendsError, ValueError, OSError) as wrong:
        sys.stderr.write(f"{wrong}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _check_server(options: argparse.Namespace) -> None:
    if bool(options.command) == bool(options.url):
        raise ValueError("name the server: its program after --, or its address with --url")


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not value:
        raise ValueError(f"{text}: say it as NAME=VALUE")
    return name, value


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"{text}: say it as HOST:PORT")
    return host.strip("[]"), int(port)


def _say(*lines: str) -> None:
    """To whoever reads it: who has read enough (`| head`) changes nothing of it."""
    try:
        sys.stdout.writelines(f"{_seen(line)}\n" for line in lines)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _seen(text: object) -> str:
    """In one line, with what a terminal would obey or hide shown by its number: a file that proves
    nothing must not write “Proven” over what is said of it.
    """
    return "".join(one if one.isprintable() else f"⟦U+{ord(one):04X}⟧" for one in str(text))


if __name__ == "__main__":
    sys.exit(main())
