"""Clients that answer every ping but close their flow control window.

    flow_control.py CHECK[,CHECK…] ADDRESS
"""

from hyperframe.frame import PingFrame

from frames import *

CLOSED_WINDOW = {SettingsFrame.INITIAL_WINDOW_SIZE: 0}


def read(peer):
    """Returns the next frame and answers pings."""
    got = peer.read()
    if isinstance(got, PingFrame) and "ACK" not in got.flags:
        peer.send(PingFrame(0, got.opaque_data, flags=["ACK"]))
    return got


def is_reset(peer, stream):
    """Returns whether the server resets the stream within 30 s."""
    end = time.monotonic() + 30
    try:
        while time.monotonic() < end:
            got = read(peer)
            if isinstance(got, RstStreamFrame) and got.stream_id == stream:
                return True
    except Ended:
        return True
    return False


def a_response_of_an_upstream_is_dropped():
    peer = Peer(settings=CLOSED_WINDOW)
    peer.send(peer.headers(1, request("/big")))
    assert is_reset(peer, 1)


def a_response_of_the_gateway_is_dropped():
    peer = Peer(settings=CLOSED_WINDOW)
    peer.send(peer.headers(1, request("/a/../b")))
    assert is_reset(peer, 1)


def other_streams_are_not_affected():
    """Only the stream with the closed window is reset."""
    peer = Peer(settings=CLOSED_WINDOW)
    peer.send(peer.headers(1, request("/big")))
    stream, served, reset = 1, 0, False
    while not reset:
        assert served < 600, "the stream is not reset"
        stream += 2
        peer.send(peer.headers(stream, request("/x")), WindowUpdateFrame(stream, 100))
        got = None
        while not (got and got.stream_id == stream and "END_STREAM" in got.flags):
            got = read(peer)
            reset |= isinstance(got, RstStreamFrame) and got.stream_id == 1
        served += 1
        time.sleep(0.05)  # The pace of a client, not a wait for anything.
    assert served > 1


def a_slow_reader_is_served():
    """A million bytes take far longer than the idle timeout."""
    peer = Peer(settings=CLOSED_WINDOW)
    peer.send(peer.headers(1, request("/big")))
    size = 0
    for _ in range(60):
        peer.send(WindowUpdateFrame(0, 20_000), WindowUpdateFrame(1, 20_000))
        wanted = min(size + 20_000, 1_000_000)
        while size < wanted:
            got = read(peer)
            assert not isinstance(got, RstStreamFrame), size
            size += len(got.data) if isinstance(got, DataFrame) else 0
        if size == 1_000_000:
            return
        time.sleep(0.15)  # The pace of a slow reader.
    assert False, size


def an_idle_connection_gets_goaway():
    peer = Peer()
    assert get(peer) == (200, b"ok")
    try:
        while True:
            read(peer)
    except Ended:
        pass
    assert [it.error_code for it in peer.seen if isinstance(it, GoAwayFrame)][-1:] == [NO_ERROR]


if __name__ == "__main__":
    run(globals(), after=assert_serves)
