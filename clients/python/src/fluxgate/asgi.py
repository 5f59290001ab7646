"""Middleware for ASGI: FastAPI, Starlette, Litestar, Quart, Django.

app.add_middleware(RateLimitMiddleware, client=fg, rule_set="api-limits")
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import (
    TYPE_CHECKING,
    Any,
    Awaitable,
    Callable,
    Deque,
    Dict,
    Iterable,
    List,
    Mapping,
    MutableMapping,
    Optional,
    Tuple,
)
from urllib.parse import quote

from ._admission import Admission, AnyClient
from ._decision import LIMIT_HEADERS, Decision, bad_request
from ._filter import Filter, TooLarge, merged_headers
from ._path import Ambiguous, lossless

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._filter import Options

__all__ = ["RateLimitMiddleware", "header"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_NAMES = {name: lower.encode() for lower, name in LIMIT_HEADERS.items()}
_LIMITS = frozenset(_NAMES.values())
# How much of a body is read ahead to learn whether a client that waits has left.
_READ_AHEAD = 64 * 1024


class RateLimitMiddleware:
    """Limits the requests to an ASGI app.

    The options are `include`, `exclude`, `ignore_case`, `trusted_proxies`, `user`, `api_key`, `ip`,
    `attributes`, `cost`, `headers` and `max_concurrent_waits`, as the README describes them.
    Functions get the scope.
    """

    def __init__(
        self,
        app: App,
        client: AnyClient,
        rule_set: Optional[str] = None,
        **options: Unpack[Options[Scope]],
    ) -> None:
        self.app = app
        self._filter: Filter[Scope] = Filter(rule_set, **options)
        self._admission = Admission(client, self._filter.permits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http" or kind == "websocket":
            await self._limit(scope, receive, send)
        elif kind == "lifespan":
            await self.app(scope, receive, self._closing(send))
        else:
            await self.app(scope, receive, send)

    def _closing(self, send: Send) -> Send:
        """Returns a `send` that closes connections before the server hears of the shutdown."""

        async def close_and_send(message: Message) -> None:
            # Once it hears of it, the server may stop the event loop.
            if message["type"].startswith("lifespan.shutdown."):
                await self._admission.close_derived()
            await send(message)

        return close_and_send

    async def _limit(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = read_scope(self._filter, scope, scope)
        except Ambiguous as error:
            return await _answer(scope, receive, send, *bad_request(str(error)))
        except TooLarge:
            refusal = self._admission.too_large().refusal()
            return await _answer(scope, receive, send, *refusal)
        if body is None:
            return await self.app(scope, receive, send)
        reader = Reader(receive)
        try:
            admitted = await self._admission.decide_async(body, reader.sleep)
        except Disconnected:
            return None
        decision = admitted.decision
        if not decision.allowed:
            return await _answer(scope, reader.receive, send, *decision.refusal())
        try:
            await self.app(scope, reader.receive, _with_headers(send, decision))
        finally:
            reader.close()
            await admitted.end_async()


def header(scope: Scope, name: str) -> Optional[str]:
    """Returns the first value of a header of a scope. `name` may be in any case."""
    key = name.lower().encode("latin-1")
    for known, value in scope["headers"]:
        if known.lower() == key:
            return lossless(value.strip(b" \t"))
    return None


def read_scope(filter: Filter[Any], request: Any, scope: Scope) -> Optional[Dict[str, Any]]:
    """Returns the fields of a check for a scope, or None if the request is not limited."""
    raw = scope.get("raw_path")
    if raw is None:
        # Without the raw form, one that decodes to what the app sees.
        raw = quote(scope["path"], safe="/!$&'()*+,=:@~-._").encode("ascii")
    headers = [(_names.get(name) or _name(name), value) for name, value in scope["headers"]]
    peer = scope.get("client")
    return filter.read(
        request,
        scope.get("method", "GET"),
        bytes(raw).partition(b"?")[0],
        headers,
        peer[0] if peer else None,
    )


# The names of headers as text in lower case. They are few.
_names: Dict[bytes, str] = {}


def _name(raw: bytes) -> str:
    name = raw.decode("latin-1").lower()
    if len(_names) < 1024:
        _names[raw] = name
    return name


class Disconnected(Exception):
    """The client has left while its request waited."""


class Reader:
    """Receives messages, and reads ahead while a request waits."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._read: Deque[Message] = deque()
        self._pending: Optional[asyncio.Future[Message]] = None
        #: Whether messages were read ahead, or may have been.
        self.has_read = False

    def close(self) -> None:
        """Stops reading ahead."""
        if self._pending is not None:
            self._pending.cancel()

    async def receive(self) -> Message:
        if self._read:
            return self._read.popleft()
        pending, self._pending = self._pending, None
        return await (self._receive() if pending is None else pending)

    async def sleep(self, seconds: float) -> None:
        """Sleeps, unless the client leaves. Raises Disconnected."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        size = 0
        self.has_read = True
        try:
            while True:
                left = end - loop.time()
                if left <= 0:
                    return
                if size > _READ_AHEAD:
                    await asyncio.sleep(left)
                    continue
                if self._pending is None:
                    self._pending = asyncio.ensure_future(self._receive())
                await asyncio.wait([self._pending], timeout=left)
                if not self._pending.done():
                    continue
                message = self._pending.result()
                self._pending = None
                if message["type"] in ("http.disconnect", "websocket.disconnect"):
                    raise Disconnected
                self._read.append(message)
                size += len(message.get("body", b"")) + 1024
        except asyncio.CancelledError:
            self.close()
            raise


def _with_headers(send: Send, decision: Decision) -> Send:
    """Returns a `send` that adds the limit headers to the start of the response."""
    if not decision.headers:
        return send

    async def send_with_headers(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.accept"):
            raw = list(message.get("headers", ()))
            if any(name.lower() in _LIMITS for name, _ in raw):
                known = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]
                raw = _encoded(merged_headers(known, decision))
            else:
                raw += [
                    (_NAMES[name], it.encode("latin-1")) for name, it in decision.headers.items()
                ]
            message = {**message, "headers": raw}
        await send(message)

    return send_with_headers


def _encoded(headers: Iterable[Tuple[str, str]]) -> List[Tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]


async def _answer(
    scope: Scope,
    receive: Receive,
    send: Send,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
) -> None:
    prefix = "http"
    if scope["type"] == "websocket":
        # The server expects the handshake to be received first.
        await receive()
        if "websocket.http.response" not in scope.get("extensions", {}):
            # The server answers 403 by itself.
            return await send({"type": "websocket.close", "code": 1008})
        prefix = "websocket.http"
    raw = _encoded(headers.items())
    await send({"type": f"{prefix}.response.start", "status": status, "headers": raw})
    is_head = scope.get("method") == "HEAD"
    await send({"type": f"{prefix}.response.body", "body": b"" if is_head else body})
