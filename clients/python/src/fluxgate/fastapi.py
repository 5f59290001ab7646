"""A dependency for FastAPI.

    @app.get("/exports", dependencies=[Depends(RateLimit(fg, "exports"))])

The middleware of `fluxgate.asgi` limits a whole app; this limits a route or a router.
"""

# Annotations are not postponed: FastAPI evaluates those of a dependency.
from typing import TYPE_CHECKING, Any, AsyncIterator, Mapping, Optional

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ._admission import Admission, AnyClient
from ._decision import Decision, bad_request
from ._filter import Filter, TooLarge, merged_headers
from ._path import Ambiguous
from .asgi import Disconnected, RateLimitMiddleware, Reader, read_scope

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._filter import Options

__all__ = ["RateLimit", "RateLimitMiddleware", "Refused"]


class Refused(HTTPException):
    """A refused request. Its answer is that of the gateway, unless the app handles it."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(status, headers=dict(headers))
        self.body = body


class RateLimit:
    """Limits the requests that depend on it, and yields the decision.

    The options are those of the middleware for ASGI; functions get the request. Responses that
    FastAPI makes from what a handler returns have the limit headers; FastAPI does not add headers
    to a response object that a handler returns.
    """

    def __init__(
        self,
        client: AnyClient,
        rule_set: Optional[str] = None,
        **options: "Unpack[Options[Request]]",
    ) -> None:
        self._filter: Filter[Request] = Filter(rule_set, **options)
        self._admission = Admission(client, self._filter.permits)

    async def __call__(
        self, request: Request, response: Response
    ) -> AsyncIterator[Optional[Decision]]:
        _handle_refusals(request)
        try:
            body = read_scope(self._filter, request, request.scope)
        except Ambiguous as error:
            raise Refused(*bad_request(str(error))) from None
        except TooLarge:
            raise Refused(*self._admission.too_large().refusal()) from None
        if body is None:
            yield None
            return
        reader = Reader(request.receive)
        try:
            admitted = await self._admission.decide_async(body, reader.sleep)
        except Disconnected:
            # The client has left; this ends the request without its handler.
            raise Refused(499, {}, b"") from None
        if reader.has_read:
            # The handler gets what was read while the request waited.
            request._receive = reader.receive
        decision = admitted.decision
        if not decision.allowed:
            raise Refused(*decision.refusal())
        for name, value in merged_headers(list(response.headers.items()), decision):
            response.headers[name] = value
        try:
            yield decision
        finally:
            reader.close()
            await admitted.end_async()


def _handle_refusals(request: Request) -> None:
    """Lets the app answer refusals as the gateway does.

    A dependency can refuse only by an exception, and the app's default handler would wrap the
    problem in another body.
    """
    handlers: Any = request.scope.get("starlette.exception_handlers")
    if handlers is not None:
        handlers[0].setdefault(Refused, _answer)


async def _answer(_: Request, refused: Refused) -> Response:
    return Response(refused.body, refused.status_code, refused.headers)
