"""An agent that calls tools faster than it may. Usage: python3 agent.py [URL]"""

import asyncio
import sys

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

CALLS = [
    ("search", {"text": "milk"}),
    ("search", {"text": "agents"}),
    ("search", {"text": "nothing"}),
    ("read", {"name": "todo"}),
    ("delete", {"name": "todo"}),
]


async def main(url):
    async with httpx2.AsyncClient(headers={"X-User-Id": "agent-1"}, timeout=20) as http:
        async with Client(streamable_http_client(url, http_client=http)) as client:
            for tool, arguments in CALLS:
                try:
                    result = await client.call_tool(tool, arguments)
                    print(f"{tool}: {result.content[0].text}")
                except MCPError as refused:
                    data = refused.error.data
                    print(f"{tool}: refused by {data['rule']}, retry after {data['retry_after_ms']} ms")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/mcp"))
