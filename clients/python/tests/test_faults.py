"""A service that fails under 200 requests a second.

No request takes longer than its deadline, none runs twice, `on_error` holds, the limits apply again
within a second, and no thread, socket or slot is left.
"""

import collections
import contextlib
import itertools
import queue
import threading
import time
import unittest

from fluxgate import Client

from . import apps
from .service import FaultProxy, RawRequest, Service
from .stalls import Delay, elapsed, stalled
from .test_client import keeper_threads, sockets, wait_until

RATE = 200
DEADLINE = 0.25
# What sending and reading the request adds to it.
SLACK = 0.2
# For how long a service that has failed is not asked.
PAUSE = 0.5
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
        # (when it began, when it ended, its status, whether the service decided it)
        self.results = []
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(40)]
        for thread in self._threads:
            thread.start()
        self._sent = 0

    def run(self, seconds, until=lambda: True):
        """Sends requests for some seconds, and then until something holds."""
        begin = time.monotonic()
        for at in itertools.count():
            if at >= seconds * RATE and until():
                return
            if time.monotonic() > begin + seconds + 20:
                raise AssertionError("20 s later the service is, or is not, asked as before")
            time.sleep(max(0.0, begin + at / RATE - time.monotonic()))
            self._sent += 1
            self._due.put(self._sent)

    def has(self, is_decided, since=0.0):
        """Returns whether the service has decided a request since then, or has not."""
        with self._lock:
            return any(it[3] == is_decided and it[0] > since for it in self.results)

    @property
    def sent(self):
        return self._sent

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
            status, received, _ = RawRequest(self._port, "GET", "/x", headers).response()
            is_decided = "x-ratelimit-limit" in received
            with self._lock:
                self.results.append((begin, time.monotonic(), status, is_decided))


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
        with contextlib.ExitStack() as stack:
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
        load.run(0.5, lambda: load.has(True))
        fails_at = time.monotonic()
        if fault == "restart":
            restart = threading.Thread(target=service.restart)
            restart.start()
            # It may be so quick that no request meets it.
            load.run(1.2)
            restart.join()
        else:
            proxy.set_mode(fault)
            load.run(1.2, lambda: load.has(False, fails_at))
        proxy.set_mode("up")
        up_at = time.monotonic()
        delay = Delay(service)
        load.run(1.6, lambda: load.has(True, up_at))
        delayed = delay.total()
        load.finish()
        # Answers that came too late are undone within 5 s.
        wait_until(lambda: service.metric("fluxgate_slots_held") == 0)

        results = load.results
        self.assertEqual(len(results), load.sent)
        self.assertEqual(max(runs.runs.values()), 1)
        statuses = collections.Counter(status for _, _, status, _ in results)
        other = {"deny": 503, "allow": 200, "raise": 500}[on_error]
        self.assertEqual(sum(runs.runs.values()), statuses[200])
        for _, _, status, is_decided in results:
            self.assertEqual(status, 200 if is_decided else other)
        if fault != "restart":
            during = [it for it in results if fails_at + 0.5 < it[0] and it[1] < up_at]
            self.assertFalse(any(is_decided for _, _, _, is_decided in during))
        slowest = max(elapsed(begin, end) for begin, end, _, _ in results)
        self.assertLess(slowest, DEADLINE + SLACK)
        recovered = min(it[0] for it in results if it[3] and it[0] > up_at)
        # A call that the machine makes late fails, and costs another pause.
        late_calls = int(delayed / (DEADLINE / 2))
        self.assertLess(recovered - up_at, 1.0 + delayed + late_calls * (DEADLINE + PAUSE))
        # Those sent while the first call was on its way were not decided: one call tries it.
        answered = min(it[1] for it in results if it[3] and it[0] > up_at)
        for begin, end, _, is_decided in results:
            if begin > answered and not is_decided:
                # The pause of the machine comes before that of the client.
                late = max(stalled(begin - DEADLINE - PAUSE, end), delayed)
                self.assertGreater(late, DEADLINE / 2, "a request was not decided any more")

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
