"""A client that sends arbitrary HTTP/2 frames, valid or not. Used by the other scripts."""

import socket
import sys
import time
import traceback

import hpack
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_ERROR, PROTOCOL, INTERNAL, FLOW, SETTINGS_TIMEOUT, CLOSED, SIZE, REFUSED, CANCEL, COMPRESSION = range(10)
CALM = 11


class Ended(Exception):
    """The peer has closed the connection."""


def frame(kind, flags, stream, payload=b"", length=None):
    """Returns a frame with any length field."""
    length = len(payload) if length is None else length
    return length.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


class Peer:
    """A connection that can send any bytes."""

    def __init__(self, greet=True, settings=None):
        host, port = sys.argv[2].rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.bytes = b""
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()
        self.decoder.max_allowed_table_size = 65536
        self.server_settings = {}
        self.seen = []
        if greet:
            self.send(PREFACE, SettingsFrame(0, settings=settings or {}))

    def send(self, *frames):
        data = b"".join(it if isinstance(it, bytes) else it.serialize() for it in frames)
        try:
            self.socket.sendall(data)
        except OSError:
            pass  # What the server sent before it closed can still be read.

    def headers(self, stream, headers, end_stream=True, end_headers=True):
        flags = [name for name, on in [("END_STREAM", end_stream), ("END_HEADERS", end_headers)] if on]
        # Adds nothing to the table: the server may reject the head.
        block = b"".join(literal(name, value) for name, value in headers)
        return HeadersFrame(stream, block, flags=flags)

    def read(self):
        """Returns the next frame and acknowledges settings."""
        while True:
            if len(self.bytes) >= 9:
                size = int.from_bytes(self.bytes[:3], "big")
                if len(self.bytes) >= 9 + size:
                    got, _ = Frame.parse_frame_header(memoryview(self.bytes[:9]))
                    got.parse_body(memoryview(self.bytes[9 : 9 + size]))
                    self.bytes = self.bytes[9 + size :]
                    self.seen.append(got)
                    if isinstance(got, SettingsFrame) and "ACK" not in got.flags:
                        self.server_settings.update(got.settings)
                        self.send(SettingsFrame(0, flags=["ACK"]))
                    return got
            try:
                more = self.socket.recv(65536)
            except ConnectionResetError:
                more = b""
            if not more:
                raise Ended
            self.bytes += more

    def outcome(self, stream, window=True):
        """Returns how a stream ends: (status, body), ("reset", code), ("goaway", code) or
        "closed"."""
        status, body = None, b""
        try:
            while True:
                got = self.read()
                if isinstance(got, GoAwayFrame) and (got.error_code or got.last_stream_id < stream):
                    return ("goaway", got.error_code)
                if isinstance(got, (HeadersFrame, ContinuationFrame)):
                    headers = dict(self.decoder.decode(got.data))
                    if got.stream_id == stream:
                        status = headers.get(":status", status)
                if got.stream_id != stream:
                    continue
                if isinstance(got, RstStreamFrame):
                    # The server may respond before it stops reading the request.
                    if status and got.error_code == NO_ERROR:
                        return (int(status), body)
                    return ("reset", got.error_code)
                if isinstance(got, DataFrame):
                    body += got.data
                    if window and got.data:
                        size = len(got.data)
                        self.send(WindowUpdateFrame(0, size), WindowUpdateFrame(stream, size))
                if "END_STREAM" in got.flags:
                    return (int(status), body)
        except Ended:
            return "closed"

    def wait_for_settings(self):
        while not self.server_settings:
            self.read()


def literal(name, value):
    """Encodes a field that is not added to the table."""
    def text(it):
        it = it.encode("latin-1") if isinstance(it, str) else it
        prefix = bytearray()
        size = len(it)
        if size < 127:
            prefix.append(size)
        else:
            prefix.append(127)
            size -= 127
            while size >= 128:
                prefix.append(size % 128 + 128)
                size //= 128
            prefix.append(size)
        return bytes(prefix) + it

    return b"\0" + text(name) + text(value)


def request(path="/x", method="GET", more=()):
    return [
        (":method", method),
        (":scheme", "http"),
        (":authority", "a.example"),
        (":path", path),
        *more,
    ]


def get(peer, stream=1, path="/x"):
    peer.send(peer.headers(stream, request(path)))
    return peer.outcome(stream)


def assert_serves():
    """Asserts that other clients are served without delay."""
    start = time.monotonic()
    assert get(Peer()) == (200, b"ok")
    # The machine may be busy.
    assert time.monotonic() - start < 15


def expect(outcome, codes):
    """Asserts that the connection or the stream ended with one of these codes."""
    is_expected = outcome == "closed" or (outcome[0] in ("goaway", "reset") and outcome[1] in codes)
    assert is_expected, f"{outcome}, expected one of {codes}"


def run(module, after=lambda: None):
    """Runs the checks that the command line names, separated by commas, and `after` each of
    them. Prints which fail."""
    failed = False
    for name in sys.argv[1].split(","):
        try:
            module[name]()
            after()
        except Exception:
            failed = True
            last = traceback.format_exc().strip().splitlines()[-3:]
            print(f"{name}: {' <- '.join(reversed(last))}")
    sys.exit(failed)
