"""The blocking client."""

from __future__ import annotations

import ssl
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, TypeVar

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
from ._decision import TOO_LARGE, Consumed, Decision, Settled
from ._errors import Denied, HoldEnded, InvalidRequest
from ._holds import KeptHold, OpenHold
from ._keeper import Keeper
from ._transport import Transport
from ._wire import BadResponse, Response

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._async_client import AsyncClient
    from ._calls import Request

T = TypeVar("T")


class Client:
    """Asks a FluxGate service. Threads may share it.

    `on_error` says what happens if the service does not answer within `deadline` seconds, or not
    with a decision: `allow`, `deny`, or `raise` Unavailable.
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
        self._transport = Transport(settings)
        self._keeper = Keeper(self._transport)
        # The client that middleware for asyncio uses in place of this one.
        self._derived: Optional[AsyncClient] = None

    @classmethod
    def _with(cls, settings: Settings) -> Client:
        client = cls.__new__(cls)
        client._start(settings)
        return client

    def check(self, rule_set: Optional[str] = None, **request: Unpack[Request]) -> Decision:
        """Decides and charges a request. `delay` is not waited for: see `wait`.

        The keywords are `ip`, `user`, `api_key`, `method`, `path`, `headers`, `attributes` and
        `cost`, as in `peek`, `wait` and `hold`.
        """
        return self._check(check_body(rule_set, request))

    def peek(self, rule_set: Optional[str] = None, **request: Unpack[Request]) -> Decision:
        """Decides a request without charging it."""
        return self._check(check_body(rule_set, request, peek=True))

    def batch(self, checks: Iterable[Mapping[str, Any]]) -> List[Decision]:
        """Decides up to 1,000 checks, each by itself and in order.

        Each is a mapping with the arguments of `check`, and `peek` if it is not to be charged.
        """
        body = batch_body(checks)
        count = len(body["checks"])
        return self._decide(
            BATCH,
            limited(encode(body)),
            lambda response: self._settings.read_batch(body, response),
            lambda error: [self._settings.instead(error) for _ in range(count)],
        )

    def consume(
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
        return self._decide(CONSUME, body, read_consumed, self._settings.consumed_instead)

    def wait(
        self,
        rule_set: Optional[str] = None,
        *,
        max_wait: Optional[float] = None,
        **request: Unpack[Request],
    ) -> Decision:
        """Decides a request, and sleeps until it may proceed.

        A rule with `on_exceed: wait` lets it wait for up to its own `max_wait`. If the delay is
        longer than this `max_wait` (in seconds), or if the sleep is interrupted, the reservation
        is cancelled.
        """
        body = check_body(rule_set, request, wait=True)
        decision, kept = self._wait(body, self._check(body), max_wait)
        if kept is not None:
            # From now on it is the caller's, as after `check`.
            self._keeper.drop(kept)
        return decision

    def hold(
        self,
        rule_set: Optional[str] = None,
        *,
        hold_for: float = 60.0,
        max_wait: Optional[float] = None,
        **request: Unpack[Request],
    ) -> Hold:
        """Decides a request and holds its charge. Raises Denied.

        The hold is renewed while it is open, and released at the end of a `with` block unless it
        was settled. If the process dies, it expires after `hold_for` seconds at most.
        """
        body = check_body(rule_set, request, wait=True, hold=span(hold_for))
        decision, kept = self._wait(body, self._check(body), max_wait)
        if not decision.allowed:
            raise Denied(decision)
        return Hold(self, decision, kept)

    def settle(
        self,
        hold: str,
        cost: Optional[int] = None,
        *,
        attributes: Optional[Mapping[str, Text]] = None,
    ) -> Settled:
        """Settles the hold of this id, for those who keep ids themselves. Raises HoldEnded."""
        return self._ask(SETTLE, settle_body(hold, cost, attributes), read_settled)

    def renew(self, hold: str, hold_for: float = 60.0) -> bool:
        """Extends the hold of this id. Returns whether it is still held."""
        return self._ask(RENEW, renew_body(hold, hold_for), read_renewed)[0]

    def release(self, hold: str) -> bool:
        """Releases the hold of this id. Returns whether it was held."""
        try:
            self._ask(RELEASE, hold_body(hold), read_settled)
        except HoldEnded:
            return False
        return True

    def cancel(self, reservation: str) -> bool:
        """Cancels the reservation of a delayed decision. Returns whether it was still reserved."""
        return self._ask(CANCEL, cancel_body(reservation), read_cancelled)

    def close(self) -> None:
        """Closes connections and ends the background thread."""
        self._keeper.close()
        self._transport.close()
        if self._derived is not None:
            self._derived._close_soon()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self, body: Dict[str, Any]) -> Decision:
        encoded = encode(body)
        if len(encoded) > MAX_REQUEST:
            return TOO_LARGE
        settings, rule_set = self._settings, body.get("rule_set")
        return self._decide(
            CHECK,
            encoded,
            lambda response: settings.read_check(rule_set, response),
            settings.instead,
        )

    def _decide(
        self,
        path: str,
        body: bytes,
        read: Callable[[Response], T],
        instead: Callable[[Optional[BaseException]], T],
    ) -> T:
        """Makes a call that `on_error` decides if it fails."""
        settings = self._settings
        is_probe = settings.circuit.admit()
        if is_probe is None:
            return instead(None)
        try:
            result = read(self._transport.call(path, body, on_late=self._keeper.take_late))
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

    def _ask(self, path: str, body: bytes, read: Callable[[Response], T]) -> T:
        """Makes a call that nothing can decide if it fails."""
        try:
            return read(self._transport.call(path, body))
        except FAILURES as error:
            raise self._settings.unavailable(error) from error

    def _keep(self, decision: Decision) -> Optional[KeptHold]:
        """Renews the hold of an allowed decision from now on, if it has one."""
        kept = KeptHold.of(decision) if decision.allowed else None
        if kept is not None:
            self._keeper.keep(kept)
        return kept

    def _wait(
        self,
        body: Dict[str, Any],
        decision: Decision,
        max_wait: Optional[float],
        has_permit: Callable[[], bool] = lambda: True,
    ) -> tuple[Decision, Optional[KeptHold]]:
        """Sleeps until a request may proceed, and keeps its hold."""
        kept = self._keep(decision)
        if not decision.allowed or decision.delay <= 0:
            return decision, kept
        if (max_wait is not None and decision.delay > max_wait) or not has_permit():
            self._abandon(decision, kept)
            # Once more, without the wait.
            again = self._check({**body, "wait": False, "again": True})
            decision = decision.refused_as(again)
            return decision, self._keep(decision)
        try:
            time.sleep(decision.delay)
        except BaseException:
            self._abandon(decision, kept)
            raise
        return decision, kept

    def _abandon(self, decision: Decision, kept: Optional[KeptHold]) -> None:
        """Gives back what a request that does not proceed was granted."""
        if kept is not None:
            self._keeper.drop(kept)
        undo = undo_call(decision)
        if undo is not None:
            self._finish(*undo, until=time.monotonic() + decision.delay)

    def _finish(self, path: str, body: bytes, until: float) -> Optional[Response]:
        """Makes a call now, or in the background if it fails. Returns its answer."""
        if not self._settings.circuit.is_open:
            try:
                response = self._transport.call(path, body)
                if response.status < 500:
                    return response
            except (OSError, BadResponse):
                pass
        self._keeper.repeat(path, body, until)
        return None


class Hold(OpenHold):
    """A charge that is not final: a slot, or units of a rate.

    It is renewed in the background until it is settled or released.
    """

    def __init__(self, client: Client, decision: Decision, kept: Optional[KeptHold]) -> None:
        super().__init__(decision, kept)
        self._client = client

    def settle(
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
            settled = self._client._ask(SETTLE, body, read_settled)
        except (HoldEnded, InvalidRequest) as error:
            self._reject_settlement(error)
            raise
        self._end()
        return settled

    def renew(self, hold_for: Optional[float] = None) -> bool:
        """Extends the hold now. Returns whether it is still held."""
        if self._kept is None or self._has_ended:
            return False
        for_seconds = hold_for or self._kept.span
        is_held = self._client.renew(self._kept.id, for_seconds)
        self._record_renewal(is_held, for_seconds)
        return is_held

    def release(self) -> bool:
        """Ends the hold and returns its units. Returns whether this call did so.

        If the service does not answer, the release is repeated in the background until the hold
        expires.
        """
        self._settlement = None
        return self._leave()

    def _leave(self) -> bool:
        """Releases the hold, or repeats the settlement that failed."""
        if self._kept is None or self._has_ended:
            return False
        self._end()
        response = self._client._finish(*self._last_call(self._kept), self._kept.expires)
        return response is not None and response.status == 200

    def _end(self) -> None:
        self._has_ended = True
        if self._kept is not None:
            self._client._keeper.drop(self._kept)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def __del__(self) -> None:
        # A hold that was never left. The background thread ends it: this may run anywhere.
        kept: Optional[KeptHold] = getattr(self, "_kept", None)
        if kept is not None and not self._has_ended:
            self._has_ended = True
            self._client._keeper.adopt(kept, *self._last_call(kept))
