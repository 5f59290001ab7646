"""Requests that are harmless in HTTP/2 but not in HTTP/1.1.

    downgrade.py CHECK[,CHECK…] ADDRESS

Prints one line per request: what was sent, and the outcome.
"""

import json

from hyperframe.frame import DataFrame, HeadersFrame

from frames import *


def replaced(name, value):
    """Returns a valid request with another value of a pseudo-header, or without it."""
    headers = [(known, value if known == name else old) for known, old in request()]
    return [(known, old) for known, old in headers if old is not None]


def report(sent, outcome):
    shown = outcome if isinstance(outcome, str) else [str(part) for part in outcome]
    print(json.dumps([repr(sent), shown]), flush=True)


def is_rejected(outcome):
    return outcome == "closed" or outcome[0] in ("reset", "goaway", 400, 431, 404, 405, 501, 421)


def assert_rejected(cases, data=None):
    """Sends each request over a new connection; each must be rejected."""
    failures = []
    for headers in cases:
        peer = Peer()
        peer.send(peer.headers(1, headers, end_stream=data is None))
        if data is not None:
            peer.send(DataFrame(1, data, flags=["END_STREAM"]))
        outcome = peer.outcome(1)
        report(headers, outcome)
        if not is_rejected(outcome):
            failures.append((headers, outcome))
    assert not failures, failures


