"""Clients that let nothing come, and answer every ping.

    windows.py CHECK ADDRESS
"""

from hyperframe.frame import PingFrame

from frames import *

SHUT = {SettingsFrame.INITIAL_WINDOW_SIZE: 0}


def read(peer):
    """The next frame, with pings answered."""
    got = peer.read()
    if isinstance(got, PingFrame) and "ACK" not in got.flags:
        peer.send(PingFrame(0, got.opaque_data, flags=["ACK"]))
    return got


def is_cut(peer, stream):
    """Whether the stream is given up soon."""
    end = time.monotonic() + 8
    try:
        while time.monotonic() < end:
            got = read(peer)
            if isinstance(got, RstStreamFrame) and got.stream_id == stream:
                return True
    except Ended:
        return True
    return False


def what_an_upstream_says_is_not_kept_for_ever():
    peer = Peer(settings=SHUT)
    peer.send(peer.headers(1, request("/big")))
    assert is_cut(peer, 1)


def what_we_say_is_not_kept_for_ever():
    peer = Peer(settings=SHUT)
    peer.send(peer.headers(1, request("/a/../b")))
    assert is_cut(peer, 1)


def others_on_the_connection_go_on():
    """One stream is shut, the others are not: only the one is given up."""
    peer = Peer(settings=SHUT)
    peer.send(peer.headers(1, request("/big")))
    stream, served, cut = 1, 0, False
    while not cut:
        assert served < 200, "it is not given up"
        stream += 2
        peer.send(peer.headers(stream, request("/x")), WindowUpdateFrame(stream, 100))
        got = None
        while not (got and got.stream_id == stream and "END_STREAM" in got.flags):
            got = read(peer)
            cut |= isinstance(got, RstStreamFrame) and got.stream_id == 1
        served += 1
        time.sleep(0.05)  # The pace of a client, not a wait for anything.
    assert served > 1


def who_takes_little_by_little_is_served():
    """A million bytes in far more time than nothing may move for."""
    peer = Peer(settings=SHUT)
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
        time.sleep(0.05)  # This is how slow it is.
    assert False, size


def who_is_idle_is_told():
    peer = Peer()
    assert get(peer) == (200, b"ok")
    try:
        while True:
            read(peer)
    except Ended:
        pass
    assert [it.error_code for it in peer.seen if isinstance(it, GoAwayFrame)][-1:] == [NO_ERROR]


if __name__ == "__main__":
    run(globals())
    assert_serves()
