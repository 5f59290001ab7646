"""The blocking client: deadlines, connections, holds, and what closing leaves behind."""

import gc
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import fluxgate
from fluxgate import Client, Denied

from .service import BINARY, CONFORMANCE, HOST, FaultProxy, Service, free_port
from .stalls import bearing, elapsed

CONFIG = "\n".join(CONFORMANCE["configs"]["main"])
# Slots that are renewed twice in three seconds, also on a busy machine.
CONFIG += """
  four-seconds:
    rules:
      - { id: run, scope: per_user, algorithm: concurrency, hold: 4s, bands: [ { capacity: 1 } ] }
"""


def keeper_threads():
    return [it for it in threading.enumerate() if it.name.startswith("fluxgate")]


def sockets():
    """Returns how many sockets and pipes of this process are open."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            pass
    return sum(link.startswith(("socket:", "anon_inode:[eventpoll]")) for link in links)


def wait_until(holds, seconds=20.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.01)


class Answering:
    """A server that answers each connection with a function."""

    def __init__(self, answer):
        self._listener = socket.create_server((HOST, 0))
        self._answer = answer
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"http://{HOST}:{self._listener.getsockname()[1]}"

    def _accept(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        with sock:
            try:
                self._answer(sock)
            except OSError:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.close()


class Settings(unittest.TestCase):
    def test_wrong_settings_are_refused(self):
        for url in ["", "localhost:8081", "ftp://x", "http://", "http://u:p@x", "http://x/?q"]:
            with self.subTest(url), self.assertRaises(ValueError):
                Client(url)
        for settings in [
            {"on_error": "open"},
            {"deadline": 0},
            {"deadline": float("inf")},
            {"pool_size": -1},
            {"headers": {"A": "b\r\nC: d"}},
        ]:
            with self.subTest(settings), self.assertRaises(ValueError):
                Client("http://127.0.0.1:1", **settings)

    def test_headers_are_sent(self):
        seen = []

        def answer(sock):
            seen.append(sock.recv(65536))
            sock.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

        with Answering(answer) as server, self.assertRaises(fluxgate.InvalidRequest):
            with Client(
                server.url + "/base/", headers={"Authorization": "Bearer t"}, deadline=1
            ) as fg:
                fg.check("set")
        self.assertIn(b"POST /base/v1/check?status=true HTTP/1.1\r\n", seen[0])
        self.assertIn(b"\r\nAuthorization: Bearer t\r\n", seen[0])


class Deadlines(unittest.TestCase):
    def test_the_deadline_covers_everything(self):
        def trickle(sock):
            sock.recv(65536)
            for byte in b"HTTP/1.1 200 OK\r\n" + b"A: x\r\n" * 100:
                sock.sendall(bytes([byte]))
                time.sleep(0.02)

        def silence(sock):
            sock.recv(65536)
            time.sleep(3)

        for answer in (trickle, silence):
            with Answering(answer) as server, Client(server.url, deadline=0.2) as fg:
                begin = time.monotonic()
                self.assertEqual(fg.check("set").outcome, "failed_open")
                self.assertLess(elapsed(begin), 0.4)

    def test_a_host_that_does_not_accept(self):
        # A full backlog: the connection is never made.
        with socket.create_server((HOST, 0), backlog=0) as listener:
            address = listener.getsockname()
            waiting = []
            for _ in range(4):
                sock = socket.socket()
                sock.setblocking(False)
                sock.connect_ex(address)
                waiting.append(sock)
            with Client(f"http://{HOST}:{address[1]}", deadline=0.2) as fg:
                begin = time.monotonic()
                self.assertEqual(fg.check("set").outcome, "failed_open")
                self.assertLess(elapsed(begin), 0.4)
            for sock in waiting:
                sock.close()

    def test_a_name_that_does_not_resolve(self):
        with Client("http://does-not-exist.invalid:1", deadline=0.3) as fg:
            begin = time.monotonic()
            self.assertEqual(fg.check("set").outcome, "failed_open")
            self.assertLess(elapsed(begin), 0.6)

    def test_names_are_resolved(self):
        with Service(CONFIG) as service:
            proxy = FaultProxy(service.port, host="127.0.0.1")
            with Client(f"http://localhost:{proxy.port}", deadline=10) as fg:
                self.assertEqual(fg.check("api-limits", user="ann").remaining, 1)
            proxy.close()

    def test_answers_that_are_no_decisions(self):
        for body in [b"[]", b"{}", b"null", b"1", b"{", b'{"allowed":true}', b"[" * 100_000,
                     b'{"allowed":"yes","outcome":"allowed"}',
                     b'{"allowed":true,"outcome":"denied","rule":null,"band":null,"limit":null,'
                     b'"remaining":null,"retry_after_ms":0,"reset_after_ms":0,"delay_ms":0,'
                     b'"violated":[]}']:  # fmt: skip

            def answer(sock, body=body):
                sock.recv(65536)
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

            with self.subTest(body[:30]), Answering(answer) as server:
                with Client(server.url, on_error="raise", deadline=2) as fg:
                    with self.assertRaises(fluxgate.Unavailable):
                        fg.check("set")
                    with self.assertRaises(fluxgate.Unavailable):
                        fg.batch([{"rule_set": "set"}])
                    if b"retry_after_ms" not in body:
                        with self.assertRaises(fluxgate.Unavailable):
                            fg.consume("a", "b")


class Connections(unittest.TestCase):
    def setUp(self):
        self.service = Service(CONFIG)
        self.addCleanup(self.service.close)
        self.proxy = FaultProxy(self.service.port)
        self.addCleanup(self.proxy.close)

    def client(self, **settings):
        client = Client(self.proxy.url, **{"deadline": 10, "on_error": "raise", **settings})
        self.addCleanup(client.close)
        return client

    def test_connections_are_kept_and_bounded(self):
        fg = self.client(pool_size=3)
        for _ in range(20):
            fg.peek("api-limits", user="ann")
        self.assertEqual(fg._transport.idle_connections(), 1)
        threads = [threading.Thread(target=lambda: fg.peek("api-limits")) for _ in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertLessEqual(fg._transport.idle_connections(), 3)

    def test_a_connection_that_the_service_closed_is_not_used(self):
        fg = self.client()
        fg.peek("api-limits")
        for _ in range(5):
            self.proxy.set_mode("down")
            self.proxy.set_mode("up")
            wait_until(lambda: self.proxy.connections() == 0)
            self.assertTrue(fg.peek("api-limits").allowed)

    def test_closing_leaves_nothing(self):
        before = sockets()
        fg = self.client()
        with fg.hold("slots", user="ann"):
            self.assertEqual(len(keeper_threads()), 1)
        self.assertGreater(sockets(), before)
        fg.close()
        wait_until(lambda: self.proxy.connections() == 0)
        self.assertEqual(keeper_threads(), [])
        wait_until(lambda: sockets() == before)
        # It still works, without keeping anything.
        self.assertTrue(fg.peek("api-limits").allowed)
        wait_until(lambda: sockets() == before)

    def test_threads_share_a_client(self):
        fg = self.client()
        results = []

        def run():
            results.extend(fg.check("costs", user="ann").allowed for _ in range(5))

        threads = [threading.Thread(target=run) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results.count(True), 10)

    def test_a_fork_uses_its_own_connections(self):
        code = f"""
