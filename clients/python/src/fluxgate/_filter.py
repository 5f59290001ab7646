"""What all middleware shares: which requests are limited, and which of their fields are sent."""

from __future__ import annotations

import re
import threading
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Generic,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
    TypeVar,
    Union,
)

from ._addresses import TrustedProxies, parse_address
from ._calls import Text, log, texts
from ._decision import LIMIT_HEADERS as _LIMITS
from ._decision import Decision
from ._path import Ambiguous, PathPatterns, RequestPath, lossless

# What a function of the user gets: an ASGI scope, a WSGI environment, a request of a framework.
R = TypeVar("R")

Header = Tuple[str, bytes]

# Hop-by-hop headers, and secrets that no rule should read.
_WITHHELD = frozenset(
    "authorization connection cookie keep-alive proxy-authenticate proxy-authorization "
    "proxy-connection te trailer transfer-encoding upgrade".split()
)
# Headers whose lines form one list, so that clients and proxies may repeat them.
_LISTS = frozenset(
    "accept accept-charset accept-encoding accept-language access-control-request-headers baggage "
    "cache-control cdn-loop content-encoding content-language expect forwarded "
    "grpc-accept-encoding if-match if-none-match link pragma prefer sec-websocket-extensions "
    "sec-websocket-protocol tracestate vary via warning x-forwarded-for x-forwarded-host "
    "x-forwarded-port x-forwarded-proto".split()
)
# Headers that concern the message itself, or that proxies write.
_OF_PROXIES = frozenset(
    "connection content_length content_type cookie expect forwarded host http2_settings "
    "keep_alive proxy proxy_authenticate proxy_authorization proxy_connection te trailer "
    "transfer_encoding upgrade x_original_url x_real_ip x_request_id x_rewrite_url".split()
)
_METHODS = frozenset(
    "ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK "
    "MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH "
    "POST PRI PROPFIND PROPPATCH PUT QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK "
    "UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL PURGE".split()
)

_PLAIN_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\Z")
_PLAIN_ENDS = re.compile(rb"[!-~](?:.*[!-~])?\Z", re.DOTALL)
# Nothing that servers clean in different ways: no encoded words, no odd ends.
_PLAIN_VALUE = re.compile(rb"(?:[!->@-~](?:[ !->@-~]*[!->@-~])?)?\Z")
# Plain names that were seen: requests have the same few.
_plain_names: Set[str] = set()
_NONE: Set[str] = set()
# The most that headers may take of a call. A request with more is refused: if some were left out,
# a client could hide a header behind others.
_MAX_HEADER_BYTES = 32 * 1024

CONFLICT = (
    "a header, query parameter or cookie that requests are counted by is repeated with different "
    "values"
)
ALIKE = (
    "servers may take the name of a header for one that requests are counted by, or for one that "
    "proxies set"
)
UNCLEAR = (
    "a value that requests are counted by contains control characters, encoded words or bytes that "
    "are not UTF-8, or begins or ends with white space"
)
METHOD = "the method differs from a registered one only by case"


if TYPE_CHECKING:
    # Only for type checkers: Python 3.9 has no `Unpack`.
    from typing_extensions import TypedDict

    class Options(TypedDict, Generic[R], total=False):
        """The options of all middleware. Functions get the request as the framework has it."""

        #: Patterns of the paths that are limited; by default all.
        include: Optional[Iterable[str]]
        #: Patterns of the paths that are not.
        exclude: Iterable[str]
        #: Whether paths are compared without case, for apps that route so.
        ignore_case: bool
        #: Networks whose X-Forwarded-For is trusted.
        trusted_proxies: Iterable[str]
        #: By default the user is in X-User-Id, the API key in X-API-Key, and the address is the
        #: peer's.
        user: Optional[Callable[[R], Optional[str]]]
        api_key: Optional[Callable[[R], Optional[str]]]
        ip: Optional[Callable[[R], Optional[str]]]
        attributes: Optional[Callable[[R], Mapping[str, Text]]]
        #: By default what the rules say.
        cost: Union[int, Callable[[R], Optional[int]], None]
        #: The headers that rules read; by default all but cookies, credentials and those of the
        #: connection.
        headers: Optional[Sequence[str]]
        #: How many requests wait at a time. Others are refused.
        max_concurrent_waits: int


