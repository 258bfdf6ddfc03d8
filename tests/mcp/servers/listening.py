"""A server of the protocol's own package that listens: `python listening.py PORT JOURNAL`.

It speaks every version, and asks of the newest that each call's headers say what its body does.
"""

import sys
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer

port, journal = int(sys.argv[1]), Path(sys.argv[2])
server = MCPServer("listening")


def write(text: str) -> None:
    with journal.open("a") as file:
        file.write(f"note {text}\n")


@server.tool()
async def note(text: str, context: Context) -> str:
    """Write a line, and tell of it on the way."""
    write(text)
    await context.report_progress(1, 2)
    return "note is done"


server.run("streamable-http", port=port)
