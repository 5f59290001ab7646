"""What both clients share: settings, the bodies of calls, and the meaning of answers."""

from __future__ import annotations

import json
import logging
import math
import os
import ssl
import threading
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
    Union,
)
from urllib.parse import urlsplit

from ._circuit import Circuit
from ._decision import (
    FAILED_CLOSED,
    FAILED_OPEN,
    LIMIT_HEADERS,
    OUTCOMES,
    Consumed,
    Decision,
    Settled,
)
from ._errors import HoldEnded, InvalidRequest, Unavailable
from ._wire import BadResponse, Response, request_head

log = logging.getLogger("fluxgate")

DEFAULT_URL = "http://127.0.0.1:8081"

CHECK = "/v1/check?status=true"
BATCH = "/v1/check/batch"
CONSUME = "/v1/consume"
CANCEL = "/v1/cancel"
SETTLE = "/v1/settle"
RENEW = "/v1/renew"
RELEASE = "/v1/release"

#: The header by which the service tells that a check names a rule set that does not exist. In a
#: batch, the decision has a field `rule_set` with the same value.
RULE_SET = "x-fluxgate-rule-set"
MISSING = "missing"

#: The largest body that the service reads.
MAX_REQUEST = 64 * 1024
#: How many holds the service renews in one call.
MAX_RENEWED = 1_000
#: How long to wait for an answer after its deadline, to undo what it grants, and how many such
#: answers to wait for at a time.
LATE_ANSWER = 5.0
MAX_LATE_ANSWERS = 64
#: How long to wait before a call that must not be lost is repeated.
RETRY = 0.25
#: The service closes connections that are idle for 30 s.
MAX_IDLE = 25.0
#: How many names of missing rule sets are remembered, and logged. A program may take them from its
#: clients, so neither the memory nor the log may grow with them.
MAX_MISSING = 100

Text = Union[str, int, float, bool]
Identity = Union[str, Sequence[str]]

if TYPE_CHECKING:
    # Only for type checkers: Python 3.9 has no `Unpack`.
    from typing_extensions import TypedDict

    class Request(TypedDict, total=False):
        """What rules may read of a request, as keywords of `check`, `peek`, `wait` and `hold`."""

        ip: Optional[str]
        user: Optional[str]
        api_key: Optional[str]
        method: Optional[str]
        path: Optional[str]
        headers: Optional[Mapping[str, str]]
        attributes: Optional[Mapping[str, Text]]
        #: How many units it takes; by default what the rule says.
        cost: Optional[int]


class CallFailed(Exception):
    """The service did not answer, or not as it should. `on_error` applies."""


#: What a call raises if the service, or the way to it, fails.
FAILURES = (OSError, BadResponse, CallFailed)


