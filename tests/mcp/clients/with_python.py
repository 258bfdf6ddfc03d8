"""The official Python client, given calls to make.

    python with_python.py '{"command": […], "calls": [[tool, arguments]], "elicits": "accept"}'

A `url` instead of the `command` names a server that listens. Prints one line of JSON: the
protocol's `version`, the `tools`, what it was `told` of each call as [words, is it an error], and
which addresses it `opened`.
"""

import asyncio
import json
import os
import sys
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.types import ElicitResult

ASKED: dict[str, Any] = json.loads(sys.argv[1])
opened: list[str] = []


async def open_it(context: Any, params: Any) -> ElicitResult:
    opened.append(str(params.url))
    sys.stderr.write("opened\n")
    sys.stderr.flush()
    return ElicitResult(action=ASKED["elicits"])


async def main() -> None:
    server: Any = ASKED.get("url")
    if server is None:
        command, *args = ASKED["command"]
        server = StdioServerParameters(command=command, args=args, env=dict(os.environ))
    elicits: dict[str, Any] = {"elicitation_callback": open_it} if ASKED.get("elicits") else {}
    told = []
    async with Client(server, **elicits) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        for tool, args in ASKED["calls"]:
            result = await client.call_tool(tool, args)
            words = " ".join(getattr(one, "text", "") for one in result.content)
            told.append([words, bool(result.is_error)])
        version = client.session.protocol_version
    said = {"version": version, "tools": tools, "told": told, "opened": opened}
    sys.stdout.write(json.dumps(said) + "\n")


asyncio.run(main())
