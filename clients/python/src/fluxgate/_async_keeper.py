"""What a client has on one event loop: connections, the holds to renew, tasks."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Coroutine, Optional, TypeVar

from ._async_transport import AsyncTransport
from ._calls import FAILURES, LATE_ANSWER, RENEW, RETRY, Settings, is_final, log, undo_of
from ._errors import FluxGateError
from ._holds import KeptHold, Renewals
from ._wire import BadResponse, Response

T = TypeVar("T")

# How long the renewal waits without holds: a task for every request would cost more.
_LINGER = 5.0


class LoopState:
    """The part of a client on one event loop."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.transport = AsyncTransport(settings, loop)
        self.loop = loop
        self.tasks: set[asyncio.Task[Any]] = set()
        self._renewals = Renewals()
        self._renewing: Optional[asyncio.Task[None]] = None
        self._sooner = asyncio.Event()
        self._closing: Optional[asyncio.Task[None]] = None

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs work that outlives its caller. `close` waits for it."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def keep(self, hold: KeptHold) -> None:
        """Renews a hold from now on."""
        self._renewals.add(hold)
        if self._renewing is None:
            self._renewing = self.loop.create_task(self._renew_holds())
        else:
            self._sooner.set()

    def drop(self, hold: KeptHold) -> None:
        """Renews a hold no longer."""
        self._renewals.drop(hold.id)

    def adopt(self, hold: KeptHold, path: str, body: bytes) -> None:
        """Ends a hold that was garbage collected."""
        self.drop(hold)
        self.spawn(self.finish(path, body, hold.expires))

    async def _renew_holds(self) -> None:
        idle_since = time.monotonic()
        while True:
            now = time.monotonic()
            if self._renewals:
                idle_since = now
            elif now >= idle_since + _LINGER:
                break
            due = self._renewals.due if self._renewals else idle_since + _LINGER
            self._sooner.clear()
            try:
                await asyncio.wait_for(self._sooner.wait(), max(0.0, due - now))
            except asyncio.TimeoutError:
                pass
            for renewal in self._renewals.take_due():
                try:
                    response = await self.transport.call(RENEW, renewal.body)
                    self._renewals.succeeded(renewal, renewal.read(response))
                except (*FAILURES, FluxGateError):
                    self._renewals.failed(renewal)
        self._renewing = None

    async def finish(
        self, path: str, body: bytes, until: float, is_repeated: bool = True
    ) -> Optional[Response]:
        """Makes a call, again and again until then. Returns the first answer to it."""
        while True:
            try:
                response = await self.transport.call(path, body)
                if is_final(response):
                    return response
            except (OSError, BadResponse):
                pass
            if not is_repeated:
                return None
            if self.transport.is_closed or time.monotonic() >= until:
                log.warning("a hold could not be released; it expires by itself")
                return None
            await asyncio.sleep(RETRY)

    async def finish_after(
        self, first: asyncio.Task[Optional[Response]], path: str, body: bytes, until: float
    ) -> None:
        """Repeats a call if its first try fails."""
        if await first is None:
            await self.finish(path, body, until)

    def undo(self, response: Response) -> None:
        """Gives back what an answer grants that came after its deadline."""
        undo = undo_of(response)
        if undo is not None:
            self.spawn(self.finish(*undo, until=time.monotonic() + LATE_ANSWER))

    async def close(self) -> None:
        """Ends the renewal, lets the other tasks make one more try, and closes connections."""
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()
            await asyncio.wait([renewing])
        self.transport.is_closed = True
        if self.tasks:
            _, late = await asyncio.wait(set(self.tasks), timeout=1.0)
            for task in late:
                task.cancel()
        self.transport.close()
        # Transports close their sockets in the next round of the loop.
        await asyncio.sleep(0)

    def close_soon(self) -> None:
        """Closes it in a new task."""
        self._closing = self.loop.create_task(self.close())
