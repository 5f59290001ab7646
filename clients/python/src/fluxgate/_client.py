"""The blocking client."""

from __future__ import annotations

import ssl
import time
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Type,
    TypeVar,
)

from ._calls import (
    BATCH,
    CANCEL,
    CHECK,
    CONSUME,
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
    hold_body,
    limited,
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
from ._decision import TOO_LARGE, Consumed, Decision, Settled
from ._errors import Denied, HoldEnded, InvalidRequest
from ._keeper import Keeper, KeptHold
from ._transport import Transport
from ._wire import BadResponse, Response

if TYPE_CHECKING:
    from ._async_client import AsyncClient

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8081"
_FAILURES = (OSError, BadResponse, CallFailed)


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
        self._transport = Transport(settings)
        self._keeper = Keeper(self._transport)
        # The client that middleware for asyncio uses in place of this one.
        self._derived: Optional[AsyncClient] = None

    @classmethod
    def _with(cls, settings: Settings) -> Client:
        client = cls.__new__(cls)
        client._start(settings)
        return client

    def check(
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
        return self._check(check_body(*context))

    def peek(
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
        return self._check(check_body(*context, peek=True))

    def batch(self, checks: Iterable[Mapping[str, Any]]) -> List[Decision]:
        """Decides up to 1,000 checks, each by itself and in order.

        Each is a mapping with the arguments of `check`, and `peek` if it is not to be charged.
        """
        body = batch_body(checks)
        count = len(body["checks"])
        return self._decide(
            BATCH,
            limited(encode(body)),
            lambda response: read_decisions(response, count),
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
        longer than this `max_wait` (in seconds), or if the sleep is interrupted, the reservation
        is cancelled.
        """
        context = (rule_set, ip, user, api_key, method, path, headers, attributes, cost)
        body = check_body(*context, wait=True)
        decision, kept = self._wait(body, self._check(body), max_wait)
        if kept is not None:
            # From now on it is the caller's, as after `check`.
            self._keeper.drop(kept)
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
    ) -> Hold:
        """Decides a request and holds its charge. Raises Denied.

        The hold is renewed while it is open, and released at the end of a `with` block unless it
        was settled. If the process dies, it expires after `hold_for` seconds at most.
        """
        context = (rule_set, ip, user, api_key, method, path, headers, attributes, cost)
        body = check_body(*context, wait=True, hold=span(hold_for))
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
        body = encode({"holds": [hold], "hold_for": span(hold_for)})
        return self._ask(RENEW, body, lambda response: read_renewed(response, 1))[0]

    def release(self, hold: str) -> bool:
        """Releases the hold of this id. Returns whether it was held."""
        try:
            self._ask(RELEASE, hold_body(hold), read_settled)
        except HoldEnded:
            return False
        return True

    def cancel(self, reservation: str) -> bool:
        """Cancels the reservation of a delayed decision. Returns whether it was still reserved."""
        try:
            self._ask(CANCEL, encode({"reservation": reservation}), read_json)
        except InvalidRequest as error:
            if error.status == 404:
                return False
            raise
        return True

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
        return self._decide(CHECK, encoded, read_decision, self._settings.instead)

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

    def _ask(self, path: str, body: bytes, read: Callable[[Response], T]) -> T:
        """Makes a call that nothing can decide if it fails."""
        try:
            return read(self._transport.call(path, body))
        except _FAILURES as error:
            raise unavailable(error) from error

    def _keep(self, decision: Decision) -> Optional[KeptHold]:
        """Renews the hold of a decision from now on, if it has one."""
        if decision.hold is None or decision.hold_for is None:
            return None
        kept = KeptHold(decision.hold, decision.hold_for)
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
        kept = self._keep(decision) if decision.allowed else None
        if not decision.allowed or decision.delay <= 0:
            return decision, kept
        is_too_long = max_wait is not None and decision.delay > max_wait
        if is_too_long or not has_permit():
            self._abandon(decision, kept)
            return self._refuse_wait(body, decision)
        try:
            time.sleep(decision.delay)
        except BaseException:
            self._abandon(decision, kept)
            raise
        return decision, kept

    def _refuse_wait(
        self, body: Dict[str, Any], decision: Decision
    ) -> tuple[Decision, Optional[KeptHold]]:
        """Asks once more for a request that cannot wait."""
        again = self._check({**body, "wait": False, "again": True})
        # A failure says nothing about the limit, which is known to be used up.
        if again.outcome in ("failed_open", "failed_closed"):
            return decision.without_wait(), None
        return again, self._keep(again) if again.allowed else None

    def _abandon(self, decision: Decision, kept: Optional[KeptHold]) -> None:
        """Gives back what a request that does not proceed was granted."""
        if kept is not None:
            self._keeper.drop(kept)
        if decision.reservation is not None:
            path, call = CANCEL, encode({"reservation": decision.reservation})
        elif kept is not None:
            path, call = RELEASE, hold_body(kept.id)
        else:
            return
        self._finish(path, call, time.monotonic() + decision.delay)

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


class Hold:
    """A charge that is not final: a slot, or units of a rate.

    It is renewed in the background until it is settled or released.
    """

    def __init__(self, client: Client, decision: Decision, kept: Optional[KeptHold]) -> None:
        self._client = client
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

    def settle(
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
            settled = self._client._ask(SETTLE, body, read_settled)
        except HoldEnded:
            self._end()
            raise
        except InvalidRequest:
            self._settlement = None
            raise
        self._end()
        return settled

    def renew(self, hold_for: Optional[float] = None) -> bool:
        """Extends the hold now. Returns whether it is still held."""
        if self._kept is None or self._has_ended:
            return False
        is_held = self._client.renew(self._kept.id, hold_for or self._kept.span)
        if is_held:
            self._kept.expires = time.monotonic() + (hold_for or self._kept.span)
        else:
            self._kept.is_lost = True
            self._end()
        return is_held

    def release(self) -> bool:
        """Ends the hold and returns its units. Returns whether this call did so.

        If the service does not answer, the release is repeated in the background until the hold
        expires.
        """
        if self._kept is None or self._has_ended:
            return False
        self._end()
        body = hold_body(self._kept.id)
        response = self._client._finish(RELEASE, body, self._kept.expires)
        return response is not None and response.status == 200

    def _end(self) -> None:
        self._has_ended = True
        if self._kept is not None:
            self._client._keeper.drop(self._kept)

    def _leave(self) -> None:
        """Releases the hold, or repeats the settlement that failed."""
        if self._settlement is None:
            self.release()
        elif not self._has_ended and self._kept is not None:
            self._end()
            self._client._finish(SETTLE, self._settlement, self._kept.expires)

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._leave()

    def __del__(self) -> None:
        # A hold that was never left. The background thread ends it: this may run anywhere.
        kept: Optional[KeptHold] = getattr(self, "_kept", None)
        if kept is not None and not self._has_ended:
            self._has_ended = True
            path = RELEASE if self._settlement is None else SETTLE
            self._client._keeper.adopt(kept, path, self._settlement or hold_body(kept.id))


def consume_body(
    rule_id: str,
    identity: Identity,
    cost: Optional[int],
    capacity: Optional[int],
    refill_tokens_per_second: Optional[float],
) -> bytes:
    """Returns the body of a consume."""
    body = {
        "rule_id": rule_id,
        "identity": identity if isinstance(identity, str) else list(identity),
        "cost": cost,
        "capacity": capacity,
        "refill_tokens_per_second": refill_tokens_per_second,
    }
    return encode({name: value for name, value in body.items() if value is not None})