class Settings:
    """Where the service is, and what to do if it fails."""

    def __init__(
        self,
        url: str,
        on_error: str,
        deadline: float,
        headers: Optional[Mapping[str, str]],
        ca: Optional[str],
        ssl_context: Optional[ssl.SSLContext],
        pool_size: int,
    ) -> None:
        if on_error not in ("allow", "deny", "raise"):
            raise ValueError(f"on_error is `allow`, `deny` or `raise`, not {on_error!r}")
        if not (deadline > 0 and math.isfinite(deadline)):
            raise ValueError(f"deadline is a number of seconds above 0, not {deadline!r}")
        if pool_size < 0:
            raise ValueError(f"pool_size is 0 or more, not {pool_size!r}")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError(
                f"expected the address of a service, such as http://127.0.0.1:8081, found {url!r}"
            )
        if parts.query or parts.fragment:
            raise ValueError(f"the URL of the service has no query, but {url!r} has")
        self.url = url
        self.on_error = on_error
        self.deadline = deadline
        self.pool_size = pool_size
        self.host: str = parts.hostname
        self.port: int = parts.port or (443 if parts.scheme == "https" else 80)
        self.tls: Optional[ssl.SSLContext] = None
        if parts.scheme == "https":
            self.tls = ssl_context or ssl.create_default_context(cafile=ca)
        extra = dict(headers or {})
        for name, value in extra.items():
            if any(byte in name + value for byte in "\r\n\0"):
                raise ValueError(f"the header {name!r} contains a line end")
        base = parts.path.rstrip("/")
        paths = (CHECK, BATCH, CONSUME, CANCEL, SETTLE, RENEW, RELEASE)
        self._heads = {path: request_head(base + path, parts.netloc, extra) for path in paths}
        #: Shared by a client and those that middleware derives from it.
        self.circuit = Circuit()
        self._missing: Set[str] = set()
        self._missing_lock = threading.Lock()

    def request(self, path: str, body: bytes) -> bytes:
        """Returns the bytes of a call."""
        return b"%b%d\r\n\r\n%b" % (self._heads[path], len(body), body)

    def failed(self, error: BaseException, is_probe: bool) -> None:
        """Records a failure. A service that goes on failing is logged once."""
        if self.circuit.failed(is_probe):
            reason = describe(error)
            log.warning("FluxGate at %s does not decide: %s; %s", self.url, reason, self.effect)

    def succeeded(self) -> None:
        """Records an answer."""
        if self.circuit.succeeded():
            # Not at a lower level: who sees the warning must see its end.
            log.warning("FluxGate at %s decides again", self.url)

    @property
    def effect(self) -> str:
        """What happens to requests that the service does not decide, for the log."""
        verb = {"allow": "are allowed", "deny": "are denied", "raise": "fail"}[self.on_error]
        return f"requests {verb} (on_error={self.on_error})"

    def read_check(self, rule_set: Optional[str], response: Response) -> Decision:
        """Returns the decision of an answer to a check, and logs that its rule set is missing."""
        decision = read_decision(response)
        if response.headers.get(RULE_SET) == MISSING and rule_set is not None:
            self._warn_missing(rule_set, decision.allowed)
        return decision

    def read_batch(self, batch: Mapping[str, Any], response: Response) -> List[Decision]:
        """Returns the decisions of an answer to a batch, and logs which rule sets are missing."""
        checks = batch["checks"]
        body = read_json(response)
        found = body.get("decisions") if isinstance(body, dict) else None
        if not isinstance(found, list) or len(found) != len(checks):
            raise CallFailed("the service answers with another number of decisions")
        decisions = [decision_of(it, None, {}) for it in found]
        for check, it, decision in zip(checks, found, decisions):
            if it.get("rule_set") == MISSING and "rule_set" in check:
                self._warn_missing(check["rule_set"], decision.allowed)
        return decisions

    def _warn_missing(self, rule_set: str, is_allowed: bool) -> None:
        with self._missing_lock:
            if rule_set in self._missing or len(self._missing) >= MAX_MISSING:
                return
            self._missing.add(rule_set)
        effect = "pass" if is_allowed else "are denied"
        message = "FluxGate at %s has no rule set `%s`: requests that it should limit %s"
        log.warning(message, self.url, rule_set, effect)

    def instead(self, error: Optional[BaseException]) -> Decision:
        """Decides in place of the service."""
        if self.on_error == "allow":
            return FAILED_OPEN
        if self.on_error == "deny":
            return FAILED_CLOSED
        raise self.unavailable(error) from error

    def unavailable(self, error: Optional[BaseException]) -> Unavailable:
        """Returns the exception for a service that did not answer."""
        reason = "it failed before, and is not asked for a moment"
        if error is not None:
            reason = describe(error)
        return Unavailable(f"FluxGate at {self.url} does not decide: {reason}")

    def consumed_instead(self, error: Optional[BaseException]) -> Consumed:
        """Decides a `consume` in place of the service."""
        decision = self.instead(error)
        return Consumed(decision.allowed, None, decision.retry_after, decision.outcome)


def describe(error: BaseException) -> str:
    """Returns what an error says, or its kind if it says nothing."""
    if isinstance(error, ConnectionError) and error.errno:
        # asyncio has a text of its own, which does not say why.
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


_FIELDS = frozenset("ip user api_key method path headers attributes cost".split())


