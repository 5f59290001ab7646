"""Connections to the service on an event loop."""

from __future__ import annotations

import asyncio
import select
import socket
from typing import Any, Callable, List, Optional

from ._calls import LATE_ANSWER, MAX_IDLE, MAX_LATE_ANSWERS, Settings
from ._transport import DeadlineExceeded
from ._wire import BadResponse, Response, ResponseParser


class Connection(asyncio.Protocol):
    """A connection, used by one call at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: Any = None
        self._parser: Optional[ResponseParser] = None
        self._answer: Optional[asyncio.Future[Response]] = None
        self._error: Optional[BaseException] = None
        #: The answer, if its call was cancelled after it had arrived.
        self.unread: Optional[Response] = None
        #: Gets the answer if its call is gone.
        self.on_late: Optional[Callable[[Optional[Response]], None]] = None
        self.idle_since = 0.0
        self._poll: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(select, "poll"):
                self._poll = select.poll()
                self._poll.register(sock.fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        self._feed(data)

    def eof_received(self) -> bool:
        self._feed(b"")
        return False

    def connection_lost(self, error: Optional[Exception]) -> None:
        self._fail(error or ConnectionResetError("the service closed the connection"))

    def _feed(self, data: bytes) -> None:
        if self._parser is None:
            # Nothing was asked.
            return self._fail(BadResponse("the service sent an answer to no call"))
        try:
            response = self._parser.feed(data)
        except BadResponse as error:
            return self._fail(error)
        if response is not None:
            self._parser = None
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(response)
            elif self.on_late is not None:
                on_late, self.on_late = self.on_late, None
                on_late(response)

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
            self._transport.abort()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        elif self.on_late is not None:
            on_late, self.on_late = self.on_late, None
            on_late(None)

    def is_usable(self) -> bool:
        """Returns whether an idle connection can be used again."""
        if self._error is not None or self._transport.is_closing():
            return False
        if self._loop.time() - self.idle_since > MAX_IDLE:
            return False
        # The loop may not have seen yet that the server has closed it.
        return self._poll is None or not self._poll.poll(0)

    async def call(self, request: bytes, end: float) -> Response:
        """Sends a request and returns the response."""
        self._parser = ResponseParser()
        answer: asyncio.Future[Response] = self._loop.create_future()
        self._answer = answer
        timer = self._loop.call_at(end, _expire, answer)
        try:
            self._transport.write(request)
            return await answer
        except asyncio.CancelledError:
            # A task that is cancelled before it runs again does not get what it awaited.
            if not answer.cancelled() and answer.exception() is None:
                self.unread = answer.result()
            raise
        finally:
            timer.cancel()
            self._answer = None

    def close(self) -> None:
        """Closes the connection."""
        self._transport.abort()


def _expire(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(DeadlineExceeded())


class AsyncTransport:
    """A bounded pool of connections on one event loop."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = settings
        self.loop = loop
        self.is_closed = False
        # The last is the most recently used.
        self._idle: List[Connection] = []
        self._late: set[Connection] = set()

    async def call(
        self,
        path: str,
        body: bytes,
        on_late: Optional[Callable[[Response], None]] = None,
    ) -> Response:
        """Posts a body. A call that fails after it was sent is not repeated.

        If it misses its deadline or is cancelled, `on_late` gets the answer, which may grant
        something, if it still comes.
        """
        end = self.loop.time() + self.settings.deadline
        connection = self._take() or await self._connect(end)
        try:
            response = await connection.call(self.settings.request(path, body), end)
        except (asyncio.CancelledError, DeadlineExceeded):
            unread, connection.unread = connection.unread, None
            if unread is not None:
                self._give_back(connection, unread)
                if on_late is not None:
                    on_late(unread)
            elif on_late is None or not self._wait_late(connection, on_late):
                connection.close()
            raise
        except BaseException:
            connection.close()
            raise
        self._give_back(connection, response)
        return response

    def close(self) -> None:
        """Closes connections. Later calls open one each."""
        self.is_closed = True
        idle, self._idle = self._idle, []
        for connection in idle + list(self._late):
            connection.close()
        self._late.clear()

    def idle_connections(self) -> int:
        """Returns how many connections are kept."""
        return len(self._idle)

    def _take(self) -> Optional[Connection]:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.close()
        return None

    def _give_back(self, connection: Connection, response: Response) -> None:
        has_room = not self.is_closed and len(self._idle) < self.settings.pool_size
        if response.keep_alive and has_room:
            connection.idle_since = self.loop.time()
            self._idle.append(connection)
        else:
            connection.close()

    async def _connect(self, end: float) -> Connection:
        settings, loop = self.settings, self.loop
        connecting = loop.create_connection(
            lambda: Connection(loop),
            settings.host,
            settings.port,
            ssl=settings.tls,
            server_hostname=settings.host if settings.tls else None,
        )
        task = loop.create_task(connecting)
        try:
            done, _ = await asyncio.wait([task], timeout=max(0.0, end - loop.time()))
        except asyncio.CancelledError:
            task.add_done_callback(_close_unused)
            task.cancel()
            raise
        if not done:
            task.add_done_callback(_close_unused)
            task.cancel()
            raise DeadlineExceeded
        return task.result()[1]

    def _wait_late(self, connection: Connection, on_late: Callable[[Response], None]) -> bool:
        if self.is_closed or len(self._late) >= MAX_LATE_ANSWERS:
            return False
        self._late.add(connection)
        timer = self.loop.call_later(LATE_ANSWER, connection.close)

        def arrived(response: Optional[Response]) -> None:
            timer.cancel()
            self._late.discard(connection)
            if response is None:
                connection.close()
            else:
                self._give_back(connection, response)
                on_late(response)

        connection.on_late = arrived
        return True


def _close_unused(task: asyncio.Task[Any]) -> None:
    """Closes a connection that came too late."""
    if not task.cancelled() and task.exception() is None:
        task.result()[1].close()
