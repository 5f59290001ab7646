"""The client for asyncio."""

from __future__ import annotations

import asyncio
import ssl
import time
from types import TracebackType
from typing import (
    Any,
    Awaitable,
    Callable,
    Coroutine,
    Dict,
    Generator,
    Iterable,
    List,
    Mapping,
    Optional,
    Tuple,
    Type,
    TypeVar,
)

from ._async_transport import AsyncTransport
from ._calls import (
    BATCH,
    CANCEL,
    CHECK,
    CONSUME,
    LATE_ANSWER,
    MAX_RENEWED,
    MAX_REQUEST,
    RELEASE,
    RENEW,
    SETTLE,
    CallFailed,
    Identity,
    Settings,
    Text,
    batch_body,
    check_body,
    encode,
    grants_of,
    hold_body,
    limited,
    log,
    read_consumed,
    read_decision,
    read_decisions,
    read_json,
    read_renewed,
    read_settled,
    settle_body,
    span,
    unavailable,
)
from ._client import DEFAULT_URL, Client, consume_body
from ._decision import TOO_LARGE, Consumed, Decision, Settled
from ._errors import Denied, FluxGateError, HoldEnded, InvalidRequest
from ._keeper import KeptHold
from ._wire import BadResponse, Response

T = TypeVar("T")

_FAILURES = (OSError, BadResponse, CallFailed)
# How long to wait before a call is repeated.
_RETRY = 0.25


