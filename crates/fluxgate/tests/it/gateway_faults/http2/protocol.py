"""The requirements of RFC 9113.

    protocol.py CHECK[,CHECK…] ADDRESS
"""

import time

from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from frames import *


def settings_come_first_and_are_acknowledged():
    peer = Peer()
    first = peer.read()
    assert isinstance(first, SettingsFrame) and "ACK" not in first.flags
    while not (isinstance(peer.read(), SettingsFrame) and "ACK" in peer.seen[-1].flags):
        pass
    limit = peer.server_settings[SettingsFrame.MAX_CONCURRENT_STREAMS]
    assert 1 <= limit <= 1000, limit
    assert get(peer) == (200, b"ok")


def an_invalid_preface_ends_the_connection():
    for start in [b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", PREFACE + b"garbage" * 10,
                  PREFACE + frame(0, 0, 1, b"data")]:
        peer = Peer(greet=False)
        peer.send(start)
        try:
            while True:
                got = peer.socket.recv(65536)
                if not got or b"HTTP/1.1 400" in got:
                    break
        except ConnectionResetError:
            pass


def unknown_frames_and_settings_are_ignored():
    peer = Peer(settings={0x99: 7})
    peer.send(frame(0x42, 0xFF, 0, b"what"), frame(0x43, 0, 1, b"ever"))
    peer.send(frame(6, 0xFE, 0, b"12345678"))  # unknown flags of PING
    assert get(peer) == (200, b"ok")


def priorities_are_ignored():
    peer = Peer()
    peer.send(PriorityFrame(3, depends_on=1, stream_weight=5))
    peer.send(PriorityFrame(101, depends_on=0, stream_weight=5, exclusive=True))
    got = peer.headers(1, request())
    got.flags.add("PRIORITY")
    peer.send(got)
    assert peer.outcome(1) == (200, b"ok")


def padding_is_removed():
    peer = Peer()
    headers = peer.headers(1, request(method="POST"), end_stream=False)
    headers.flags.add("PADDED")
    headers.pad_length = 10
    data = DataFrame(1, b"hello", flags=["END_STREAM", "PADDED"])
    data.pad_length = 200
    peer.send(headers, data)
    assert peer.outcome(1) == (200, b"ok")


def a_head_in_several_frames_is_joined():
    peer = Peer()
    head = peer.headers(1, request(more=[("x-long", "v" * 3000)]))
    data, head.data = head.data, head.data[:10]
    head.flags.discard("END_HEADERS")
    peer.send(head)
    rest = data[10:]
    pieces = [rest[at : at + 1000] for at in range(0, len(rest), 1000)]
    for index, piece in enumerate(pieces):
        flags = ["END_HEADERS"] if index == len(pieces) - 1 else []
        peer.send(ContinuationFrame(1, piece, flags=flags))
    assert peer.outcome(1) == (200, b"ok")


def invalid_settings_end_the_connection():
    for bad, codes in [
        (frame(4, 0, 0, b"\0\2\0\0\0\2"), [PROTOCOL]),  # ENABLE_PUSH
        (frame(4, 0, 0, b"\0\4\x80\0\0\0"), [FLOW, PROTOCOL]),  # INITIAL_WINDOW_SIZE
        (frame(4, 0, 0, b"\0\5\0\0\0\1"), [PROTOCOL]),  # MAX_FRAME_SIZE
        (frame(4, 0, 0, b"\0\5\2\0\0\0"), [PROTOCOL]),
        (frame(4, 0, 0, b"\0\1\0"), [SIZE, PROTOCOL]),
        (frame(4, 0, 1, b""), [PROTOCOL]),
        (frame(4, 1, 0, b"\0\1\0\0\0\0"), [SIZE, PROTOCOL]),
    ]:
        peer = Peer()
        peer.send(bad)
        expect(peer.outcome(1), codes)


def frames_of_the_wrong_size_end_the_connection():
    for bad, codes in [
        (frame(6, 0, 0, b"1234567"), [SIZE, PROTOCOL]),
        (frame(3, 0, 1, b"123"), [SIZE, PROTOCOL]),
        (frame(8, 0, 0, b"123"), [SIZE, PROTOCOL]),
        (frame(2, 0, 1, b"1234"), [SIZE, PROTOCOL]),
        (frame(7, 0, 0, b"1234"), [SIZE, PROTOCOL]),
        (frame(0, 8, 1, b""), [SIZE, PROTOCOL]),
        (frame(1, 4, 1, b"x" * 20000), [SIZE, PROTOCOL]),
        (frame(0, 0, 1, b"x" * 20000), [SIZE, PROTOCOL]),
        (frame(6, 0, 0, b"x" * 20000), [SIZE, PROTOCOL]),
        (frame(0, 0, 1, b"", length=0xFFFFFF), [SIZE, PROTOCOL]),
    ]:
        peer = Peer()
        peer.send(peer.headers(1, request(method="POST"), end_stream=False) if bad[3] in (0, 3) else b"")
        peer.send(bad)
        expect(peer.outcome(1), codes)