class TooLarge(Exception):
    """The headers do not fit into a call."""


class Filter(Generic[R]):
    """Reads requests as the gateway does. The keywords are those of `Options`."""

    def __init__(
        self,
        rule_set: Optional[str],
        *,
        include: Optional[Iterable[str]] = None,
        exclude: Iterable[str] = (),
        ignore_case: bool = False,
        trusted_proxies: Iterable[str] = (),
        user: Optional[Callable[[R], Optional[str]]] = None,
        api_key: Optional[Callable[[R], Optional[str]]] = None,
        ip: Optional[Callable[[R], Optional[str]]] = None,
        attributes: Optional[Callable[[R], Mapping[str, Text]]] = None,
        cost: Union[int, Callable[[R], Optional[int]], None] = None,
        headers: Optional[Sequence[str]] = None,
        max_concurrent_waits: int = 100,
    ) -> None:
        self.rule_set = rule_set
        self._include = PathPatterns(include, ignore_case) if include is not None else None
        self._exclude = PathPatterns(exclude, ignore_case)
        self._ignores_case = ignore_case
        self._proxies = TrustedProxies(trusted_proxies)
        self._user = user
        self._api_key = api_key
        self._ip = ip
        self._attributes = attributes
        self._cost = cost
        if isinstance(headers, str):
            raise TypeError("headers is a list of names, not one name")
        self._sent = None if headers is None else frozenset(name.lower() for name in headers)
        counted = {"x-user-id", "x-api-key", "x-forwarded-for", *(self._sent or ())}
        self._counted = frozenset(counted)
        self._counted_folds = frozenset(fold(name) for name in counted)
        self._has_odd_names = any(not _PLAIN_NAME.match(name) for name in counted)
        self.permits = Permits(max_concurrent_waits)
        self._has_warned = False

    def read(
        self,
        request: R,
        method: str,
        raw_path: bytes,
        headers: Sequence[Header],
        peer: Optional[str],
    ) -> Optional[Dict[str, Any]]:
        """Returns the fields of a check, or None if the request is not limited.

        Names of headers are in lower case. Raises Ambiguous if the request is to be answered with
        400, and TooLarge.
        """
        path = RequestPath(raw_path, self._ignores_case)
        if not self._applies_to(path):
            return None
        if not method.isupper() and method.upper() in _METHODS:
            raise Ambiguous(METHOD)
        lines = self._check_headers(headers)
        forwarded: List[str] = []
        if "x-forwarded-for" in lines:
            forwarded = [lossless(value) for name, value in headers if name == "x-forwarded-for"]
        ip = self._proxies.client_ip(peer, forwarded)
        if self._ip is not None:
            # A function may return what a header says: something that is no address is none.
            own = parse_address(str(self._ip(request) or ""))
            ip = str(own) if own is not None else ip
        user = lines.get("x-user-id") if self._user is None else self._user(request)
        key = lines.get("x-api-key") if self._api_key is None else self._api_key(request)
        cost = self._cost(request) if callable(self._cost) else self._cost
        sent = lines
        if self._sent is not None:
            sent = {name: value for name, value in lines.items() if name in self._sent}
        if sum(map(len, sent)) + sum(map(len, sent.values())) > _MAX_HEADER_BYTES:
            raise TooLarge
        body: Dict[str, Any] = {
            "rule_set": self.rule_set,
            "method": method,
            "path": path.raw,
            "wait": True,
        }
        if ip is not None:
            body["ip"] = ip
        if user is not None:
            body["user"] = str(user)
        if key is not None:
            body["api_key"] = str(key)
        if sent:
            body["headers"] = sent
        normal_path = path.normal_path
        if normal_path is not None:
            body["normal_path"] = normal_path
        if self._ignores_case:
            body["ignore_case"] = True
        if self._attributes is not None:
            body["attributes"] = texts(self._attributes(request))
        if cost is not None:
            body["cost"] = cost
        return body

    def _applies_to(self, path: RequestPath) -> bool:
        if self._exclude and self._exclude.matches_both(path):
            return False
        if self._include is not None and not self._include.matches_either(path):
            return False
        if self.rule_set is None and not self._has_warned:
            self._has_warned = True
            log.warning("a middleware of FluxGate has no rule set: it limits nothing")
        return self.rule_set is not None

    def _check_headers(self, headers: Sequence[Header]) -> Dict[str, str]:
        """Returns the first line of each header, without those that servers may take for others.

        Nearly all headers are plain ones that occur once, so that is what this is quick for.
        """
        lines: Dict[str, str] = {}
        checks_all, counted = self._sent is None, self._counted
        # A plain name may be alike to one that is not plain.
        plain_names = _NONE if self._has_odd_names else _plain_names
        for name, value in headers:
            if name in _WITHHELD:
                continue
            if name not in plain_names and not self._is_read(name):
                continue
            value = value.strip()
            is_checked = checks_all or name in counted
            if _PLAIN_VALUE.match(value):
                line = value.decode("ascii")
            else:
                if is_checked:
                    check_value(value)
                line = lossless(value)
            known = lines.get(name)
            if known is None:
                lines[name] = line
            elif is_checked and known != line and not self._may_repeat(name):
                raise Ambiguous(CONFLICT)
        return lines

    def _is_read(self, name: str) -> bool:
        """Returns whether a header is read. Raises Ambiguous if it may be taken for such a one."""
        if name in self._counted:
            return True
        is_plain = _PLAIN_NAME.match(name) is not None
        if is_plain and not self._has_odd_names:
            if len(_plain_names) < 1024:
                _plain_names.add(name)
            return True
        folded = fold(name)
        if folded in self._counted_folds or (not is_plain and _imitates(folded)):
            raise Ambiguous(ALIKE)
        return is_plain

    def _may_repeat(self, name: str) -> bool:
        return name in _LISTS and (self._sent is None or name not in self._sent)


