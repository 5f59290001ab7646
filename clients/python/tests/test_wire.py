"""HTTP/1.1 responses, however they arrive."""

import unittest

from fluxgate._wire import MAX_BODY, MAX_HEAD, BadResponse, ResponseParser

LENGTH = b"HTTP/1.1 200 OK\r\nA: 1\r\na: 2\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 429 Too Many Requests\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nhel\r\n02;x=1\r\nlo\r\n0\r\nTrailer: x\r\n\r\n"
)
TO_END = b"HTTP/1.0 200 OK\r\n\r\nhello"


def parse(data, size=None, ends=False):
    """Feeds a response in pieces of a size. Returns it, and the bytes that it took."""
    parser = ResponseParser()
    size = size or len(data) or 1
    for at in range(0, len(data), size):
        response = parser.feed(data[at : at + size])
        if response is not None:
            return response
    return parser.feed(b"") if ends else None


class Complete(unittest.TestCase):
    def test_however_it_is_split(self):
        for size in range(1, len(CHUNKED) + 1):
            for data, status, ends in [
                (LENGTH, 200, False),
                (CHUNKED, 429, False),
                (TO_END, 200, True),
            ]:
                response = parse(data, size, ends)
                self.assertEqual((response.status, response.body), (status, b"hello"))
        self.assertEqual(parse(LENGTH).headers["a"], "1, 2")

    def test_when_a_connection_can_be_used_again(self):
        for data, keep_alive in [
            (LENGTH, True),
            (CHUNKED, True),
            (LENGTH + b"x", False),
            (CHUNKED + b"x", False),
            (LENGTH.replace(b"A: 1", b"Connection: Close"), False),
            (LENGTH.replace(b"HTTP/1.1", b"HTTP/1.0"), False),
            (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        ]:
            self.assertEqual(parse(data).keep_alive, keep_alive, data)
        self.assertFalse(parse(TO_END, ends=True).keep_alive)

    def test_interim_responses_are_skipped(self):
        interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        for size in (1, 7, 1000):
            self.assertEqual(parse(interim + LENGTH, size).body, b"hello")


class Invalid(unittest.TestCase):
    def test_garbage_is_recognized_at_once(self):
        for data in [
            b"g",
            b"HTTX",
            b"SSH-2.0-OpenSSH\r\n",
            b"HTTP/2 200 OK\r\n\r\n",
            b"HTTP/1.1 20\r\n\r\n",
            b"HTTP/1.1 \xb2\xb2\xb2 OK\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA : x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        ]:
            with self.subTest(data), self.assertRaises(BadResponse):
                parse(data)

    def test_invalid_chunks(self):
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        for chunks in [
            b"x\r\n",
            b"\r\n",
            b"-1\r\n",
            b"+1\r\n",
            b"0x1\r\n",
            b"1_0\r\n",
            b"1\r\nabc",
        ]:
            with self.subTest(chunks), self.assertRaises(BadResponse):
                parse(head + chunks)

    def test_sizes_are_bounded(self):
        for data in [
            b"HTTP/1.1 200 OK\r\nA: " + b"x" * (MAX_HEAD + 1),
            b"HTTP/1.1 200 OK\r\nA: " + b"x" * (MAX_HEAD + 1) + b"\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY + 1),
            b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MAX_BODY + 1),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % (MAX_BODY + 1),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * (MAX_HEAD + 1),
        ]:
            with self.subTest(data[:60]), self.assertRaises(BadResponse):
                parse(data)

    def test_an_early_end(self):
        for data in (LENGTH, CHUNKED):
            for end in range(len(data)):
                with self.assertRaises(BadResponse):
                    parse(data[:end], ends=True)


if __name__ == "__main__":
    unittest.main()