import os, sys
from fluxgate import Client
fg = Client("{self.proxy.url}", on_error="raise", deadline=10)
hold = fg.hold("slots", user="ann")
pids = []
for child in range(4):
    pid = os.fork()
    if pid == 0:
        for at in range(20):
            user = f"child-{{child}}-{{at}}"
            assert fg.check("api-limits", user=user).remaining == 1
            with fg.hold("slots", user=user):
                pass
        os._exit(0)
    pids.append(pid)
for at in range(20):
    assert fg.check("api-limits", user=f"parent-{{at}}").remaining == 1
for pid in pids:
    assert os.waitpid(pid, 0)[1] == 0
assert hold.is_open and hold.release()
fg.close()
"""
        subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)

    def test_https_with_a_private_authority(self):
        try:
            import trustme
        except ImportError:
            self.skipTest("trustme is missing")
        authority = trustme.CA()
        certificate = authority.issue_cert(HOST)
        with tempfile.TemporaryDirectory() as folder:
            authority.cert_pem.write_to_path(f"{folder}/ca.pem")
            certificate.cert_chain_pems[0].write_to_path(f"{folder}/tls.crt")
            certificate.private_key_pem.write_to_path(f"{folder}/tls.key")
            port = free_port()
            tls = f'{{ cert: "{folder}/tls.crt", key: "{folder}/tls.key" }}'
            api = f'api: {{ address: "{HOST}:{port}", tls: {tls} }}'
            with Tls(CONFIG.replace('api: "${API}"', api), port, folder) as url:
                with Client(url, ca=f"{folder}/ca.pem", on_error="raise", deadline=10) as fg:
                    for remaining in (1, 0):
                        self.assertEqual(fg.check("api-limits", user="a").remaining, remaining)
                    self.assertEqual(fg._transport.idle_connections(), 1)
                with Client(url, on_error="raise", deadline=10) as fg:
                    with self.assertRaises(fluxgate.Unavailable) as raised:
                        fg.check("api-limits", user="a")
                    self.assertIsInstance(raised.exception.__cause__, ssl.SSLError)


class Tls:
    """A service with TLS, whose port answers no plain HTTP."""

    def __init__(self, config, port, folder):
        self._config, self._port, self._folder = config, port, folder

    def __enter__(self):
        Path(self._folder, "config.yaml").write_text(self._config)
        command = [BINARY, "run", "--config", "config.yaml"]
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(command, cwd=self._folder, stdout=null, stderr=null)

        def is_up():
            with socket.socket() as sock:
                return sock.connect_ex((HOST, self._port)) == 0

        wait_until(is_up, 60)
        return f"https://{HOST}:{self._port}"

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()


class Holds(unittest.TestCase):
    def setUp(self):
        self.service = Service(CONFIG)
        self.addCleanup(self.service.close)
        self.proxy = FaultProxy(self.service.port)
        self.addCleanup(self.proxy.close)
        self.fg = Client(self.proxy.url, deadline=10, on_error="raise")
        self.addCleanup(self.fg.close)

    def slots(self):
        return self.service.metric("fluxgate_slots_held")

    def test_a_hold_is_released_however_its_block_ends(self):
        with self.fg.hold("slots", user="ann") as hold:
            self.assertTrue(hold.is_open and hold.id)
            with self.assertRaises(Denied) as raised:
                self.fg.hold("slots", user="ann")
            self.assertEqual(raised.exception.decision.violated, ("running/at-once",))
            self.assertIn("running/at-once", str(raised.exception))
        self.assertFalse(hold.is_open)
        self.assertEqual(self.slots(), 0)
        with self.assertRaises(ZeroDivisionError), self.fg.hold("slots", user="ann"):
            raise ZeroDivisionError
        self.assertEqual(self.slots(), 0)

        def jobs():
            with self.fg.hold("slots", user="ann"):
                yield 1
                yield 2

        for _ in jobs():
            break
        gc.collect()
        self.assertEqual(self.slots(), 0)

    def test_a_hold_that_is_forgotten_is_released(self):
        hold = self.fg.hold("late-slots", user="ann")
        self.assertEqual(self.slots(), 1)
        del hold
        gc.collect()
        wait_until(lambda: self.slots() == 0)

    def test_a_hold_of_a_wait_is_the_callers(self):
        decision = self.fg.wait("slots", user="ann")
        self.proxy.asked()
        time.sleep(1.2)
        self.assertEqual(self.proxy.asked(), 0)
        self.assertFalse(self.fg.release(decision.hold))

    def test_one_call_renews_all_holds(self):
        with bearing(1.0):
            holds = [self.fg.hold("four-seconds", user=f"user-{at}") for at in range(50)]
            self.proxy.asked()
            time.sleep(3)
            self.assertIn(self.proxy.asked(), range(1, 5))
            self.assertEqual(self.slots(), 50)
            self.assertTrue(all(hold.release() for hold in holds))
            self.assertEqual(self.slots(), 0)

    def test_a_hold_that_expires_is_known_to_be_lost(self):
        hold = self.fg.hold("slots", user="ann")
        self.proxy.set_mode("down")
        time.sleep(1.4)
        with self.assertLogs("fluxgate", "WARNING"):
            self.proxy.set_mode("up")
            wait_until(lambda: not hold.is_open)
        with self.assertRaises(fluxgate.HoldEnded):
            hold.settle(1)

    def test_a_settlement_that_fails_is_repeated(self):
        with self.fg.hold("costs", user="ann", cost=8) as hold:
            self.proxy.set_mode("reset")
            with self.assertRaises(fluxgate.Unavailable):
                hold.settle(3)
        self.proxy.set_mode("up")
        wait_until(lambda: self.fg.peek("costs", user="ann").remaining == 7)

    def test_holds_by_their_ids(self):
        decision = self.fg.check("late-slots", user="ann")
        self.assertAlmostEqual(decision.hold_for, 60.0)
        self.assertTrue(self.fg.renew(decision.hold, 60))
        self.assertTrue(self.fg.release(decision.hold))
        self.assertFalse(self.fg.release(decision.hold))
        self.assertFalse(self.fg.renew(decision.hold, 60))
        with self.assertRaises(fluxgate.HoldEnded):
            self.fg.settle(decision.hold, 1)
        self.assertFalse(self.fg.cancel("AAAAAAAAAAAAAAAAAAAAAAAAAA"))

    def test_what_is_too_large_is_not_sent(self):
        decision = self.fg.check("api-limits", headers={"X-Big": "x" * 70_000})
        self.assertEqual((decision.outcome, decision.retry_after), ("never", None))
        with self.assertRaises(fluxgate.InvalidRequest):
            self.fg.batch([{"user": "x" * 70_000}])

    def test_the_snippet_of_the_guide(self):
        decision = self.fg.check("api-limits", user="ann", path="/api/x")
        self.assertTrue(decision and decision.allowed)
        self.assertEqual((decision.outcome, decision.rule), ("allowed", "per-user"))
        self.assertEqual((decision.limit, decision.remaining), (2, 1))
        self.assertEqual((decision.retry_after, decision.delay), (0, 0))


if __name__ == "__main__":
    unittest.main()