class Permits:
    """How many requests may wait at a time."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._free = most

    def take(self) -> bool:
        """Takes a permit, if one is free."""
        with self._lock:
            if self._free <= 0:
                return False
            self._free -= 1
            return True

    def give_back(self) -> None:
        """Gives a permit back."""
        with self._lock:
            self._free += 1


def fold(name: str) -> str:
    """Returns what names have in common that servers take for one another."""
    chars = [char if char.isalnum() else "_" for char in name.lower()]
    start = next((at for at, char in enumerate(chars) if char != "_"), len(chars))
    end = next((at for at in range(len(chars), start, -1) if chars[at - 1] != "_"), start)
    return "".join(chars[start:end])


def _imitates(folded: str) -> bool:
    return folded in _OF_PROXIES or folded.startswith("x_forwarded_")


def check_value(value: bytes) -> None:
    """Rejects the value of a header that servers clean in different ways."""
    if value and not _PLAIN_ENDS.match(value):
        text = value.decode("utf-8", "surrogateescape")
        for char in (text[0], text[-1]):
            code = ord(char)
            char = chr(code - 0xDC00) if 0xDC80 <= code <= 0xDCFF else char
            if char.isspace() or char in "\ufeff\x85":
                raise Ambiguous(UNCLEAR)
    # Some servers decode the encoded words of mail, such as `=?utf-8?q?ann?=`.
    if b"=?" in value and b"?=" in value:
        raise Ambiguous(UNCLEAR)


_X_HEADERS = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")


def merged_headers(existing: List[Tuple[str, str]], decision: Decision) -> List[Tuple[str, str]]:
    """Returns the headers of a response with the limit headers of a decision.

    Limits that an inner middleware has written stay: the lists have the entries of both, and the
    others are those of the one with the least left.
    """
    ours = decision.headers
    known = {name.lower(): value for name, value in existing if name.lower() in _LIMITS}
    if not known:
        return existing + list(ours.items())
    result = dict(known)
    is_stricter = _number(ours, "X-RateLimit-Remaining") < _number(known, _X_HEADERS[1])
    for name, value in ours.items():
        key = name.lower()
        if key in ("ratelimit", "ratelimit-policy"):
            result[key] = f"{known[key]},{value}" if key in known else value
        elif key == "retry-after":
            result[key] = str(max(_number(known, key, -1), int(value)))
        elif is_stricter or key not in known:
            result[key] = value
    kept = [(name, value) for name, value in existing if name.lower() not in _LIMITS]
    return kept + [(_LIMITS[key], value) for key, value in result.items()]


def _number(headers: Mapping[str, str], name: str, otherwise: int = 1 << 62) -> int:
    value = headers.get(name, "")
    return int(value) if value.isdigit() else otherwise