class _LoopState:
    """What a client has on one event loop: connections, the holds to renew, tasks."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.transport = AsyncTransport(settings, loop)
        self.loop = loop
        self.tasks: set[asyncio.Task[Any]] = set()
        self._holds: Dict[str, KeptHold] = {}
        self._renew_at = float("inf")
        self._renewal: Optional[asyncio.Task[None]] = None
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
        self._holds[hold.id] = hold
        due = time.monotonic() + hold.span / 3
        if self._renewal is None:
            self._renew_at = due
            self._renewal = self.loop.create_task(self._renew_holds())
        elif due < self._renew_at:
            # It only comes sooner: a short hold that comes and goes must not put off the others.
            self._renew_at = due
            self._sooner.set()

    def drop(self, hold: KeptHold) -> None:
        """Renews a hold no longer."""
        self._holds.pop(hold.id, None)

    def adopt(self, hold: KeptHold, path: str, body: bytes) -> None:
        """Ends a hold that was garbage collected."""
        self.drop(hold)
        self.spawn(self.finish(path, body, hold.expires))

    async def _renew_holds(self) -> None:
        # Stays for a while without holds: a task for every request would cost more.
        idle_since = time.monotonic()
        while True:
            now = time.monotonic()
            if self._holds:
                idle_since = now
            elif now >= idle_since + 5.0:
                break
            due = self._renew_at if self._holds else idle_since + 5.0
            self._sooner.clear()
            try:
                await asyncio.wait_for(self._sooner.wait(), max(0.0, due - now))
            except asyncio.TimeoutError:
                pass
            if self._holds and time.monotonic() >= self._renew_at:
                holds = list(self._holds.values())
                shortest = min(hold.span for hold in holds)
                self._renew_at = time.monotonic() + shortest / 3
                for at in range(0, len(holds), MAX_RENEWED):
                    await self._renew(holds[at : at + MAX_RENEWED])
        self._renewal = None

    async def _renew(self, holds: List[KeptHold]) -> None:
        # All for the longest of the times. The service cuts it to what the rules allow.
        longest = max(hold.span for hold in holds)
        body = encode({"holds": [hold.id for hold in holds], "hold_for": span(longest)})
        now = time.monotonic()
        try:
            renewed = read_renewed(await self.transport.call(RENEW, body), len(holds))
        except (*_FAILURES, FluxGateError):
            # The next try may be in time: there are three in a hold.
            shortest = min(hold.span for hold in holds)
            self._renew_at = min(self._renew_at, now + max(0.1, shortest / 9))
            return
        for hold, is_held in zip(holds, renewed):
            if is_held:
                hold.expires = now + hold.span
            elif self._holds.pop(hold.id, None) is not None:
                hold.is_lost = True
                log.warning("a hold has expired while it was in use")

    async def finish(
        self, path: str, body: bytes, until: float, is_repeated: bool = True
    ) -> Optional[Response]:
        """Makes a call, again and again until then. Returns the first answer to it."""
        while True:
            try:
                response = await self.transport.call(path, body)
                # 404: it has ended. Other rejections will not change either.
                if response.status < 500 and response.status not in (408, 429):
                    return response
            except (OSError, BadResponse):
                pass
            if not is_repeated:
                return None
            if self.transport.is_closed or time.monotonic() >= until:
                log.warning("a hold could not be released; it expires by itself")
                return None
            await asyncio.sleep(_RETRY)

    def undo(self, response: Response) -> None:
        """Gives back what an answer grants that came after its deadline."""
        undo = grants_of(response)
        if undo is not None:
            self.spawn(self.finish(*undo, until=time.monotonic() + LATE_ANSWER))

    async def close(self) -> None:
        """Ends the renewal, lets the other tasks make one more try, and closes connections."""
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.cancel()
            await asyncio.wait([renewal])
        self.transport.is_closed = True
        if self.tasks:
            _, late = await asyncio.wait(set(self.tasks), timeout=1.0)
            for task in late:
                task.cancel()
        self.transport.close()
        # Transports close their sockets in the next round of the loop.
        await asyncio.sleep(0)

    def close_soon(self) -> None:
        """Closes it in a task of its own."""
        self._closing = self.loop.create_task(self.close())


class AsyncClient:
    """Asks a FluxGate service from asyncio: `Client` with `await`.

    It may be created before an event loop runs, and used on several loops.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        on_error: str = "allow",
        deadline: float = 0.1,
        headers: Optional[Mapping[str, str]] = None,
        ca: Optional[str] = None,
        ssl_context: Optional[ssl.SSLContext] = None,
        pool_size: int = 64,
    ) -> None:
        self._start(
            Settings(
                url,
                on_error=on_error,
                deadline=deadline,
                headers=headers,
                ca=ca,
                ssl_context=ssl_context,
                pool_size=pool_size,
            )
        )

    def _start(self, settings: Settings) -> None:
        self._settings = settings
        self._states: Dict[asyncio.AbstractEventLoop, _LoopState] = {}
        # The client that middleware for WSGI uses in place of this one.
        self._derived: Optional[Client] = None

    @classmethod
    def _with(cls, settings: Settings) -> AsyncClient:
        client = cls.__new__(cls)
        client._start(settings)
        return client

    async def check(
        self,
        rule_set: Optional[str] = None,
        *,
        ip: Optional[str] = None,
        user: Optional[str] = None,
        api_key: Optional[str] = None,
        method: Optional[str] = None,
        path: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
        attributes: Optional[Mapping[str, Text]] = None,
        cost: Optional[int] = None,
    ) -> Decision:
        """Decides and charges a request. `delay` is not waited for: see `wait`."""
        context = (rule_set, ip, user, api_key, method, path, headers, attributes, cost)
        return await self._check(check_body(*context))

    async def peek(
        self,
        rule_set: Optional[str] = None,
        *,
        ip: Optional[str] = None,
        user: Optional[str] = None,
        api_key: Optional[str] = None,
        method: Optional[str] = None,
        path: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
        attributes: Optional[Mapping[str, Text]] = None,
        cost: Optional[int] = None,
    ) -> Decision:
        """Decides a request without charging it."""
        context = (rule_set, ip, user, api_key, method, path, headers, attributes, cost)
        return await self._check(check_body(*context, peek=True))

    async def batch(self, checks: Iterable[Mapping[str, Any]]) -> List[Decision]:
        """Decides up to 1,000 checks, each by itself and in order.

        Each is a mapping with the arguments of `check`, and `peek` if it is not to be charged.
        """
        body = batch_body(checks)
        count = len(body["checks"])
        return await self._decide(
            BATCH,
            limited(encode(body)),
            lambda response: read_decisions(response, count),
            lambda error: [self._settings.instead(error) for _ in range(count)],
        )

    async def consume(
        self,
        rule_id: str,
        identity: Identity,
        *,
        cost: Optional[int] = None,
        capacity: Optional[int] = None,
        refill_tokens_per_second: Optional[float] = None,
    ) -> Consumed:
        """Takes units of a bucket whose limit comes with the call, or of the rule `SET/RULE`."""
        body = consume_body(rule_id, identity, cost, capacity, refill_tokens_per_second)
        return await self._decide(CONSUME, body, read_consumed, self._settings.consumed_instead)

    async def wait(
        self,
        rule_set: Optional[str] = None,
        *,
        ip: Optional[str] = None,
        user: Optional[str] = None,
        api_key: Optional[str] = None,
        method: Optional[str] = None,
        path: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
        attributes: Optional[Mapping[str, Text]] = None,
        cost: Optional[int] = None,
        max_wait: Optional[float] = None,
    ) -> Decision:
        """Decides a request, and sleeps until it may proceed.

        A rule with `on_exceed: wait` lets it wait for up to its own `max_wait`. If the delay is
        longer than this `max_wait` (in seconds), or if the task is cancelled, the reservation is
        cancelled.
        """
        context = (rule_set, ip, user, api_key, method, path, headers, attributes, cost)
        body = check_body(*context, wait=True)
        decision, kept = await self._wait(body, await self._check(body), max_wait)
        if kept is not None:
            # From now on it is the caller's, as after `check`.
            self._state().drop(kept)
        return decision

    def hold(
        self,
        rule_set: Optional[str] = None,
        *,
        ip: Optional[str] = None,
        user: Optional[str] = None,
        api_key: Optional[str] = None,
        method: Optional[str] = None,
        path: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
        attributes: Optional[Mapping[str, Text]] = None,
        cost: Optional[int] = None,
        hold_for: float = 60.0,
        max_wait: Optional[float] = None,
    ) -> _PendingHold:
        """Decides a request and holds its charge: `async with fg.hold(…) as hold`. Raises Denied.

        The hold is renewed while it is open, and released at the end of the block unless it was
        settled. If the process dies, it expires after `hold_for` seconds at most. `await` returns
        the hold without a block.
        """
        context = (rule_set, ip, user, api_key, method, path, headers, attributes, cost)
        body = check_body(*context, wait=True, hold=span(hold_for))
        return _PendingHold(lambda: self._hold(body, max_wait))

    async def settle(
        self,
        hold: str,
        cost: Optional[int] = None,
        *,
        attributes: Optional[Mapping[str, Text]] = None,
    ) -> Settled:
        """Settles the hold of this id, for those who keep ids themselves. Raises HoldEnded."""
        return await self._ask(SETTLE, settle_body(hold, cost, attributes), read_settled)

    async def renew(self, hold: str, hold_for: float = 60.0) -> bool:
        """Extends the hold of this id. Returns whether it is still held."""
        body = encode({"holds": [hold], "hold_for": span(hold_for)})
        return (await self._ask(RENEW, body, lambda response: read_renewed(response, 1)))[0]

    async def release(self, hold: str) -> bool:
        """Releases the hold of this id. Returns whether it was held."""
        try:
            await self._ask(RELEASE, hold_body(hold), read_settled)
        except HoldEnded:
            return False
        return True

    async def cancel(self, reservation: str) -> bool:
        """Cancels the reservation of a delayed decision. Returns whether it was still reserved."""
        try:
            await self._ask(CANCEL, encode({"reservation": reservation}), read_json)
        except InvalidRequest as error:
            if error.status == 404:
                return False
            raise
        return True

    async def close(self) -> None:
        """Closes the connections, and ends the tasks, of the running event loop."""
        state = self._states.pop(asyncio.get_running_loop(), None)
        if state is not None:
            await state.close()
        if self._derived is not None:
            self._derived.close()

    def _close_soon(self) -> None:
        """Closes the connections on all event loops, from any thread."""
        for loop, state in list(self._states.items()):
            self._states.pop(loop, None)
            try:
                loop.call_soon_threadsafe(state.close_soon)
            except RuntimeError:
                # The loop is closed, and its connections with it.
                pass

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _state(self) -> _LoopState:
        loop = asyncio.get_running_loop()
        state = self._states.get(loop)
        if state is None:
            for ended in [it for it in list(self._states) if it.is_closed()]:
                self._states.pop(ended, None)
            state = self._states[loop] = _LoopState(self._settings, loop)
        return state

    async def _check(self, body: Dict[str, Any]) -> Decision:
        encoded = encode(body)
        if len(encoded) > MAX_REQUEST:
            return TOO_LARGE
        return await self._decide(CHECK, encoded, read_decision, self._settings.instead)

    async def _decide(
        self,
        path: str,
        body: bytes,
        read: Callable[[Response], T],
        instead: Callable[[Optional[BaseException]], T],
    ) -> T:
        """Makes a call that `on_error` decides if it fails."""
        settings, state = self._settings, self._state()
        is_probe = settings.circuit.admit()
        if is_probe is None:
            return instead(None)
        try:
            result = read(await state.transport.call(path, body, on_late=state.undo))
        except _FAILURES as error:
            settings.failed(error, is_probe)
            return instead(error)
        except InvalidRequest:
            settings.succeeded()
            raise
        except BaseException:
            settings.circuit.abandoned(is_probe)
            raise
        settings.succeeded()
        return result

    async def _ask(self, path: str, body: bytes, read: Callable[[Response], T]) -> T:
        """Makes a call that nothing can decide if it fails."""
        try:
            return read(await self._state().transport.call(path, body))
        except _FAILURES as error:
            raise unavailable(error) from error

    async def _hold(self, body: Dict[str, Any], max_wait: Optional[float]) -> AsyncHold:
        decision, kept = await self._wait(body, await self._check(body), max_wait)
        if not decision.allowed:
            raise Denied(decision)
        return AsyncHold(self, decision, kept)

    def _keep(self, decision: Decision) -> Optional[KeptHold]:
        """Renews the hold of a decision from now on, if it has one."""
        if decision.hold is None or decision.hold_for is None:
            return None
        kept = KeptHold(decision.hold, decision.hold_for)
        self._state().keep(kept)
        return kept

    async def _wait(
        self,
        body: Dict[str, Any],
        decision: Decision,
        max_wait: Optional[float],
        has_permit: Callable[[], bool] = lambda: True,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> Tuple[Decision, Optional[KeptHold]]:
        """Sleeps until a request may proceed, and keeps its hold."""
        kept = self._keep(decision) if decision.allowed else None
        if not decision.allowed or decision.delay <= 0:
            return decision, kept
        is_too_long = max_wait is not None and decision.delay > max_wait
        if is_too_long or not has_permit():
            await asyncio.shield(self._abandon(decision, kept))
            return await self._refuse_wait(body, decision)
        try:
            await sleep(decision.delay)
        except BaseException:
            # In a task of its own: this one is cancelled.
            self._abandon(decision, kept)
            raise
        return decision, kept

    async def _refuse_wait(
        self, body: Dict[str, Any], decision: Decision
    ) -> Tuple[Decision, Optional[KeptHold]]:
        """Asks once more for a request that cannot wait."""
        again = await self._check({**body, "wait": False, "again": True})
        # A failure says nothing about the limit, which is known to be used up.
        if again.outcome in ("failed_open", "failed_closed"):
            return decision.without_wait(), None
        return again, self._keep(again) if again.allowed else None

    def _abandon(self, decision: Decision, kept: Optional[KeptHold]) -> asyncio.Task[Any]:
        """Gives back what a request that does not proceed was granted."""
        state = self._state()
        if kept is not None:
            state.drop(kept)
        if decision.reservation is not None:
            path, call = CANCEL, encode({"reservation": decision.reservation})
        elif kept is not None:
            path, call = RELEASE, hold_body(kept.id)
        else:
            return state.spawn(asyncio.sleep(0))
        return state.spawn(state.finish(path, call, time.monotonic() + decision.delay))

    async def _finish(self, path: str, body: bytes, until: float) -> Optional[Response]:
        """Makes a call now, or in the background if it fails. Returns its answer."""
        state = self._state()
        if not self._settings.circuit.is_open:
            first = state.spawn(state.finish(path, body, until, is_repeated=False))
            try:
                response = await asyncio.shield(first)
            except asyncio.CancelledError:
                state.spawn(_repeat_after(first, state, path, body, until))
                raise
            if response is not None:
                return response
        state.spawn(state.finish(path, body, until))
        return None


async def _repeat_after(
    first: asyncio.Task[Optional[Response]],
    state: _LoopState,
    path: str,
    body: bytes,
    until: float,
) -> None:
    if await first is None:
        await state.finish(path, body, until)


class _PendingHold:
    """What `AsyncClient.hold` returns: to be awaited, or entered with `async with`."""

    def __init__(self, take: Callable[[], Coroutine[Any, Any, AsyncHold]]) -> None:
        self._take = take
        self._hold: Optional[AsyncHold] = None

    def __await__(self) -> Generator[Any, None, AsyncHold]:
        return self._take().__await__()

    async def __aenter__(self) -> AsyncHold:
        self._hold = await self._take()
        return self._hold

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._hold is not None:
            await self._hold._leave()


class AsyncHold:
    """A charge that is not final: a slot, or units of a rate.

    It is renewed in the background until it is settled or released.
    """

    def __init__(self, client: AsyncClient, decision: Decision, kept: Optional[KeptHold]) -> None:
        self._client = client
        self._state = client._state()
        self._kept = kept
        self._has_ended = kept is None
        # A settlement that failed and is repeated in place of the release.
        self._settlement: Optional[bytes] = None
        #: The decision that allowed it.
        self.decision = decision

    @property
    def id(self) -> Optional[str]:
        """The id, or None if nothing is held: no rule applies, or the service failed open."""
        return self._kept.id if self._kept is not None else None

    @property
    def is_open(self) -> bool:
        """Whether it is held, as far as is known here."""
        return not self._has_ended and self._kept is not None and not self._kept.is_lost

    async def settle(
        self, cost: Optional[int] = None, *, attributes: Optional[Mapping[str, Text]] = None
    ) -> Settled:
        """Ends the hold with the real cost, without `cost` as reserved. Raises HoldEnded.

        If the service does not answer, this raises Unavailable, and the settlement is repeated in
        the background when the hold is left.
        """
        if self._kept is None:
            return Settled(0, 0)
        if self._has_ended:
            raise HoldEnded("the hold was settled or released before")
        body = settle_body(self._kept.id, cost, attributes)
        self._settlement = body
        try:
            settled = await self._client._ask(SETTLE, body, read_settled)
        except HoldEnded:
            self._end()
            raise
        except InvalidRequest:
            self._settlement = None
            raise
        self._end()
        return settled

    async def renew(self, hold_for: Optional[float] = None) -> bool:
        """Extends the hold now. Returns whether it is still held."""
        if self._kept is None or self._has_ended:
            return False
        is_held = await self._client.renew(self._kept.id, hold_for or self._kept.span)
        if is_held:
            self._kept.expires = time.monotonic() + (hold_for or self._kept.span)
        else:
            self._kept.is_lost = True
            self._end()
        return is_held

    async def release(self) -> bool:
        """Ends the hold and returns its units. Returns whether this call did so.

        If the service does not answer, the release is repeated in the background until the hold
        expires.
        """
        if self._kept is None or self._has_ended:
            return False
        self._end()
        body = hold_body(self._kept.id)
        response = await self._client._finish(RELEASE, body, self._kept.expires)
        return response is not None and response.status == 200

    def _end(self) -> None:
        self._has_ended = True
        if self._kept is not None:
            self._state.drop(self._kept)

    async def _leave(self) -> None:
        """Releases the hold, or repeats the settlement that failed."""
        if self._settlement is None:
            await self.release()
        elif not self._has_ended and self._kept is not None:
            self._end()
            await self._client._finish(SETTLE, self._settlement, self._kept.expires)

    async def __aenter__(self) -> AsyncHold:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self._leave()

    def __del__(self) -> None:
        # A hold that was never left, maybe in another thread than that of its loop.
        kept: Optional[KeptHold] = getattr(self, "_kept", None)
        if kept is not None and not self._has_ended:
            self._has_ended = True
            path = RELEASE if self._settlement is None else SETTLE
            body = self._settlement or hold_body(kept.id)
            try:
                self._state.loop.call_soon_threadsafe(self._state.adopt, kept, path, body)
            except RuntimeError:
                # The loop is closed; the hold expires by itself.
                pass
