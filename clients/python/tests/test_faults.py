"""A service that fails under 200 requests a second.

No request takes longer than its deadline, none runs twice, `on_error` holds, the limits apply again
within a second, and no thread, socket or slot is left.
"""

import collections
import contextlib
import queue
import threading
import time
import unittest

from fluxgate import Client

from . import apps
from .service import FaultProxy, RawRequest, Service
from .stalls import bearing, elapsed
from .test_client import keeper_threads, sockets, wait_until

RATE = 200
DEADLINE = 0.25
# What sending and reading the request adds to it.
SLACK = 0.2
# The machine must run this process, and the service, soon enough for calls to keep the deadline.
PAUSE = DEADLINE / 4
CONFIG = """
listen: { api: "${API}" }
rule_sets:
  api:
    rules:
      - { id: requests, scope: per_user, bands: [ { capacity: 1000000, window: 1m } ] }
      - { id: running, scope: global, algorithm: concurrency, bands: [ { capacity: 1000 } ] }
"""


class Load:
    """Requests at a constant rate, however long they take."""

    def __init__(self, port):
        self._port = port
        self._due = queue.Queue()
        self._lock = threading.Lock()
        # (when it began, when it ended, its status)
        self.results = []
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(40)]
        for thread in self._threads:
            thread.start()
        self._sent = 0

    def run(self, seconds):
        """Sends requests for some seconds."""
        begin = time.monotonic()
        for at in range(int(seconds * RATE)):
            time.sleep(max(0.0, begin + at / RATE - time.monotonic()))
            self._sent += 1
            self._due.put(self._sent)

    def finish(self):
        """Waits for the last response."""
        for _ in self._threads:
            self._due.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self):
        while True:
            number = self._due.get()
            if number is None:
                return
            begin = time.monotonic()
            headers = [("X-User-Id", "ann"), ("X-Number", str(number))]
            status = RawRequest(self._port, "GET", "/x", headers).response()[0]
            with self._lock:
                self.results.append((begin, time.monotonic(), status))


class Numbers(apps.Runs):
    """Counts how often each request has run."""

    def __init__(self):
        super().__init__()
        self.runs = collections.Counter()

    def add(self, number=None):
        with self._lock:
            self.runs[number] += 1


def asgi(client, runs):
    from fluxgate.asgi import RateLimitMiddleware, header

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            return await apps.asgi_app(apps.Runs())(scope, receive, send)
        runs.add(header(scope, "X-Number"))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    return apps.Uvicorn(RateLimitMiddleware(app, client=client, rule_set="api"))


def wsgi(client, runs):
    from fluxgate.wsgi import RateLimitMiddleware, header

    def app(environ, start_response):
        runs.add(header(environ, "X-Number"))
        start_response("200 OK", [])
        return [b"ok"]

    return apps.Waitress(RateLimitMiddleware(app, client=client, rule_set="api"))


class Faults(unittest.TestCase):
    def check(self, make, fault, on_error="deny"):
        before = sockets()
        with bearing(PAUSE), contextlib.ExitStack() as stack:
            self.run_load(stack, make, fault, on_error)
        wait_until(lambda: sockets() == before)
        self.assertEqual(keeper_threads(), [])

    def run_load(self, stack, make, fault, on_error):
        service = stack.enter_context(Service(CONFIG))
        proxy = FaultProxy(service.port)
        stack.callback(proxy.close)
        client = Client(proxy.url, on_error=on_error, deadline=DEADLINE)
        runs = Numbers()
        server = make(client, runs)
        stack.callback(lambda: wait_until(lambda: proxy.connections() == 0))
        stack.callback(client.close)
        stack.callback(server.close)
        load = Load(server.port)
        stack.callback(load.finish)
        load.run(0.5)
        fails_at = time.monotonic()
        if fault == "restart":
            restart = threading.Thread(target=service.restart)
            restart.start()
        else:
            proxy.set_mode(fault)
        load.run(1.2)
        if fault == "restart":
            restart.join()
        proxy.set_mode("up")
        up_at = time.monotonic()
        load.run(1.6)
        load.finish()
        # Answers that came too late are undone within 5 s.
        wait_until(lambda: service.metric("fluxgate_slots_held") == 0)

        results = load.results
        self.assertEqual(len(results), int(0.5 * RATE) + int(1.2 * RATE) + int(1.6 * RATE))
        self.assertEqual(max(runs.runs.values()), 1)
        statuses = collections.Counter(status for _, _, status in results)
        other = {"deny": 503, "allow": 200, "raise": 500}[on_error]
        self.assertLessEqual(set(statuses), {200, other}, statuses)
        self.assertEqual(sum(runs.runs.values()), statuses[200])
        slowest = max(elapsed(begin, end) for begin, end, _ in results)
        self.assertLess(slowest, DEADLINE + SLACK)
        if on_error != "allow":
            # A restart may be so quick that no request meets it.
            self.assertTrue(other in statuses or fault == "restart", statuses)
            after = {status for begin, _, status in results if begin > up_at + 1.0}
            self.assertEqual(after, {200})
            if fault != "restart":
                during = [it for it in results if fails_at + 0.5 < it[0] and it[1] < up_at]
                self.assertEqual({status for _, _, status in during}, {other})

    def test_asgi(self):
        for fault in ("down", "slow", "reset", "garbage", "restart"):
            with self.subTest(fault):
                self.check(asgi, fault)

    def test_wsgi(self):
        for fault in ("down", "slow", "reset", "garbage", "restart"):
            with self.subTest(fault):
                self.check(wsgi, fault)

    def test_allow_and_raise(self):
        self.check(asgi, "slow", "allow")
        self.check(wsgi, "reset", "raise")


if __name__ == "__main__":
    unittest.main()
