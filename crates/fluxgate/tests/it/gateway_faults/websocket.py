"""A WebSocket echo server, and a client that checks it.

    websocket.py serve
    websocket.py check NAME[,NAME…] URL [CA]
"""

import asyncio
import os
import ssl
import sys

import websockets
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve


async def echo(connection):
    async for message in connection:
        if message == "please close":
            await connection.close(4321, "as requested")
            return
        await connection.send(message)


def select_subprotocol(connection, offered):
    return "chat.v1" if "chat.v1" in offered else None


async def run_server():
    async with serve(echo, "127.0.0.1", 0, max_size=None, subprotocols=["chat.v1"], select_subprotocol=select_subprotocol) as server:
        host, port = server.sockets[0].getsockname()
        print(f"listening on {host}:{port}", file=sys.stderr, flush=True)
        await asyncio.get_running_loop().create_future()


def open_connection(url, **options):
    if url.startswith("wss:"):
        options["ssl"] = ssl.create_default_context(cafile=sys.argv[4])
    return connect(url, max_size=None, proxy=None, **options)


async def text(url):
    async with open_connection(url) as connection:
        for message in ["hello", "", "ünïcödé ☂", "x" * 125, "x" * 126, "x" * 65535, "x" * 65536]:
            await connection.send(message)
            assert await connection.recv() == message


async def binary(url):
    async with open_connection(url) as connection:
        for size in [0, 1, 1000, 100_000]:
            message = os.urandom(size)
            await connection.send(message)
            assert await connection.recv() == message


async def big(url):
    async with open_connection(url, compression=None) as connection:
        message = os.urandom(16 << 20)
        await connection.send(message)
        assert await connection.recv() == message
        # In fragments.
        await connection.send([message[:1000], message[1000:70000], message[70000:80000]])
        assert await connection.recv() == message[:80000]


async def many(url):
    async with open_connection(url) as connection:
        async def sending():
            for number in range(2000):
                await connection.send(str(number))

        task = asyncio.create_task(sending())
        for number in range(2000):
            assert await connection.recv() == str(number)
        await task


async def ping(url):
    async with open_connection(url) as connection:
        for _ in range(10):
            pong = await connection.ping(os.urandom(20))
            await asyncio.wait_for(pong, 10)


async def close_by_client(url):
    connection = await open_connection(url)
    await connection.close(3210, "done")
    assert (connection.close_code, connection.close_reason) == (3210, "done")


async def close_by_server(url):
    connection = await open_connection(url)
    await connection.send("please close")
    try:
        await connection.recv()
        raise AssertionError("the connection was not closed")
    except websockets.ConnectionClosed as closed:
        assert (closed.rcvd.code, closed.rcvd.reason) == (4321, "as requested"), closed


async def subprotocol(url):
    async with open_connection(url, subprotocols=["chat.v1"]) as connection:
        assert connection.subprotocol == "chat.v1"
        assert connection.response.headers["Sec-WebSocket-Extensions"].startswith("permessage-deflate")


async def denied(url):
    try:
        async with open_connection(url):
            raise AssertionError("the handshake succeeded")
    except websockets.InvalidStatus as error:
        assert error.response.status_code == 429, error


async def hold(url):
    """Stays connected until the server closes; each line on stdin sends a message."""
    async with open_connection(url, ping_interval=None) as connection:
        print("open", flush=True)
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, sys.stdin.readline):
            await connection.send("still there")
            print(await connection.recv(), flush=True)


if sys.argv[1] == "serve":
    asyncio.run(run_server())
else:
    for name in sys.argv[2].split(","):
        asyncio.run(asyncio.wait_for(globals()[name](sys.argv[3]), 60))