def connection_headers():
    assert_rejected(request(more=[header]) for header in [
        ("transfer-encoding", "chunked"),
        ("transfer-encoding", "identity"),
        ("connection", "close"),
        ("connection", "content-length"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "close"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("te", "trailers, deflate"),
    ])


def connection_headers_with_a_body():
    hidden = b"0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
    assert_rejected(
        [request(method="POST", more=[header]) for header in [
            ("transfer-encoding", "chunked"),
            ("Transfer-Encoding", "chunked"),
            ("transfer-encoding ", "chunked"),
            ("transfer-encoding:", "chunked"),
            ("x\r\ntransfer-encoding", "chunked"),
            ("x: y\r\ntransfer-encoding", "chunked"),
            ("x", "y\r\ntransfer-encoding: chunked"),
            ("x", "y\ntransfer-encoding: chunked"),
            ("content-length", "5"),
            ("content-length", "1000"),
            ("content-length", f"+{len(hidden)}"),
            ("content-length", f"{len(hidden)}, {len(hidden)}"),
            ("content-length", "x"),
            ("content-length", ""),
        ]] + [
            request(method="POST", more=[("content-length", "0"), ("content-length", str(len(hidden)))]),
            request(method="POST", more=[("content-length", str(len(hidden))), ("content-length", "0")]),
        ],
        data=hidden,
    )


def lengths_without_a_body():
    assert_rejected([
        request(method="POST", more=[("content-length", "5")]),
        request(method="GET", more=[("content-length", "5")]),
        request(method="POST", more=[("content-length", "-1")]),
    ])


def characters():
    cases = []
    for bad in ["\r", "\n", "\0", "\r\n", "a\rb", "a\nb", "a\0b", "a\r\nX-Forged: 1", "\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"]:
        cases.append(request(more=[("x", bad)]))
        cases.append(request(more=[(f"x{bad}y", "z")]))
        for name in [":method", ":path", ":authority", ":scheme"]:
            good = dict(request())[name]
            cases.append(replaced(name, good + bad))
            cases.append(replaced(name, bad + good))
    for name in ["", " ", "X", "x y", "x:", ":", "x\t", "x\x7f", "x\x80", "x(", "x\"", "x/"]:
        cases.append(request(more=[(name, "y")]))
    # RFC 9113, 8.2.1.
    for value in [" ", " y", "y ", "\ty", "y\t", "y \t "]:
        cases.append(request(more=[("x", value)]))
    assert_rejected(cases)


def paths():
    assert_rejected(replaced(":path", value) for value in [
        "", None, "x", "*", "/x y", "/x HTTP/1.1\r\nX: y", "/x\ty", "/x\x7f",
        "a.example/x", " /x", "/x ", "/\x00",
    ])


def pseudo_headers():
    assert_rejected([
        replaced(":method", None),
        replaced(":method", ""),
        replaced(":method", "GET /hidden HTTP/1.1"),
        replaced(":method", "G ET"),
        replaced(":method", "GE(T"),
        replaced(":scheme", None),
        replaced(":scheme", "http://evil.example/?"),
        replaced(":authority", "evil.example/x"),
        replaced(":authority", "user@a.example"),
        replaced(":authority", "a.example b"),
        replaced(":authority", "a.example:port"),
        request(more=[(":path", "/hidden")]),
        request(more=[(":method", "POST")]),
        request(more=[(":authority", "b.example")]),
        request(more=[(":status", "200")]),
        request(more=[(":unknown", "x")]),
        [("x", "y"), *request()],
        [*request()[:3], ("x", "y"), request()[3]],
        request(more=[("host", "a.example"), ("host", "b.example")]),
        [(name, value) for name, value in request() if name != ":authority"],
        [(name, value) for name, value in request() if name != ":authority"] + [("host", "a.example"), ("host", "b.example")],
        replaced(":method", "CONNECT"),
        [(":method", "CONNECT"), (":authority", "a.example:80")],
        [*replaced(":method", "CONNECT"), (":protocol", "websocket")],
    ])


def trailers():
    """Trailers that affect framing or routing are rejected or dropped."""
    for name, value in [("content-length", "5"), ("transfer-encoding", "chunked"), ("host", "evil.example"),
                        (":path", "/hidden"), ("x-forwarded-for", "1.2.3.4"), ("x", "a\r\nb"), ("X", "y")]:
        peer = Peer()
        peer.send(peer.headers(1, request(method="POST"), end_stream=False))
        peer.send(DataFrame(1, b"hello"), peer.headers(1, [(name, value)]))
        outcome = peer.outcome(1)
        report((name, value), outcome)
        if "\r" in value or name == "X":
            assert is_rejected(outcome), (name, outcome)


def body_beyond_its_length():
    """A body despite a length of 0 is rejected or dropped."""
    peer = Peer()
    peer.send(peer.headers(1, request(method="POST", more=[("content-length", "0")]), end_stream=False))
    peer.send(DataFrame(1, b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n", flags=["END_STREAM"]))
    outcome = peer.outcome(1)
    report("body beyond its length", outcome)
    assert is_rejected(outcome) or outcome == (200, b"ok"), outcome


def unusual_targets():
    """Rejected, or forwarded as one valid target."""
    for value in ["/x#part", "?q"]:
        peer = Peer()
        peer.send(peer.headers(1, replaced(":path", value)))
        outcome = peer.outcome(1)
        report(value, outcome)
        assert is_rejected(outcome) or outcome == (200, b"ok"), (value, outcome)
    peer = Peer()
    peer.send(peer.headers(1, replaced(":scheme", "")))
    report("no scheme", peer.outcome(1))


def hosts():
    """A host that differs from the authority: rejected, or the authority counts."""
    peer = Peer()
    peer.send(peer.headers(1, request("/host", more=[("host", "evil.example")])))
    outcome = peer.outcome(1)
    assert is_rejected(outcome) or outcome == (200, b"ok"), outcome


def valid_requests():
    """All must be forwarded."""
    peer = Peer()
    stream = 1
    for headers, data in [
        (request("/get"), None),
        (request("/te", more=[("te", "trailers")]), None),
        (request("/head", method="HEAD"), None),
        (request("/post", method="POST", more=[("content-length", "5")]), b"hello"),
        (request("/post", method="POST"), b"hello"),
        (request("/empty", method="POST"), b""),
        (request("/empty", method="POST", more=[("content-length", "0")]), None),
        (request("/get-body"), b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"),
        (request("/delete", method="DELETE"), b"hello"),
        (request("/cookies", more=[("cookie", "a=b"), ("cookie", "c=d")]), None),
        ([(":method", "GET"), (":scheme", "http"), (":path", "/host-only"), ("host", "a.example")], None),
    ]:
        peer.send(peer.headers(stream, headers, end_stream=data is None))
        if data is not None:
            peer.send(DataFrame(stream, data, flags=["END_STREAM"]))
        outcome = peer.outcome(stream)
        assert outcome[0] == 200, (headers, outcome)
        stream += 2


def body_over_the_limit():
    """limits.body_bytes is 1000."""
    for more, pieces in [([("content-length", "1001")], []), ([], [500, 500, 500, 500]), ([("content-length", "5000")], [500, 600])]:
        peer = Peer()
        peer.send(peer.headers(1, request("/large", method="POST", more=more), end_stream=False))
        for piece in pieces:
            peer.send(DataFrame(1, b"x" * piece))
        outcome = peer.outcome(1)
        assert outcome[0] == 413, (more, outcome)
        # The connection still works.
        assert get(peer, 3) == (200, b"ok")
    peer = Peer()
    peer.send(peer.headers(1, request("/fits", method="POST"), end_stream=False))
    peer.send(DataFrame(1, b"x" * 1000, flags=["END_STREAM"]))
    assert peer.outcome(1) == (200, b"ok")


def truncated_response():
    """The upstream disconnects within its response: the stream is reset."""
    peer = Peer()
    outcome = get(peer, 1, "/truncated")
    assert outcome[0] == "reset", outcome
    assert get(peer, 3) == (200, b"ok")


def reset_while_waiting():
    """Waits at the limit until a line arrives on stdin, then resets the stream."""
    peer = Peer()
    assert get(peer)[0] == 200
    peer.send(peer.headers(3, request("/waits")))
    print("sent", flush=True)
    sys.stdin.readline()
    peer.send(frame(3, 0, 3, b"\0\0\0\x08"))
    print("reset", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    run(globals())