def frames_on_the_wrong_stream_end_the_connection():
    for bad, codes in [
        (frame(0, 0, 0, b"x"), [PROTOCOL]),
        (frame(0, 0, 1, b"x"), [PROTOCOL, CLOSED]),
        (frame(1, 5, 0, b"\x82"), [PROTOCOL]),
        (frame(1, 5, 2, b"\x82"), [PROTOCOL]),
        (frame(3, 0, 0, b"\0\0\0\0"), [PROTOCOL]),
        (frame(3, 0, 1, b"\0\0\0\0"), [PROTOCOL]),
        (frame(5, 4, 1, b"\0\0\0\2\x82"), [PROTOCOL]),
        (frame(6, 0, 1, b"12345678"), [PROTOCOL]),
        (frame(7, 0, 1, b"\0\0\0\0\0\0\0\0"), [PROTOCOL]),
        (frame(8, 0, 1, b"\0\0\0\1"), [PROTOCOL]),
        (frame(9, 4, 1, b"\x82"), [PROTOCOL]),
        (frame(2, 0, 0, b"\0\0\0\0\0"), [PROTOCOL]),
    ]:
        peer = Peer()
        peer.send(bad)
        expect(peer.outcome(1), codes)


def an_interrupted_head_ends_the_connection():
    for between in [
        frame(6, 0, 0, b"12345678"),
        frame(0, 0, 1, b"x"),
        frame(0x42, 0, 0, b"x"),
        frame(9, 4, 3, b""),
        frame(1, 4, 3, b"\x82"),
    ]:
        peer = Peer()
        peer.send(peer.headers(1, request(), end_headers=False), between)
        expect(peer.outcome(1), [PROTOCOL])


def closed_streams_accept_no_frames():
    peer = Peer()
    assert get(peer, 5) == (200, b"ok")
    peer.send(peer.headers(3, request()))
    expect(peer.outcome(3), [PROTOCOL, CLOSED])
    peer = Peer()
    peer.send(peer.headers(1, request("/slow")), DataFrame(1, b"x"))
    expect(peer.outcome(1), [CLOSED, PROTOCOL])
    peer = Peer()
    peer.send(peer.headers(1, request("/slow")), peer.headers(1, request("/slow")))
    expect(peer.outcome(1), [CLOSED, PROTOCOL])
    peer = Peer()
    peer.send(peer.headers(1, request(method="POST"), end_stream=False))
    peer.send(peer.headers(1, [("x", "y")], end_stream=False))
    expect(peer.outcome(1), [PROTOCOL])


def invalid_compression_ends_the_connection():
    for block in [b"\xff\xff\xff\xff\xff\xff\xff\xff", b"\x80", b"\xfe", b"\x3f\xff\xff\x7f",
                  b"\x00\x85\xff\xff\xff\xff\xff\x01x", b"\x00\x7f\xff\xff"]:
        peer = Peer()
        peer.send(frame(1, 5, 1, block))
        expect(peer.outcome(1), [COMPRESSION, PROTOCOL])


def windows_do_not_overflow():
    peer = Peer()
    peer.send(frame(8, 0, 0, b"\x7f\xff\xff\xff"))
    expect(peer.outcome(1), [FLOW])
    peer = Peer()
    peer.send(peer.headers(1, request("/slow")), frame(8, 0, 1, b"\x7f\xff\xff\xff"))
    expect(peer.outcome(1), [FLOW])
    peer = Peer()
    peer.send(frame(8, 0, 0, b"\0\0\0\0"))
    expect(peer.outcome(1), [PROTOCOL])
    peer = Peer()
    peer.send(peer.headers(1, request("/slow")), frame(8, 0, 1, b"\0\0\0\0"))
    expect(peer.outcome(1), [PROTOCOL])


def windows_are_respected():
    """The response to /big has a million bytes: the server sends only what the window allows."""
    peer = Peer()
    peer.send(peer.headers(1, request("/big")))
    size = 0
    while size < 65535:
        got = peer.read()
        if isinstance(got, DataFrame):
            size += len(got.data)
    assert size == 65535, size
    # While the window is closed, pings still work.
    peer.send(PingFrame(0, b"12345678"))
    while not isinstance(got := peer.read(), PingFrame):
        assert not (isinstance(got, DataFrame) and got.data), "beyond the window"
    peer.send(WindowUpdateFrame(0, 10_000_000), WindowUpdateFrame(1, 10_000_000))
    while not (isinstance(got, DataFrame) and "END_STREAM" in got.flags):
        got = peer.read()
        size += len(got.data) if isinstance(got, DataFrame) else 0
    assert size == 1_000_000, size


def streams_beyond_the_limit_are_refused():
    """/slow is never answered; the stream over the limit is refused."""
    peer = Peer()
    peer.wait_for_settings()
    limit = peer.server_settings[SettingsFrame.MAX_CONCURRENT_STREAMS]
    for number in range(limit + 1):
        peer.send(peer.headers(2 * number + 1, request("/slow")))
    surplus = 2 * limit + 1
    expect(peer.outcome(surplus), [REFUSED, PROTOCOL])
    assert_serves()


def pings_are_answered():
    peer = Peer()
    peer.send(PingFrame(0, b"12345678"))
    while not isinstance(got := peer.read(), PingFrame):
        pass
    assert "ACK" in got.flags and got.opaque_data == b"12345678"


def many_streams_at_once_are_all_answered():
    peer = Peer()
    for stream in range(1, 101, 2):
        peer.send(peer.headers(stream, request(f"/{stream}")))
    left, statuses = set(range(1, 101, 2)), {}
    while left:
        got = peer.read()
        if isinstance(got, HeadersFrame):
            statuses[got.stream_id] = dict(peer.decoder.decode(got.data))[":status"]
        if "END_STREAM" in got.flags:
            left.discard(got.stream_id)
    assert set(statuses.values()) == {"200"}


def goaway_closes_the_connection():
    peer = Peer()
    peer.send(GoAwayFrame(0, last_stream_id=0, error_code=0))
    assert peer.outcome(1) in ["closed", ("goaway", 0)]


if __name__ == "__main__":
    run(globals(), after=assert_serves)
