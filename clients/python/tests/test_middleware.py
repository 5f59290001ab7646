"""What middleware adds to the cases of conformance.json."""

import asyncio
import json
import time
import unittest
import urllib.error
import urllib.request

import fluxgate
from fluxgate import AsyncClient, Client

from . import apps
from .service import CONFORMANCE, HOST, FaultProxy, RawRequest, Service
from .test_client import wait_until

CONFIG = "\n".join(CONFORMANCE["configs"]["main"])
ANN = ("X-User-Id", "ann")


def get(server, path="/x", *headers, method="GET"):
    return RawRequest(server.port, method, path, headers).response()


class WithService(unittest.TestCase):
    def setUp(self):
        self.service = Service(CONFIG)
        self.addCleanup(self.service.close)
        self.fg = Client(self.service.url, deadline=10, on_error="raise")
        self.addCleanup(self.fg.close)
        self.runs = apps.Runs()

    def serve(self, server):
        self.addCleanup(server.close)
        # First, while the event loop of the server still runs.
        self.addCleanup(self.fg.close)
        return server


class Refusals(WithService):
    def test_a_refusal_is_that_of_the_gateway_byte_for_byte(self):
        config = CONFIG.replace("{ api: ", '{ gateway: "${GATEWAY}", api: ')
        rule_sets = ["api-limits", "required", "actions"]
        config += "\nfilters:\n" + "".join(
            f"  {name}: {{ rule_set: {name}, include: ['/{name}/**'] }}\n" for name in rule_sets
        )
        filters = ", ".join(rule_sets)
        config += (
            f"gateway: {{ routes: [ {{ id: all, upstreams: [echo], filters: [{filters}] }} ] }}"
        )
        from fluxgate.asgi import RateLimitMiddleware as Asgi
        from fluxgate.wsgi import RateLimitMiddleware as Wsgi

        with Service(config) as service, Client(service.url, deadline=10) as fg:
            asgi, wsgi = apps.asgi_app(self.runs), apps.wsgi_app(self.runs)
            for name in rule_sets:
                asgi = Asgi(asgi, client=fg, rule_set=name, include=[f"/{name}/**"])
                wsgi = Wsgi(wsgi, client=fg, rule_set=name, include=[f"/{name}/**"])
            servers = [self.serve(apps.Uvicorn(asgi)), self.serve(apps.Waitress(wsgi))]
            for user, path in [
                ("ann", "/api-limits/x"),
                ("ann", "/required/x"),
                ("mallory", "/actions/x"),
                ("ann", "/a/../b"),
                ("ann", "/a%80"),
            ]:
                headers = [("X-User-Id", user)]
                for _ in range(2):
                    gateway = RawRequest(service.gateway_port, "GET", path, headers).response()
                gateway = RawRequest(service.gateway_port, "GET", path, headers).response()
                self.assertGreaterEqual(gateway[0], 400)
                for server in servers:
                    answer = get(server, path, *headers)
                    self.assertEqual(answer[0], gateway[0], path)
                    self.assertEqual(timeless(answer[2]), timeless(gateway[2]))
                    for name in gateway[1]:
                        if "ratelimit" in name or name in ("retry-after", "content-type"):
                            self.assertIn(name, answer[1])
                            if name != "x-ratelimit-reset":
                                self.assertEqual(
                                    timeless(answer[1][name]), timeless(gateway[1][name])
                                )

    def test_head_has_no_body(self):
        for make in (apps.asgi, apps.wsgi):
            server = self.serve(make(self.fg, {"rule_set": "per-key"}, self.runs))
            headers = [("X-API-Key", make.__name__)]
            get(server, "/x", *headers)
            status, fields, body = get(server, "/x", *headers, method="HEAD")
            self.assertEqual((status, body), (429, b""))
            self.assertGreater(int(fields["content-length"]), 100)


def timeless(text):
    """Returns a text without the numbers that change from one moment to the next."""
    text = text.decode() if isinstance(text, bytes) else text
    import re

    return re.sub(r'(?<="retry_after_ms":)\d+|(?<=;t=)\d+|^\d+$', "N", text)


