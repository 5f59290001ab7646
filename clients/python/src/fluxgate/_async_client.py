"""The client for asyncio."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import (
    TYPE_CHECKING,
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
    TypeVar,
)

from ._async_keeper import LoopState
from ._calls import (
    BATCH,
    CANCEL,
    CHECK,
    CONSUME,
    DEFAULT_URL,
    FAILURES,
    MAX_REQUEST,
    RELEASE,
    RENEW,
    SETTLE,
    Identity,
    Settings,
    Text,
    batch_body,
    cancel_body,
    check_body,
    consume_body,
    encode,
    hold_body,
    limited,
    read_cancelled,
    read_consumed,
    read_renewed,
    read_settled,
    renew_body,
    settle_body,
    span,
    undo_call,
)
from ._client import Client
from ._decision import TOO_LARGE, Consumed, Decision, Settled
from ._errors import Denied, HoldEnded, InvalidRequest
from ._holds import KeptHold, OpenHold
from ._wire import Response

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._calls import Request

T = TypeVar("T")


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
        self._start(Settings(url, on_error, deadline, headers, ca, ssl_context, pool_size))

    def _start(self, settings: Settings) -> None:
        self._settings = settings
        self._states: Dict[asyncio.AbstractEventLoop, LoopState] = {}
        # The client that middleware for WSGI uses in place of this one.
        self._derived: Optional[Client] = None

    @classmethod
    def _with(cls, settings: Settings) -> AsyncClient:
        client = cls.__new__(cls)
        client._start(settings)
        return client

    async def check(self, rule_set: Optional[str] = None, **request: Unpack[Request]) -> Decision:
        """Decides and charges a request. `delay` is not waited for: see `wait`."""
        return await self._check(check_body(rule_set, request))

    async def peek(self, rule_set: Optional[str] = None, **request: Unpack[Request]) -> Decision:
        """Decides a request without charging it."""
        return await self._check(check_body(rule_set, request, peek=True))

    async def batch(self, checks: Iterable[Mapping[str, Any]]) -> List[Decision]:
        """Decides up to 1,000 checks, each by itself and in order: see `Client.batch`."""
        body = batch_body(checks)
        count = len(body["checks"])
        return await self._decide(
            BATCH,
            limited(encode(body)),
            lambda response: self._settings.read_batch(body, response),
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
        max_wait: Optional[float] = None,
        **request: Unpack[Request],
    ) -> Decision:
        """Decides a request, and sleeps until it may proceed: see `Client.wait`.

        If the task is cancelled, so is the reservation.
        """
        body = check_body(rule_set, request, wait=True)
        decision, kept = await self._wait(body, await self._check(body), max_wait)
        if kept is not None:
            # From now on it is the caller's, as after `check`.
            self._state().drop(kept)
        return decision

    def hold(
        self,
        rule_set: Optional[str] = None,
        *,
        hold_for: float = 60.0,
        max_wait: Optional[float] = None,
        **request: Unpack[Request],
    ) -> _PendingHold:
        """Decides a request and holds its charge: `async with fg.hold(…) as hold`. Raises Denied.

        It is renewed and released as that of `Client.hold`. `await` returns it without a block.
        """
        body = check_body(rule_set, request, wait=True, hold=span(hold_for))
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
        return (await self._ask(RENEW, renew_body(hold, hold_for), read_renewed))[0]

    async def release(self, hold: str) -> bool:
        """Releases the hold of this id. Returns whether it was held."""
        try:
            await self._ask(RELEASE, hold_body(hold), read_settled)
        except HoldEnded:
            return False
        return True

    async def cancel(self, reservation: str) -> bool:
        """Cancels the reservation of a delayed decision. Returns whether it was still reserved."""
        return await self._ask(CANCEL, cancel_body(reservation), read_cancelled)

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

    def _state(self) -> LoopState:
        loop = asyncio.get_running_loop()
        state = self._states.get(loop)
        if state is None:
            for ended in [it for it in list(self._states) if it.is_closed()]:
                self._states.pop(ended, None)
            state = self._states[loop] = LoopState(self._settings, loop)
        return state

    async def _check(self, body: Dict[str, Any]) -> Decision:
        encoded = encode(body)
        if len(encoded) > MAX_REQUEST:
            return TOO_LARGE
        settings, rule_set = self._settings, body.get("rule_set")
        return await self._decide(
            CHECK,
            encoded,
            lambda response: settings.read_check(rule_set, response),
            settings.instead,
        )

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
        except FAILURES as error:
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
        except FAILURES as error:
            raise self._settings.unavailable(error) from error

    async def _hold(self, body: Dict[str, Any], max_wait: Optional[float]) -> AsyncHold:
        decision, kept = await self._wait(body, await self._check(body), max_wait)
        if not decision.allowed:
            raise Denied(decision)
        return AsyncHold(self, decision, kept)

    def _keep(self, decision: Decision) -> Optional[KeptHold]:
        """Renews the hold of an allowed decision from now on, if it has one."""
        kept = KeptHold.of(decision) if decision.allowed else None
        if kept is not None:
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
        kept = self._keep(decision)
        if not decision.allowed or decision.delay <= 0:
            return decision, kept
        if (max_wait is not None and decision.delay > max_wait) or not has_permit():
            await asyncio.shield(self._abandon(decision, kept))
            # Once more, without the wait.
            again = await self._check({**body, "wait": False, "again": True})
            decision = decision.refused_as(again)
            return decision, self._keep(decision)
        try:
            await sleep(decision.delay)
        except BaseException:
            # In another task, since this one is cancelled.
            self._abandon(decision, kept)
            raise
        return decision, kept

    def _abandon(self, decision: Decision, kept: Optional[KeptHold]) -> asyncio.Task[Any]:
        """Gives back what a request that does not proceed was granted."""
        state = self._state()
        if kept is not None:
            state.drop(kept)
        undo = undo_call(decision)
        if undo is None:
            return state.spawn(asyncio.sleep(0))
        return state.spawn(state.finish(*undo, until=time.monotonic() + decision.delay))

    async def _finish(self, path: str, body: bytes, until: float) -> Optional[Response]:
        """Makes a call now, or in the background if it fails. Returns its answer."""
        state = self._state()
        if not self._settings.circuit.is_open:
            first = state.spawn(state.finish(path, body, until, is_repeated=False))
            try:
                response = await asyncio.shield(first)
            except asyncio.CancelledError:
                state.spawn(state.finish_after(first, path, body, until))
                raise
            if response is not None:
                return response
        state.spawn(state.finish(path, body, until))
        return None


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

    async def __aexit__(self, *_: object) -> None:
        if self._hold is not None:
            await self._hold._leave()


class AsyncHold(OpenHold):
    """A charge that is not final: `Hold` with `await`."""

    def __init__(self, client: AsyncClient, decision: Decision, kept: Optional[KeptHold]) -> None:
        super().__init__(decision, kept)
        self._client = client
        self._state = client._state()

    async def settle(
        self, cost: Optional[int] = None, *, attributes: Optional[Mapping[str, Text]] = None
    ) -> Settled:
        """Ends the hold with the real cost, without `cost` as reserved. Raises HoldEnded.

        If the service does not answer, this raises Unavailable, and the settlement is repeated in
        the background when the hold is left.
        """
        body = self._begin_settlement(cost, attributes)
        if body is None:
            return Settled(0, 0)
        try:
            settled = await self._client._ask(SETTLE, body, read_settled)
        except (HoldEnded, InvalidRequest) as error:
            self._reject_settlement(error)
            raise
        self._end()
        return settled

    async def renew(self, hold_for: Optional[float] = None) -> bool:
        """Extends the hold now. Returns whether it is still held."""
        if self._kept is None or self._has_ended:
            return False
        for_seconds = hold_for or self._kept.span
        is_held = await self._client.renew(self._kept.id, for_seconds)
        self._record_renewal(is_held, for_seconds)
        return is_held

    async def release(self) -> bool:
        """Ends the hold and returns its units. Returns whether this call did so.

        If the service does not answer, the release is repeated in the background until the hold
        expires.
        """
        self._settlement = None
        return await self._leave()

    async def _leave(self) -> bool:
        """Releases the hold, or repeats the settlement that failed."""
        if self._kept is None or self._has_ended:
            return False
        self._end()
        response = await self._client._finish(*self._last_call(self._kept), self._kept.expires)
        return response is not None and response.status == 200

    def _end(self) -> None:
        self._has_ended = True
        if self._kept is not None:
            self._state.drop(self._kept)

    async def __aenter__(self) -> AsyncHold:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._leave()

    def __del__(self) -> None:
        # A hold that was never left, maybe in another thread than that of its loop.
        kept: Optional[KeptHold] = getattr(self, "_kept", None)
        if kept is not None and not self._has_ended:
            self._has_ended = True
            adopt = self._state.adopt
            try:
                self._state.loop.call_soon_threadsafe(adopt, kept, *self._last_call(kept))
            except RuntimeError:
                # The loop is closed; the hold expires by itself.
                pass
