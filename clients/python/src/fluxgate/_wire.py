"""HTTP/1.1 without sockets: writes requests, and parses responses from bytes as they arrive.

Both clients use it, so that one deadline covers connecting, sending and reading, which
`http.client` cannot do: its timeout starts anew with every byte.
"""

from __future__ import annotations

import re
from typing import Dict, List, Optional

MAX_HEAD = 64 * 1024
# A batch has up to 1,000 decisions of some 300 bytes.
MAX_BODY = 4 * 1024 * 1024

_NO_BODY = (204, 304)


_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
# Names of headers as they are written, with their lower case. A service sends few.
_names: Dict[str, str] = {}


class BadResponse(Exception):
    """The bytes are not a response, or one that is too large."""


class Response:
    """A complete response. The names of `headers` are in lower case; repeated lines are joined."""

    __slots__ = ("body", "headers", "keep_alive", "status")

    def __init__(self, status: int, headers: Dict[str, str], body: bytes, keep_alive: bool) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.keep_alive = keep_alive


def request_head(target: str, host: str, headers: Dict[str, str]) -> bytes:
    """Returns the start of a POST of JSON, up to the value of Content-Length."""
    lines = [f"POST {target} HTTP/1.1", f"Host: {host}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\nContent-Length: ").encode("latin-1")


def _name(written: str) -> str:
    """Returns the name of a header in lower case."""
    if not _NAME.match(written):
        raise BadResponse("the response has an invalid header")
    name = written.lower()
    if len(_names) < 256:
        _names[written] = name
    return name


class ResponseParser:
    """Parses one response. `feed` returns it once it is complete."""

    __slots__ = ("_buffer", "_chunks", "_headers", "_keep_alive", "_left", "_state", "_status")

    def __init__(self) -> None:
        self._buffer = b""
        self._status = 0
        self._headers: Dict[str, str] = {}
        self._keep_alive = True
        # The bytes of the body, or of the chunk, that are still to come.
        self._left = 0
        self._chunks: List[bytes] = []
        self._state = "head"

    def feed(self, data: bytes) -> Optional[Response]:
        """Takes the next bytes. No bytes are the end of the connection."""
        if not data:
            if self._state == "to-end":
                return self._finish(self._buffer)
            raise BadResponse("the connection ended before the response")
        self._buffer = self._buffer + data if self._buffer else data
        if self._state == "head" and not self._read_head():
            return None
        if self._state == "length":
            if len(self._buffer) < self._left:
                return None
            # Bytes behind the response answer no request: the connection cannot be used again.
            self._keep_alive = self._keep_alive and len(self._buffer) == self._left
            return self._finish(self._buffer[: self._left])
        if self._state == "to-end":
            self._check_size(len(self._buffer))
            return None
        return self._read_chunks()

    def _read_head(self) -> bool:
        while True:
            end = self._buffer.find(b"\r\n\r\n")
            if max(end, 0 if end >= 0 else len(self._buffer)) > MAX_HEAD:
                raise BadResponse("the head of the response is too large")
            if end < 0:
                # Garbage is recognized by its first bytes, not at the deadline.
                if not self._buffer.startswith(b"HTTP/1."[: len(self._buffer)]):
                    raise BadResponse("the response is not HTTP")
                return False
            head, self._buffer = self._buffer[:end], self._buffer[end + 4 :]
            self._parse_head(head.decode("latin-1"))
            if self._status >= 200:
                return True
            if self._status == 101:
                raise BadResponse("the server switches protocols")

    def _parse_head(self, head: str) -> None:
        # A line feed by itself would end up in a value.
        if head.count("\n") != head.count("\r\n"):
            raise BadResponse("the response has an invalid header")
        first, *lines = head.split("\r\n")
        version, _, rest = first.partition(" ")
        code = rest.partition(" ")[0]
        is_code = len(code) == 3 and code.isascii() and code.isdigit() and code >= "100"
        if version not in ("HTTP/1.1", "HTTP/1.0") or not is_code:
            raise BadResponse("the response is not HTTP")
        self._status = int(code)
        if 100 <= self._status < 200:
            return
        headers: Dict[str, str] = {}
        for line in lines:
            written, _, value = line.partition(":")
            name = _names.get(written) or _name(written)
            value = value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self._headers = headers
        connection = headers.get("connection", "").lower()
        self._keep_alive = version == "HTTP/1.1" and "close" not in connection
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if self._status in _NO_BODY:
            self._state, self._left = "length", 0
        elif coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise BadResponse("the response has an ambiguous length")
            self._state, self._left = "chunks", 0
        elif length is not None:
            if not (length.isascii() and length.isdigit()):
                raise BadResponse("the response has an invalid length")
            self._state, self._left = "length", int(length)
            self._check_size(self._left)
        else:
            self._state, self._keep_alive = "to-end", False

    def _read_chunks(self) -> Optional[Response]:
        while True:
            if self._state == "chunks":
                line = self._line()
                if line is None:
                    return None
                size = line.partition(b";")[0].strip()
                try:
                    # `int` would accept a sign, underscores and a prefix.
                    if not size or size.strip(b"0123456789abcdefABCDEF"):
                        raise ValueError
                    self._left = int(size, 16)
                except ValueError:
                    raise BadResponse("the response has an invalid chunk") from None
                self._check_size(sum(map(len, self._chunks)) + self._left)
                self._state = "chunk" if self._left else "trailers"
            elif self._state == "chunk":
                if len(self._buffer) < self._left + 2:
                    return None
                if self._buffer[self._left : self._left + 2] != b"\r\n":
                    raise BadResponse("the response has an invalid chunk")
                self._chunks.append(self._buffer[: self._left])
                self._buffer = self._buffer[self._left + 2 :]
                self._state = "chunks"
            else:
                line = self._line()
                if line is None:
                    return None
                if not line:
                    self._keep_alive = self._keep_alive and not self._buffer
                    return self._finish(b"".join(self._chunks))

    def _line(self) -> Optional[bytes]:
        line, end, rest = self._buffer.partition(b"\r\n")
        if not end:
            if len(self._buffer) > MAX_HEAD:
                raise BadResponse("the response has an invalid chunk")
            return None
        self._buffer = rest
        return line

    def _check_size(self, size: int) -> None:
        if size > MAX_BODY:
            raise BadResponse("the response is too large")

    def _finish(self, body: bytes) -> Response:
        return Response(self._status, self._headers, body, self._keep_alive)
