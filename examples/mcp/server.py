"""An MCP server with three tools. Usage: python3 server.py [PORT]"""

import sys

from mcp.server import MCPServer

server = MCPServer("notes")
notes = {"todo": "buy milk", "ideas": "a rate limiter for agents"}


@server.tool()
def search(text: str) -> str:
    """Returns the names of the notes that contain a text."""
    return ", ".join(name for name, note in notes.items() if text in note)


@server.tool()
def read(name: str) -> str:
    """Returns a note."""
    return notes[name]


@server.tool()
def delete(name: str) -> str:
    """Deletes a note."""
    return notes.pop(name)


port = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
server.run(transport="streamable-http", host="127.0.0.1", port=port)
