"""Decisions, and how a server answers a denied request."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Dict, Mapping, Optional, Tuple

PROBLEM_JSON = "application/problem+json"

_QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
_REDUCED_CAPACITY = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

# The headers that report limits, as a response writes them.
LIMIT_HEADERS = {
    name.lower(): name
    for name in (
        "X-RateLimit-Limit",
        "X-RateLimit-Remaining",
        "X-RateLimit-Reset",
        "RateLimit-Policy",
        "RateLimit",
        "Retry-After",
    )
}

# Outcomes, and whether the request is allowed. A fallback may be either.
OUTCOMES: Dict[str, Optional[bool]] = {
    "allowed": True,
    "shadow_denied": True,
    "no_rule": True,
    "exempt": True,
    "failed_open": True,
    "denied": False,
    "never": False,
    "forbidden": False,
    "failed_closed": False,
    "fallback": None,
}


@dataclass(frozen=True)
class Decision:
    """The answer to a check. Times are in seconds.

    `outcome` is `allowed`, `denied`, `never`, `forbidden`, `exempt`, `shadow_denied`, `no_rule`,
    `fallback`, `failed_open` or `failed_closed`. The last two are also what `on_error` decides
    when the service cannot be reached.
    """

    allowed: bool
    outcome: str
    #: The reported rule and band, if there is one.
    rule: Optional[str] = None
    band: Optional[str] = None
    #: The capacity of that band, and the whole units that are left of it.
    limit: Optional[int] = None
    remaining: Optional[int] = None
    #: After how long the same request would pass: 0 if it passed, None if it never will.
    retry_after: Optional[float] = 0.0
    #: How long until that band is full again.
    reset_after: float = 0.0
    #: How long an allowed request has to wait before it proceeds.
    delay: float = 0.0
    #: Every band that denied, as `rule/band`; of an allowed request those of shadow rules.
    violated: Tuple[str, ...] = ()
    #: The id of the hold, if the charge is held, and how soon it must be renewed.
    hold: Optional[str] = None
    hold_for: Optional[float] = None
    #: The status with which a server answers: 200, 429, 503 or that of the rule that forbids.
    status: int = 200
    #: The limit headers as the service sent them.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: The id by which a delayed decision can be cancelled.
    reservation: Optional[str] = None
    #: The title of a refusal, if the service has one for its status.
    title: Optional[str] = field(default=None, repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.allowed

    def problem(self) -> Dict[str, Any]:
        """Returns the body that a gateway sends with this denial (RFC 9457)."""
        kind, title, detail = self._words()
        problem: Dict[str, Any] = {"type": kind, "title": title, "status": self.status}
        if detail is not None:
            problem["detail"] = detail
        problem["violated-policies"] = list(self.violated)
        if self.status == 503:
            problem["outcome"] = self.outcome
        retry = self.retry_after
        problem["retry_after_ms"] = None if retry is None else math.ceil(round(retry * 1000, 3))
        return problem

    def refusal(self) -> Tuple[int, Dict[str, str], bytes]:
        """Returns the status, the headers and the body of the answer to a denied request."""
        body = json.dumps(self.problem(), separators=(",", ":")).encode()
        headers = {"Content-Type": PROBLEM_JSON, "Content-Length": str(len(body)), **self.headers}
        return self.status, headers, body

    def _words(self) -> Tuple[str, str, Optional[str]]:
        if self.status == 503:
            return _REDUCED_CAPACITY, "Requests cannot be counted at the moment", None
        if self.outcome == "forbidden":
            title = self.title or _phrase(self.status) or "Forbidden"
            return "about:blank", title, "a rule forbids this request"
        if self.outcome == "never":
            detail = (
                "its cost is above the capacity of the limit"
                if self.limit is not None
                else "it lacks a part of the key that the rule counts by"
            )
            return _QUOTA_EXCEEDED, "This request can never pass the limit", detail
        return _QUOTA_EXCEEDED, "The quota for these requests is used up", None

    def refused_as(self, again: Decision) -> Decision:
        """Returns the decision on a request that must not wait, which was asked for again."""
        # A failure says nothing about the limit, which is known to be used up.
        if again.outcome in ("failed_open", "failed_closed"):
            return self._without_wait()
        return again

    def _without_wait(self) -> Decision:
        seconds = str(max(1, math.ceil(self.delay)))
        # The decision does not name the band to wait for. The reported one has the least left.
        violated = (f"{self.rule}/{self.band}",) if self.rule and self.band else ()
        return replace(
            self,
            allowed=False,
            outcome="fallback" if self.outcome == "fallback" else "denied",
            retry_after=self.delay,
            delay=0.0,
            remaining=None if self.remaining is None else 0,
            violated=violated,
            hold=None,
            hold_for=None,
            reservation=None,
            status=429,
            headers={**self.headers, "Retry-After": seconds},
        )


FAILED_OPEN = Decision(True, "failed_open")
FAILED_CLOSED = Decision(
    False, "failed_closed", retry_after=1.0, status=503, headers={"Retry-After": "1"}
)
#: The decision on a request that is too large to be sent. `on_error` must not decide it: a client
#: could choose that.
TOO_LARGE = Decision(False, "never", remaining=0, retry_after=None, status=429)


@dataclass(frozen=True)
class Consumed:
    """The answer to `consume`. `remaining` is None if nothing is reported."""

    allowed: bool
    remaining: Optional[int]
    #: In seconds; None if the call can never pass.
    retry_after: Optional[float]
    #: Set if the store of the service, or the service itself, failed.
    outcome: Optional[str] = None
    #: The id of the hold, if the rule has slots.
    hold: Optional[str] = None
    hold_for: Optional[float] = None

    def __bool__(self) -> bool:
        return self.allowed


@dataclass(frozen=True)
class Settled:
    """What a settlement has charged, and how much of the cost did not fit."""

    charged: int
    uncharged: int


def bad_request(detail: str) -> Tuple[int, Dict[str, str], bytes]:
    """Returns the answer to a request that servers could read in different ways."""
    problem = {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "detail": f"the request is ambiguous: {detail}",
    }
    body = json.dumps(problem, separators=(",", ":")).encode()
    return 400, {"Content-Type": PROBLEM_JSON, "Content-Length": str(len(body))}, body


def _phrase(status: int) -> Optional[str]:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return None