class Clients(WithService):
    def test_either_client_will_do(self):
        for make in (apps.asgi, apps.wsgi, apps.fastapi, apps.flask):
            for kind in (Client, AsyncClient):
                client = kind(self.service.url, deadline=10, on_error="raise")
                server = make(client, {"rule_set": "slots"}, self.runs)
                user = ("X-User-Id", f"{make.__name__}-{kind.__name__}")
                for _ in range(3):
                    self.assertEqual(get(server, "/x", user)[0], 200)
                    wait_until(lambda: self.service.metric("fluxgate_slots_held") == 0)
                if kind is Client:
                    client.close()
                    server.close()
                else:
                    server.close()
                    asyncio.run(client.close())

    def test_another_kind_of_client_is_refused(self):
        from fluxgate.asgi import RateLimitMiddleware

        with self.assertRaises(TypeError):
            RateLimitMiddleware(apps.asgi_app(self.runs), client="http://127.0.0.1:8081")

    def test_calls_that_the_service_rejects_are_logged_once(self):
        client = Client(self.service.url, deadline=10, on_error="deny")
        self.addCleanup(client.close)
        options = {"rule_set": "api-limits", "cost": -1}
        server = self.serve(apps.wsgi(client, options, self.runs))
        with self.assertLogs("fluxgate", "ERROR") as logs:
            for _ in range(5):
                self.assertEqual(get(server, "/x", ANN)[0], 503)
        self.assertEqual(len(logs.records), 1)
        self.assertEqual(self.runs.count, 0)

    def test_headers_that_do_not_fit_are_refused(self):
        client = Client("http://127.0.0.1:1", deadline=0.1, on_error="allow")
        server = self.serve(apps.asgi(client, {"rule_set": "api-limits"}, self.runs))
        many = [(f"X-{at}", "x" * 3000) for at in range(15)]
        status, headers, body = get(server, "/x", ANN, *many)
        self.assertEqual((status, headers.get("retry-after")), (429, None))
        self.assertIsNone(json.loads(body)["retry_after_ms"])
        self.assertEqual(self.runs.count, 0)

    def test_without_a_rule_set_everything_passes(self):
        server = self.serve(apps.wsgi(self.fg, {}, self.runs))
        with self.assertLogs("fluxgate", "WARNING") as logs:
            for _ in range(3):
                self.assertEqual(get(server, "/x", ANN)[0], 200)
        self.assertEqual(len(logs.records), 1)


class Stacked(WithService):
    def test_two_limits_are_both_reported(self):
        from fluxgate.asgi import RateLimitMiddleware as Asgi
        from fluxgate.wsgi import RateLimitMiddleware as Wsgi

        asgi = Asgi(apps.asgi_app(self.runs), client=self.fg, rule_set="api-limits")
        asgi = Asgi(asgi, client=self.fg, rule_set="costs")
        wsgi = Wsgi(apps.wsgi_app(self.runs), client=self.fg, rule_set="api-limits")
        wsgi = Wsgi(wsgi, client=self.fg, rule_set="costs")
        for user, server in [("a", apps.Uvicorn(asgi)), ("w", apps.Waitress(wsgi))]:
            self.serve(server)
            status, headers, _ = get(server, "/x", ("X-User-Id", user))
            self.assertEqual(status, 200)
            self.assertEqual(headers["x-ratelimit-remaining"], "1")
            self.assertEqual(headers["x-ratelimit-limit"], "2")
            policies = '"per-user/burst";q=2;w=60,"units/day";q=10;w=86400'
            self.assertEqual(headers["ratelimit-policy"], policies)
            get(server, "/x", ("X-User-Id", user))
            status, headers, body = get(server, "/x", ("X-User-Id", user))
            self.assertEqual((status, headers["x-ratelimit-remaining"]), (429, "0"))
            self.assertIn("retry-after", headers)
            self.assertEqual(json.loads(body)["violated-policies"], ["per-user/burst"])


