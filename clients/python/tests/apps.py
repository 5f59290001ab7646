"""The server of clients/README.md with each framework, and its middleware under test."""

import asyncio
import threading
import time
from urllib.parse import parse_qs

from .service import HOST

CHUNK = b"chunk\n"


class Runs:
    """Counts how often the handler has run."""

    def __init__(self):
        self._lock = threading.Lock()
        self.count = 0

    def add(self):
        with self._lock:
            self.count += 1


def _chunks(query):
    return int(parse_qs(query).get("n", ["5"])[0])


class Server:
    """A server on a free port. `close` stops it."""

    def __init__(self, port, close):
        self.port = port
        self.close = close


class Uvicorn(Server):
    def __init__(self, app):
        import logging

        import uvicorn

        for name in ("uvicorn.error", "uvicorn.access"):
            logging.getLogger(name).disabled = True
        config = uvicorn.Config(
            app,
            host=HOST,
            port=0,
            log_config=None,
            timeout_graceful_shutdown=1,
            # By default it believes X-Forwarded-For of every client on this machine.
            proxy_headers=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        end = time.monotonic() + 60
        while not self._server.started:
            assert time.monotonic() < end and self._thread.is_alive(), "uvicorn does not start"
            time.sleep(0.002)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def close(self):
        self._server.should_exit = True
        self._thread.join(10)
        assert not self._thread.is_alive(), "uvicorn does not stop"


class Werkzeug(Server):
    def __init__(self, app):
        import logging

        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").disabled = True
        self._server = make_server(HOST, 0, app, threaded=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()
        self.port = self._server.server_port

    def close(self):
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()


class Waitress(Server):
    def __init__(self, app):
        import logging

        from waitress.server import create_server

        logging.getLogger("waitress").disabled = True
        logging.getLogger("waitress.queue").disabled = True
        self._server = create_server(
            app,
            host=HOST,
            port=0,
            threads=16,
            clear_untrusted_proxy_headers=False,
        )
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        self.port = self._server.effective_port

    def close(self):
        from waitress.wasyncore import close_all

        # Its loop ends when the map of its sockets is empty.
        self._server.trigger.pull_trigger(lambda: close_all(self._server._map, True))
        self._thread.join(10)
        assert not self._thread.is_alive(), "waitress does not stop"
        self._server.task_dispatcher.shutdown(True, 5)


def asgi_app(runs):
    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                await send({"type": message["type"] + ".complete"})
                if message["type"] == "lifespan.shutdown":
                    return
        runs.add()
        path = scope["path"]
        if path == "/fail":
            raise RuntimeError("the handler fails")
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        body = "http.response.body"
        if path == "/stream":
            gone = asyncio.ensure_future(_disconnected(receive))
            try:
                for _ in range(_chunks(scope["query_string"].decode())):
                    if gone.done():
                        return
                    await send({"type": body, "body": CHUNK, "more_body": True})
                    await asyncio.sleep(0.1)
            finally:
                gone.cancel()
            await send({"type": body, "body": b""})
        elif path == "/break":
            await send({"type": body, "body": CHUNK, "more_body": True})
            raise RuntimeError("the body fails")
        else:
            await send({"type": body, "body": b"ok"})

    return app


async def _disconnected(receive):
    while (await receive())["type"] != "http.disconnect":
        pass


def wsgi_app(runs):
    def stream(count, fails):
        for _ in range(count):
            yield CHUNK
            if fails:
                raise RuntimeError("the body fails")
            time.sleep(0.1)

    def app(environ, start_response):
        runs.add()
        path = environ["PATH_INFO"]
        if path == "/fail":
            raise RuntimeError("the handler fails")
        start_response("200 OK", [("Content-Type", "text/plain")])
        if path == "/stream":
            return stream(_chunks(environ.get("QUERY_STRING", "")), False)
        if path == "/break":
            return stream(1, True)
        return [b"ok"]

    return app


def asgi(client, options, runs):
    from fluxgate.asgi import RateLimitMiddleware

    return Uvicorn(RateLimitMiddleware(asgi_app(runs), client=client, **options))


def wsgi(client, options, runs):
    from fluxgate.wsgi import RateLimitMiddleware

    return Waitress(RateLimitMiddleware(wsgi_app(runs), client=client, **options))


METHODS = ["GET", "POST", "PUT", "DELETE"]


def fastapi(client, options, runs):
    from fastapi import Depends, FastAPI, Request
    from fastapi.responses import PlainTextResponse, StreamingResponse

    from fluxgate.fastapi import RateLimit

    limit = RateLimit(client, **options)
    app = FastAPI(openapi_url=None)

    async def stream(count, fails):
        for _ in range(count):
            yield CHUNK
            if fails:
                raise RuntimeError("the body fails")
            await asyncio.sleep(0.1)

    # FastAPI adds headers only to responses that it makes itself.
    @app.api_route(
        "/{path:path}",
        methods=METHODS,
        dependencies=[Depends(limit)],
        response_class=PlainTextResponse,
    )
    async def handle(path: str, request: Request, n: int = 5):
        runs.add()
        if path == "fail":
            raise RuntimeError("the handler fails")
        if path in ("stream", "break"):
            return StreamingResponse(stream(n, path == "break"), media_type="text/plain")
        return "ok"

    return Uvicorn(app)


def flask(client, options, runs):
    from flask import Flask, Response

    from fluxgate.flask import RateLimit

    app = Flask(__name__)
    RateLimit(app, client=client, **options)

    def stream(count, fails):
        for _ in range(count):
            yield CHUNK
            if fails:
                raise RuntimeError("the body fails")
            time.sleep(0.1)

    @app.route("/", defaults={"path": ""}, methods=METHODS)
    @app.route("/<path:path>", methods=METHODS)
    def handle(path):
        from flask import request

        runs.add()
        if path == "fail":
            raise RuntimeError("the handler fails")
        if path in ("stream", "break"):
            count = request.args.get("n", 5, type=int)
            return Response(stream(count, path == "break"), mimetype="text/plain")
        return Response("ok", mimetype="text/plain")

    app.logger.disabled = True
    app.url_map.merge_slashes = False
    return Werkzeug(app)
