"""MCP: a gateway between any client and any server, so that every call of a tool asks the desk.

`gateway` stands between the two, `twins` undoes for the desk over the same server, `server` lets an
agent read what became of its own runs; `mapping` is what an engineer says of a server's tools. All
but that need the extra `amends[mcp]`. docs/mcp.md tells the rest.
"""
