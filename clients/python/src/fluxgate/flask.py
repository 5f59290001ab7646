"""An extension for Flask.

limits = RateLimit(app, client=fg, rule_set="api-limits")
"""

from __future__ import annotations

from functools import wraps
from typing import Any, Callable, Dict, List, Optional, TypeVar

from flask import Flask, Request, Response, current_app, g, request

from ._admission import Admission, Admitted, AnyClient
from ._calls import DEFAULT_URL
from ._client import Client
from ._decision import bad_request
from ._filter import Filter, TooLarge, merged_headers
from ._path import Ambiguous
from .wsgi import RateLimitMiddleware, read_environ

__all__ = ["RateLimit", "RateLimitMiddleware"]

View = TypeVar("View", bound=Callable[..., Any])


class RateLimit:
    """Limits the requests to a Flask app.

    `options` are those of the middleware for WSGI; functions get the request, and run within its
    context, so they may use the session. Without a `client`, the config of the app has
    `FLUXGATE_URL`, `FLUXGATE_ON_ERROR` and `FLUXGATE_DEADLINE`; without a `rule_set`,
    `FLUXGATE_RULE_SET`. Without either rule set, only views with `limit` are limited.
    """

    def __init__(
        self,
        app: Optional[Flask] = None,
        client: Optional[AnyClient] = None,
        rule_set: Optional[str] = None,
        **options: Any,
    ) -> None:
        self.client = client
        self._rule_set = rule_set
        self._options = options
        # Faults in the options show now, not at the first request.
        Filter(rule_set, **options)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Limits the requests to this app from now on."""
        if self.client is None:
            self.client = Client(
                app.config.get("FLUXGATE_URL", DEFAULT_URL),
                on_error=app.config.get("FLUXGATE_ON_ERROR", "allow"),
                deadline=app.config.get("FLUXGATE_DEADLINE", 0.1),
            )
        rule_set = self._rule_set or app.config.get("FLUXGATE_RULE_SET")
        app.extensions["fluxgate"] = self
        if rule_set is not None:
            door = _Door(self.client, Filter(rule_set, **self._options))
            app.before_request(door.refusal)
        app.after_request(_finish)
        app.teardown_request(_end_unanswered)

    def limit(self, rule_set: str, **options: Any) -> Callable[[View], View]:
        """Limits a view by another rule set, in addition to that of the app."""
        filter: Filter[Request] = Filter(rule_set, **{**self._options, **options})
        doors: List[_Door] = []

        def decorate(view: View) -> View:
            @wraps(view)
            def limited(*args: Any, **kwargs: Any) -> Any:
                if not doors:
                    if self.client is None:
                        raise RuntimeError("call `init_app` before the first request")
                    doors.append(_Door(self.client, filter))
                refusal = doors[0].refusal()
                if refusal is not None:
                    return refusal
                return current_app.ensure_sync(view)(*args, **kwargs)

            return limited  # type: ignore[return-value]

        return decorate


class _Door:
    """Decides the requests to an app or a view."""

    def __init__(self, client: AnyClient, filter: Filter[Request]) -> None:
        self._filter = filter
        self._admission = Admission(client, filter.permits)

    def refusal(self) -> Optional[Response]:
        """Decides the current request. Returns the answer if it is refused."""
        current: Request = request._get_current_object()  # type: ignore[attr-defined]
        try:
            body: Optional[Dict[str, Any]] = read_environ(self._filter, current, current.environ)
        except Ambiguous as error:
            return _response(*bad_request(str(error)))
        except TooLarge:
            return _response(*self._admission.too_large().refusal())
        if body is None:
            return None
        admitted = self._admission.decide(body)
        if not admitted.decision.allowed:
            return _response(*admitted.decision.refusal())
        g.setdefault("_fluxgate", []).append(admitted)
        return None


def _finish(response: Response) -> Response:
    """Adds the limit headers, and ends the holds when the body has been sent."""
    admitted: List[Admitted] = g.pop("_fluxgate", [])
    for one in admitted:
        if one.decision.headers:
            merged = merged_headers(list(response.headers.items()), one.decision)
            response.headers.clear()
            response.headers.extend(merged)
        if one.is_held:
            response.call_on_close(one.end)
    return response


def _end_unanswered(_: Optional[BaseException]) -> None:
    """Ends the holds of a request that got no response."""
    for one in g.pop("_fluxgate", []):
        one.end()


def _response(status: int, headers: Dict[str, str], body: bytes) -> Response:
    return Response(body, status, headers)