class Starlette(WithService):
    def test_the_snippet_of_the_guide(self):
        from starlette.applications import Starlette
        from starlette.responses import PlainTextResponse
        from starlette.routing import Route

        from fluxgate.asgi import RateLimitMiddleware, header

        app = Starlette(routes=[Route("/x", lambda request: PlainTextResponse("ok"))])
        app.add_middleware(
            RateLimitMiddleware,
            client=self.fg,
            rule_set="api-limits",
            user=lambda scope: header(scope, "x-user-id"),
        )
        server = self.serve(apps.Uvicorn(app))
        statuses = [get(server, "/x", ANN)[0] for _ in range(3)]
        self.assertEqual(statuses, [200, 200, 429])

    def test_a_websocket_is_limited_and_holds_its_slot(self):
        from websockets.exceptions import InvalidStatus
        from websockets.sync.client import connect

        from fluxgate.asgi import RateLimitMiddleware

        async def app(scope, receive, send):
            if scope["type"] == "lifespan":
                return await apps.asgi_app(self.runs)(scope, receive, send)
            await receive()
            await send({"type": "websocket.accept"})
            while (message := await receive())["type"] != "websocket.disconnect":
                await send({"type": "websocket.send", "text": message["text"]})

        limited = RateLimitMiddleware(app, client=self.fg, rule_set="slots")
        server = self.serve(apps.Uvicorn(limited))
        url = f"ws://{HOST}:{server.port}/x"
        with connect(url, additional_headers={"X-User-Id": "ann"}) as first:
            self.assertEqual(first.response.headers["X-RateLimit-Limit"], "1")
            first.send("hello")
            self.assertEqual(first.recv(), "hello")
            time.sleep(1.5)
            with self.assertRaises(InvalidStatus) as raised:
                connect(url, additional_headers={"X-User-Id": "ann"})
            self.assertEqual(raised.exception.response.status_code, 429)
            self.assertIn(b"quota-exceeded", raised.exception.response.body)
        wait_until(lambda: self.service.metric("fluxgate_slots_held") == 0)


class FastApi(WithService):
    def test_a_route_a_router_and_handlers_of_the_app(self):
        from fastapi import APIRouter, Depends, FastAPI, HTTPException
        from fastapi.responses import JSONResponse

        from fluxgate import Decision
        from fluxgate.fastapi import RateLimit

        app = FastAPI()
        by_key = RateLimit(self.fg, "api-limits", user=lambda request: request.query_params["u"])

        @app.get("/one")
        async def one(decision: Decision = Depends(by_key)):  # noqa: B008
            return {"remaining": decision.remaining}

        router = APIRouter(dependencies=[Depends(RateLimit(self.fg, "per-key"))])

        @router.get("/two")
        def two():
            return "two"

        @app.exception_handler(HTTPException)
        async def handle(_, error):
            return JSONResponse({"own": True}, error.status_code)

        @app.get("/three")
        def three():
            raise HTTPException(418)

        app.include_router(router)
        server = self.serve(apps.Uvicorn(app))
        status, headers, body = get(server, "/one?u=ann")
        self.assertEqual((status, json.loads(body)), (200, {"remaining": 1}))
        self.assertEqual(headers["x-ratelimit-remaining"], "1")
        get(server, "/one?u=ann")
        status, headers, body = get(server, "/one?u=ann")
        self.assertEqual((status, headers["content-type"]), (429, "application/problem+json"))
        self.assertEqual(json.loads(body)["violated-policies"], ["per-user/burst"])
        self.assertEqual(get(server, "/two")[0], 200)
        self.assertEqual(get(server, "/two")[0], 429)
        self.assertEqual(json.loads(get(server, "/three")[2]), {"own": True})

    def test_a_body_that_is_read_while_a_request_waits_reaches_the_handler(self):
        from fastapi import Depends, FastAPI, Request

        from fluxgate.asgi import RateLimitMiddleware
        from fluxgate.fastapi import RateLimit

        whole = FastAPI()
        part = FastAPI()

        @whole.post("/x")
        async def in_whole(request: Request):
            return len(await request.body())

        @part.post("/x", dependencies=[Depends(RateLimit(self.fg, "waits"))])
        async def in_part(request: Request):
            return len(await request.body())

        whole.add_middleware(RateLimitMiddleware, client=self.fg, rule_set="waits")
        for name, app in [("whole", whole), ("part", part)]:
            server = self.serve(apps.Uvicorn(app))
            for size in (0, 10, 300_000):
                begin = time.monotonic()
                self.fg.check("waits", user=f"{name}-{size}")
                request = urllib.request.Request(
                    f"http://{HOST}:{server.port}/x",
                    b"x" * size,
                    {"X-User-Id": f"{name}-{size}"},
                )
                with urllib.request.urlopen(request, timeout=30) as response:
                    self.assertEqual(json.loads(response.read()), size)
                # One request in half a second.
                self.assertGreater(time.monotonic() - begin, 0.49)


