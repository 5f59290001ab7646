"""What the clients log: outages, and rule sets that do not exist."""

import asyncio
import unittest

from fluxgate import AsyncClient, Client
from fluxgate._calls import MAX_MISSING

from .service import CONFORMANCE, FaultProxy, Service
from .test_client import Answering, wait_until

CONFIG = "\n".join(CONFORMANCE["configs"]["main"])


def without_rule_set(allowed):
    """Returns what the service answers to a check whose rule set does not exist."""
    retry = "0" if allowed else "null"
    outcome = "no_rule" if allowed else "denied"
    body = (
        f'{{"allowed":{str(allowed).lower()},"outcome":"{outcome}","rule":null,"band":null,'
        f'"limit":null,"remaining":null,"retry_after_ms":{retry},"reset_after_ms":0,"delay_ms":0,'
        '"violated":[]}'
    )
    status = "200 OK" if allowed else "429 Too Many Requests"
    return (
        f"HTTP/1.1 {status}\r\nX-FluxGate-Rule-Set: missing\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def answering(answer):
    def serve(sock):
        while sock.recv(65536):
            sock.sendall(answer)

    return Answering(serve)


class Outages(unittest.TestCase):
    def test_an_outage_is_logged_once_with_what_happens_to_requests(self):
        async def run(on_error):
            url = "http://127.0.0.1:1"
            async with AsyncClient(url, deadline=1, on_error=on_error) as fg:
                for _ in range(20):
                    await asyncio.gather(fg.check("set"), return_exceptions=True)

        for on_error, effect in (
            ("allow", "are allowed"),
            ("deny", "are denied"),
            ("raise", "fail"),
        ):
            with self.subTest(on_error), self.assertLogs("fluxgate", "WARNING") as logs:
                asyncio.run(run(on_error))
            [record] = logs.records
            self.assertEqual(
                record.getMessage(),
                "FluxGate at http://127.0.0.1:1 does not decide: Connection refused; "
                f"requests {effect} (on_error={on_error})",
            )

    def test_its_end_is_logged_where_its_beginning_is(self):
        with Service(CONFIG) as service:
            proxy = FaultProxy(service.port)
            self.addCleanup(proxy.close)
            with Client(proxy.url, deadline=10) as fg:
                with self.assertLogs("fluxgate", "WARNING") as logs:
                    proxy.set_mode("down")
                    self.assertEqual(fg.check("api-limits").outcome, "failed_open")
                    proxy.set_mode("up")
                    wait_until(lambda: fg.check("api-limits", user="ann").outcome != "failed_open")
        messages = [it.getMessage() for it in logs.records]
        self.assertEqual(len(messages), 2, messages)
        self.assertEqual(messages[1], f"FluxGate at {proxy.url} decides again")


class MissingRuleSets(unittest.TestCase):
    def warnings(self, allowed, names):
        """Returns what checks of these rule sets log."""
        with answering(without_rule_set(allowed)) as server:
            with Client(server.url, deadline=10) as fg:
                with self.assertLogs("fluxgate", "WARNING") as logs:
                    for name in names:
                        self.assertEqual(fg.check(name, user="ann").allowed, allowed)
            url = server.url
        return [it.getMessage().replace(url, "URL") for it in logs.records]

    def test_each_is_logged_once(self):
        self.assertEqual(
            self.warnings(True, ["api-limts", "other", "api-limts", "other"]),
            [
                "FluxGate at URL has no rule set `api-limts`: requests that it should limit pass",
                "FluxGate at URL has no rule set `other`: requests that it should limit pass",
            ],
        )

    def test_the_log_says_if_its_requests_are_denied(self):
        [message] = self.warnings(False, ["api-limts"])
        self.assertTrue(message.endswith("`api-limts`: requests that it should limit are denied"))

    def test_neither_memory_nor_log_grow_with_the_names(self):
        names = [f"set-{at}" for at in range(MAX_MISSING + 50)]
        self.assertEqual(len(self.warnings(True, names + names)), MAX_MISSING)

    def test_a_batch_logs_them_too(self):
        checks = [{"rule_set": name, "user": "ann"} for name in ("costs", "api-limts", "other")]

        async def batch(url):
            async with AsyncClient(url, deadline=10) as fg:
                await fg.batch(checks + checks)

        with Service(CONFIG) as service:
            with self.assertLogs("fluxgate", "WARNING") as logs:
                with Client(service.url, deadline=10) as fg:
                    outcomes = [it.outcome for it in fg.batch(checks + checks)]
                    fg.check("other")
                asyncio.run(batch(service.url))
        self.assertEqual(outcomes, ["allowed", "no_rule", "no_rule"] * 2)
        message = "FluxGate at %s has no rule set `%s`: requests that it should limit pass"
        expected = [message % (service.url, name) for name in ("api-limts", "other")]
        # Each client logs them once.
        self.assertEqual([it.getMessage() for it in logs.records], expected * 2)

    def test_both_clients_share_what_was_logged(self):
        async def check(url, fg):
            async with AsyncClient._with(fg._settings) as other:
                await other.check("api-limts")

        with answering(without_rule_set(True)) as server, Client(server.url, deadline=10) as fg:
            with self.assertLogs("fluxgate", "WARNING") as logs:
                asyncio.run(check(server.url, fg))
                fg.check("api-limts")
        self.assertEqual(len(logs.records), 1)


if __name__ == "__main__":
    unittest.main()