def check_body(rule_set: Optional[str], request: Request, **more: Any) -> Dict[str, Any]:
    """Returns the fields of a check. Those that are None are left out."""
    unknown = request.keys() - _FIELDS
    if unknown:
        raise TypeError(f"a request has no field {min(unknown)!r}; it has {sorted(_FIELDS)}")
    body = {"rule_set": rule_set, **request, **more}
    if body.get("headers") is not None:
        body["headers"] = dict(request["headers"] or {})
    if body.get("attributes") is not None:
        body["attributes"] = texts(request["attributes"] or {})
    return {name: value for name, value in body.items() if value is not None}


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


def cancel_body(reservation: str) -> bytes:
    """Returns the body of a cancellation."""
    return encode({"reservation": reservation})


def renew_body(hold: str, for_seconds: float) -> bytes:
    """Returns the body of a renewal of one hold."""
    return encode({"holds": [hold], "hold_for": span(for_seconds)})


def text(value: Text) -> str:
    """Returns an attribute as the service compares it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def texts(values: Mapping[str, Text]) -> Dict[str, str]:
    """Returns attributes as the service compares them."""
    return {name: text(value) for name, value in values.items()}


# `json.dumps` would make one for every call.
_encoder = json.JSONEncoder(separators=(",", ":"))


def encode(body: Mapping[str, Any]) -> bytes:
    """Returns the JSON of a body."""
    return _encoder.encode(body).encode("ascii")


def limited(body: bytes) -> bytes:
    """Returns a body that the service reads. It may close the connection before it reads more."""
    if len(body) > MAX_REQUEST:
        raise InvalidRequest(413, f"the call has {len(body)} bytes, at most {MAX_REQUEST} are read")
    return body


def span(seconds: float) -> str:
    """Returns a duration as the service reads it."""
    return f"{max(1, math.ceil(seconds * 1000))}ms"


def hold_body(hold: str) -> bytes:
    """Returns the body of a settlement as reserved, or of a release."""
    return encode({"hold": hold})


def settle_body(hold: str, cost: Optional[int], attributes: Optional[Mapping[str, Text]]) -> bytes:
    """Returns the body of a settlement."""
    if cost is not None and attributes is not None:
        raise ValueError("a hold is settled by `cost` or by `attributes`, not by both")
    body: Dict[str, Any] = {"hold": hold}
    if cost is not None:
        body["cost"] = cost
    if attributes is not None:
        body["attributes"] = texts(attributes)
    return encode(body)


def batch_body(checks: Iterable[Mapping[str, Any]]) -> Dict[str, Any]:
    """Returns the body of a batch. Each check has the arguments of `check`, or `peek`."""
    bodies: List[Dict[str, Any]] = []
    for check in checks:
        body = {name: value for name, value in check.items() if value is not None}
        if "attributes" in body:
            body["attributes"] = texts(body["attributes"])
        if "hold_for" in body:
            body["hold"] = span(body.pop("hold_for"))
        bodies.append(body)
    return {"checks": bodies}


def read_json(response: Response) -> Any:
    """Returns the JSON of an answer with status 200.

    Raises InvalidRequest for a call that the service rejects, and CallFailed otherwise.
    """
    status = response.status
    try:
        body = json.loads(response.body.decode("utf-8"))
    except (ValueError, RecursionError):
        body = None
    if status == 200 and body is not None:
        return body
    # 408 and 429 are about the load of the service or of a proxy, not about the call.
    if 400 <= status < 500 and status not in (408, 429):
        detail = body.get("detail") if isinstance(body, dict) else None
        raise InvalidRequest(status, str(detail or "no details"))
    if status == 200:
        raise CallFailed("the service answers with something that is not JSON")
    raise CallFailed(f"the service answers {status}")


def read_decision(response: Response) -> Decision:
    """Returns the decision of an answer to a check."""
    status = response.status
    if status != 200:
        try:
            body = json.loads(response.body.decode("utf-8"))
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict) or "outcome" not in body:
            read_json(response)
    else:
        body = read_json(response)
    received = response.headers
    headers = {name: received[key] for key, name in LIMIT_HEADERS.items() if key in received}
    decision = decision_of(body, status, headers)
    if decision.allowed != (status == 200):
        raise CallFailed("the service answers with an inconsistent decision")
    return decision


_STATUS = {"forbidden": 403, "failed_closed": 503}


def decision_of(body: Any, status: Optional[int], headers: Mapping[str, str]) -> Decision:
    """Returns a decision from JSON, if it is one. A status of None is inferred."""
    try:
        allowed, outcome = body["allowed"], body["outcome"]
        is_consistent = OUTCOMES[outcome] in (allowed, None)
        if not isinstance(allowed, bool) or not is_consistent:
            raise ValueError
        if status is None:
            status = 200 if allowed else _STATUS.get(outcome, 429)
        retry = body["retry_after_ms"]
        hold, hold_ms = body.get("hold"), body.get("hold_ms")
        decision = object.__new__(Decision)
        # The constructor of a frozen class sets its fields one by one, which takes longer than all
        # the rest of this function.
        decision.__dict__.update(
            allowed=allowed,
            outcome=outcome,
            rule=body["rule"],
            band=body["band"],
            limit=body["limit"],
            remaining=body["remaining"],
            retry_after=None if retry is None else retry / 1000,
            reset_after=body["reset_after_ms"] / 1000,
            delay=body["delay_ms"] / 1000,
            violated=tuple(body["violated"]),
            hold=hold,
            hold_for=None if hold is None else hold_ms / 1000,
            status=status,
            headers=headers,
            reservation=body.get("reservation"),
            title=body.get("title"),
        )
        return decision
    except (KeyError, TypeError, ValueError):
        raise CallFailed("the service answers with an invalid decision") from None


def read_consumed(response: Response) -> Consumed:
    """Returns the answer to a consume."""
    body = read_json(response)
    try:
        retry = body["retry_after_ms"]
        hold = body.get("hold")
        return Consumed(
            bool(body["allowed"]),
            body["remaining"],
            None if retry is None else retry / 1000,
            body.get("outcome"),
            hold,
            None if hold is None else body["hold_ms"] / 1000,
        )
    except (KeyError, TypeError, AttributeError):
        raise CallFailed("the service answers with an invalid decision") from None


def read_settled(response: Response) -> Settled:
    """Returns the answer to a settlement or a release."""
    if response.status == 404:
        raise HoldEnded("the hold was settled, released or has expired")
    body = read_json(response)
    try:
        return Settled(int(body["charged"]), int(body["uncharged"]))
    except (KeyError, TypeError, ValueError):
        raise CallFailed("the service answers with an invalid settlement") from None


def read_cancelled(response: Response) -> bool:
    """Returns whether a reservation was cancelled."""
    if response.status == 404:
        return False
    read_json(response)
    return True


def read_renewed(response: Response, count: int = 1) -> List[bool]:
    """Returns for each hold whether it is still held."""
    body = read_json(response)
    renewed = body.get("renewed") if isinstance(body, dict) else None
    if not isinstance(renewed, list) or len(renewed) != count:
        raise CallFailed("the service answers with another number of holds")
    return [bool(it) for it in renewed]


def is_final(response: Response) -> bool:
    """Returns whether a repeated call would be answered alike."""
    # 404: the hold has ended. 408 and 429 are about the load.
    return response.status < 500 and response.status not in (408, 429)


def undo_call(decision: Decision) -> Optional[Tuple[str, bytes]]:
    """Returns the call that gives back what a decision grants, if it grants anything."""
    if decision.reservation is not None:
        # This ends its hold as well.
        return CANCEL, cancel_body(decision.reservation)
    if decision.hold is not None:
        return RELEASE, hold_body(decision.hold)
    return None


def undo_of(response: Response) -> Optional[Tuple[str, bytes]]:
    """Returns the call that undoes what a late answer grants, if it grants anything."""
    try:
        return undo_call(read_decision(response))
    except (CallFailed, InvalidRequest):
        return None