class FlaskExtension(WithService):
    def test_settings_of_the_app_the_session_and_views(self):
        from flask import Flask, session

        from fluxgate.flask import RateLimit

        app = Flask(__name__)
        app.secret_key = "secret"
        app.config.update(FLUXGATE_URL=self.service.url, FLUXGATE_RULE_SET="api-limits")
        app.config.update(FLUXGATE_ON_ERROR="raise", FLUXGATE_DEADLINE=10)
        limits = RateLimit(user=lambda request: session.get("user"))

        @app.get("/login")
        def login():
            session["user"] = "ann"
            return "ok"

        @app.get("/exports")
        @limits.limit("per-key", api_key=lambda request: request.args.get("key"))
        def exports():
            return "export"

        limits.init_app(app)
        self.addCleanup(limits.client.close)
        browser = app.test_client()
        self.assertEqual(browser.get("/login").status_code, 200)
        response = browser.get("/exports?key=1")
        self.assertEqual(response.status_code, 200)
        self.assertEqual(response.headers["X-RateLimit-Remaining"], "0")
        self.assertIn('"per-user/burst"', response.headers["RateLimit-Policy"])
        self.assertIn('"per-key/burst"', response.headers["RateLimit-Policy"])
        response = browser.get("/exports?key=1")
        self.assertEqual(
            (response.status_code, response.mimetype), (429, "application/problem+json")
        )
        self.assertEqual(response.get_json()["violated-policies"], ["per-key/burst"])
        response = browser.get("/login")
        self.assertEqual(response.get_json()["violated-policies"], ["per-user/burst"])

    def test_a_handler_that_fails_in_a_test_releases_its_slot(self):
        from flask import Flask

        from fluxgate.flask import RateLimit

        app = Flask(__name__)
        app.testing = True
        RateLimit(app, client=self.fg, rule_set="late-slots")

        @app.get("/")
        def fail():
            raise ZeroDivisionError

        for _ in range(3):
            with self.assertRaises(ZeroDivisionError):
                app.test_client().get("/", headers={"X-User-Id": "ann"})
        self.assertEqual(self.service.metric("fluxgate_slots_held"), 0)


class Waits(WithService):
    def test_a_permit_is_given_back(self):
        options = {"rule_set": "waits", "max_concurrent_waits": 1}
        for make in (apps.asgi, apps.wsgi):
            server = self.serve(make(self.fg, options, self.runs))
            user = ("X-User-Id", make.__name__)
            for _ in range(4):
                self.assertEqual(get(server, "/x", user)[0], 200)

    def test_the_app_is_not_run_for_a_client_that_left(self):
        server = self.serve(apps.asgi(self.fg, {"rule_set": "long-waits"}, self.runs))
        begin = time.monotonic()

        def turns():
            """Returns how many requests have a turn. There is one turn every two seconds."""
            delay = self.fg.peek("long-waits", user="ann").delay
            return round((delay + time.monotonic() - begin) / 2)

        get(server, "/x", ANN)
        waiting = RawRequest(server.port, "GET", "/x", [ANN])
        wait_until(lambda: turns() == 2)
        waiting.abort()
        wait_until(lambda: turns() == 1)
        time.sleep(max(0.0, begin + 2.5 - time.monotonic()))
        self.assertEqual(self.runs.count, 1)

    def test_a_service_that_fails_while_a_request_waits(self):
        proxy = FaultProxy(self.service.port)
        self.addCleanup(proxy.close)
        client = Client(proxy.url, deadline=10)
        self.addCleanup(client.close)
        options = {"rule_set": "long-waits", "max_concurrent_waits": 0}
        server = self.serve(apps.wsgi(client, options, self.runs))
        get(server, "/x", ANN)
        # It answers the first call only: the refusal is made from that.
        answers = iter(["up"])
        original = client._check

        def check(body):
            decision = original(body)
            proxy.set_mode(next(answers, "down"))
            if decision.delay:
                proxy.set_mode("down")
            return decision

        client._check = check
        status, headers, body = get(server, "/x", ANN)
        self.assertEqual(status, 429)
        self.assertIn(headers["retry-after"], ("1", "2"))
        self.assertEqual(json.loads(body)["violated-policies"], ["queue/burst"])


class Errors(unittest.TestCase):
    def test_the_cause_of_a_failure_is_kept(self):
        with Client("http://127.0.0.1:1", on_error="raise", deadline=1) as fg:
            with self.assertRaises(fluxgate.Unavailable) as raised:
                fg.check("set")
            self.assertIsInstance(raised.exception.__cause__, ConnectionRefusedError)
            for _ in range(3):
                with self.assertRaises(fluxgate.Unavailable) as raised:
                    fg.check("set")
            self.assertIn("not asked for a moment", str(raised.exception))
            self.assertIn("http://127.0.0.1:1 ", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
