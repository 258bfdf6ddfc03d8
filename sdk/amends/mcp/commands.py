"""The command lines of `amends mcp-gateway`, `amends mcp-twins` and `amends mcp-server`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from amends.client import connect, default_spool
from amends.errors import AmendsError
from amends.mcp.mapping import Mapped, ResourceKind, Safe, Template, default_safe, load

WAIT_SECONDS = 3600.0
NEEDS = "This needs the extra: pip install 'amends[mcp]' (%s)\n"
OF_TOOLS = (
    ("--target", "TOOL=ARG", "the argument that names what a tool changes"),
    ("--reads", "TOOL", "a tool that only reads, by your word and not by the server's"),
    ("--repeatable", "TOOL", "a tool that is run again when it is called alike again"),
    ("--snapshot", "TOOL=READTOOL:ARG", "read, before and after, what ARG of TOOL names"),
)


def add(commands: Any) -> None:
    """Put the three among the commands of `amends`."""
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
    gateway.set_defaults(act=_gateway)
    twins = commands.add_parser(
        "mcp-twins", help="the desk's way to undo over an MCP server: amends mcp-twins -- SERVER…"
    )
    _of_server(twins)
    twins.add_argument("--listen", required=True, metavar="HOST:PORT")
    twins.set_defaults(act=_twins)
    server = commands.add_parser("mcp-server", help="an agent's own runs, as an MCP server (stdio)")
    server.set_defaults(act=_server)


def _of_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", nargs="*", metavar="SERVER", help="the server's program")
    parser.add_argument("--url", help="the address of a remote server, instead of a program")
    parser.add_argument("--tools", type=Path, metavar="FILE.toml", help="what its tools change")


def _gateway(options: argparse.Namespace) -> int:
    return _run(options, lambda: _serve_gateway(options))


async def _serve_gateway(options: argparse.Namespace) -> None:
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


def _twins(options: argparse.Namespace) -> int:
    return _run(options, lambda: _serve_twins(options))


async def _serve_twins(options: argparse.Namespace) -> None:
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


def _server(options: argparse.Namespace) -> int:
    return _run(options, _serve_server)


async def _serve_server() -> None:
    from amends.mcp.server import server_of

    async with connect(heeds_sigterm=False) as desk:
        await server_of(desk).run_stdio_async()


def _run(options: argparse.Namespace, work: Any) -> int:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    try:
        coroutine: Coroutine[Any, Any, None] = work()
        asyncio.run(coroutine)
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
