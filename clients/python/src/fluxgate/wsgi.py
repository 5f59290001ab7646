"""Middleware for WSGI: Flask, Django, Bottle, Pyramid.

app = RateLimitMiddleware(app, client=fg, rule_set="api-limits")
"""

from __future__ import annotations

from http import HTTPStatus
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Tuple,
)
from urllib.parse import quote_from_bytes, urlsplit

from ._admission import Admission, Admitted, AnyClient
from ._decision import Decision, bad_request
from ._filter import Filter, Header, TooLarge, merged_headers
from ._path import Ambiguous, lossless

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._filter import Options

__all__ = ["RateLimitMiddleware", "header"]

Environ = Dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], Any]]
App = Callable[[Environ, StartResponse], Iterable[bytes]]


class RateLimitMiddleware:
    """Limits the requests to a WSGI app.

    The options are those of the middleware for ASGI; functions get the environment. A request that
    waits occupies its thread, and goes on waiting if its client leaves: a WSGI server does not say
    so.
    """

    def __init__(
        self,
        app: App,
        client: AnyClient,
        rule_set: Optional[str] = None,
        **options: Unpack[Options[Environ]],
    ) -> None:
        self.app = app
        self._filter: Filter[Environ] = Filter(rule_set, **options)
        self._admission = Admission(client, self._filter.permits)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        try:
            body = read_environ(self._filter, environ, environ)
        except Ambiguous as error:
            return _answer(environ, start_response, *bad_request(str(error)))
        except TooLarge:
            return _answer(environ, start_response, *self._admission.too_large().refusal())
        if body is None:
            return self.app(environ, start_response)
        admitted = self._admission.decide(body)
        decision = admitted.decision
        if not decision.allowed:
            return _answer(environ, start_response, *decision.refusal())
        start = _with_headers(start_response, decision)
        if not admitted.is_held:
            return self.app(environ, start)
        try:
            chunks = self.app(environ, start)
        except BaseException:
            admitted.end()
            raise
        return _Held(chunks, admitted)


def header(environ: Environ, name: str) -> Optional[str]:
    """Returns a header of an environment. `name` may be in any case."""
    value = environ.get("HTTP_" + name.upper().replace("-", "_"))
    return None if value is None else lossless(value.encode("latin-1").strip(b" \t"))


def read_environ(filter: Filter[Any], request: Any, environ: Environ) -> Optional[Dict[str, Any]]:
    """Returns the fields of a check for an environment, or None if it is not limited."""
    return filter.read(
        request,
        environ["REQUEST_METHOD"],
        _raw_path(environ),
        list(_headers(environ)),
        environ.get("REMOTE_ADDR"),
    )


def _raw_path(environ: Environ) -> bytes:
    # Servers that know the raw target: gunicorn, Werkzeug, uWSGI, mod_wsgi.
    raw = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    if raw:
        if not raw.startswith(("/", "*")):
            # The absolute form, which only proxies send.
            raw = urlsplit(raw).path
        return bytes(raw.encode("latin-1", "replace")).partition(b"?")[0]
    # Without it, a form that decodes to what the app sees.
    path = (environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).encode("latin-1")
    return quote_from_bytes(path, safe=b"/!$&'()*+,=:@~-._").encode("ascii")


# The names of headers by the keys of an environment, and None for other keys. They are few.
_names: Dict[str, Optional[str]] = {}


def _headers(environ: Environ) -> Iterator[Header]:
    for key, value in environ.items():
        name = _names[key] if key in _names else _name(key)
        # A server may set the type and the length of a body that is not there to "".
        if name is not None and (value or key.startswith("HTTP_")):
            yield name, value.encode("latin-1", "replace")


def _name(key: str) -> Optional[str]:
    name = None
    if key.startswith("HTTP_"):
        name = key[5:].replace("_", "-").lower()
    elif key in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        name = key.replace("_", "-").lower()
    if len(_names) < 1024:
        _names[key] = name
    return name


class _Held:
    """A response body that ends a hold when it has been sent, or not sent."""

    def __init__(self, chunks: Iterable[bytes], admitted: Admitted) -> None:
        self._chunks = chunks
        self._iterator: Optional[Iterator[bytes]] = None
        self._admitted = admitted

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._iterator is None:
            self._iterator = iter(self._chunks)
        return next(self._iterator)

    def close(self) -> None:
        try:
            close = getattr(self._chunks, "close", None)
            if close is not None:
                close()
        finally:
            self._admitted.end()


def _with_headers(start_response: StartResponse, decision: Decision) -> StartResponse:
    """Returns a `start_response` that adds the limit headers."""
    if not decision.headers:
        return start_response

    def start(status: str, headers: List[Tuple[str, str]], *exc_info: Any) -> Any:
        return start_response(status, merged_headers(list(headers), decision), *exc_info)

    return start


def _answer(
    environ: Environ,
    start_response: StartResponse,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
) -> Iterable[bytes]:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Denied"
    start_response(f"{status} {phrase}", list(headers.items()))
    return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]
