"""Serves what a framework reads of a request: `server.py FRAMEWORK PORT`.

`/login` is answered with `login`, `/x` with the method, the API key in a header and in the query,
the session cookie, and the token behind the scheme of `Authorization`.
"""

import logging
import sys

HOST = "127.0.0.1"


def text(method, header, query, cookie, authorization):
    token = (authorization or "").split(None, 1)[1:]
    is_bearer = (authorization or "").split(None, 1)[:1] and authorization.split(None, 1)[0].lower() == "bearer"
    token = token[0].split()[0] if token and is_bearer else None
    return f"method={method} header={header} query={query} cookie={cookie} bearer={token}"


def fastapi_app():
    from fastapi import FastAPI, Request
    from fastapi.responses import PlainTextResponse

    app = FastAPI()

    @app.api_route("/login", methods=["GET", "POST"])
    def login():
        return PlainTextResponse("login")

    @app.api_route("/x", methods=["GET", "POST"])
    def read(request: Request):
        parts = (request.headers.get("x-api-key"), request.query_params.get("api_key"))
        cookie = request.cookies.get("app_session")
        return PlainTextResponse(text(request.method, *parts, cookie, request.headers.get("authorization")))

    return app


def fastapi(port):
    import uvicorn

    uvicorn.run(fastapi_app(), host=HOST, port=port, log_level="error")


def hypercorn(port):
    import asyncio

    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    config = Config()
    config.bind = [f"{HOST}:{port}"]
    asyncio.run(serve(fastapi_app(), config))


def flask_app():
    from flask import Flask, request

    app = Flask("server")

    @app.route("/login", methods=["GET", "POST"], strict_slashes=False)
    def login():
        return "login"

    @app.route("/x", methods=["GET", "POST"])
    def read():
        parts = (request.headers.get("X-API-Key"), request.args.get("api_key"))
        cookie = request.cookies.get("app_session")
        return text(request.method, *parts, cookie, request.headers.get("Authorization"))

    return app


def flask(port):
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    flask_app().run(host=HOST, port=port)


def tornado(port):
    import asyncio

    from tornado.web import Application, RequestHandler

    class Login(RequestHandler):
        def get(self):
            self.write("login")

        post = get

    class Read(RequestHandler):
        def get(self):
            headers = self.request.headers
            query = self.get_query_argument("api_key", None)
            cookie = self.get_cookie("app_session")
            self.write(text(self.request.method, headers.get("X-API-Key"), query, cookie, headers.get("Authorization")))

        post = get

    async def main():
        Application([("/login/?", Login), ("/x", Read)]).listen(port, HOST)
        await asyncio.Event().wait()

    asyncio.run(main())


def aiohttp(port):
    from aiohttp import web

    async def login(request):
        return web.Response(text="login")

    async def read(request):
        headers = request.headers
        query, cookie = request.query.get("api_key"), request.cookies.get("app_session")
        return web.Response(text=text(request.method, headers.get("X-API-Key"), query, cookie, headers.get("Authorization")))

    app = web.Application()
    for method in ("GET", "POST"):
        app.router.add_route(method, "/login", login)
        app.router.add_route(method, "/x", read)
    web.run_app(app, host=HOST, port=port, print=None)


def bottle(port):
    from bottle import Bottle, request

    app = Bottle()

    @app.route("/login", method=["GET", "POST"])
    def login():
        return "login"

    @app.route("/x", method=["GET", "POST"])
    def read():
        parts = (request.get_header("X-API-Key"), request.query.get("api_key"))
        cookie = request.get_cookie("app_session")
        return text(request.method, *parts, cookie, request.get_header("Authorization"))

    app.run(host=HOST, port=port, quiet=True)


def sanic(port):
    from sanic import Sanic
    from sanic.response import text as answer

    app = Sanic("server", configure_logging=False)

    @app.route("/login", methods=["GET", "POST"])
    async def login(request):
        return answer("login")

    @app.route("/x", methods=["GET", "POST"])
    async def read(request):
        headers = request.headers
        query, cookie = request.args.get("api_key"), request.cookies.get("app_session")
        return answer(text(request.method, headers.get("X-API-Key"), query, cookie, headers.get("Authorization")))

    app.run(host=HOST, port=port, single_process=True, access_log=False, motd=False)


def django_app():
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import path

    settings.configure(SECRET_KEY="x", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, MIDDLEWARE=[])
    django.setup()

    def login(request):
        return HttpResponse("login")

    def read(request):
        headers = request.headers
        query, cookie = request.GET.get("api_key"), request.COOKIES.get("app_session")
        return HttpResponse(text(request.method, headers.get("X-API-Key"), query, cookie, headers.get("Authorization")))

    globals()["urlpatterns"] = [path("login", login), path("login/", login), path("x", read)]
    return get_wsgi_application()


def django(port):
    from wsgiref.simple_server import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log_message(self, *args):
            pass

    make_server(HOST, port, django_app(), handler_class=Quiet).serve_forever()


def falcon(port):
    import falcon as library
    from waitress import serve

    class Login:
        def on_get(self, request, response):
            response.text = "login"

        on_post = on_get

    class Read:
        def on_get(self, request, response):
            query = request.get_param("api_key")
            cookie = request.cookies.get("app_session")
            header = request.get_header("X-API-Key")
            response.text = text(request.method, header, query, cookie, request.get_header("Authorization"))

        on_post = on_get

    app = library.App()
    app.req_options.strip_url_path_trailing_slash = True
    app.add_route("/login", Login())
    app.add_route("/x", Read())
    serve(app, host=HOST, port=port, _quiet=True)


def cherrypy(port):
    import cherrypy as library

    class Root:
        @library.expose
        def login(self, **_):
            return "login"

        @library.expose
        def x(self, **query):
            request = library.request
            cookie = request.cookie.get("app_session")
            cookie = cookie and cookie.value
            header, credentials = request.headers.get("X-API-Key"), request.headers.get("Authorization")
            return text(request.method, header, query.get("api_key"), cookie, credentials)

    library.config.update({"server.socket_host": HOST, "server.socket_port": port, "log.screen": False, "engine.autoreload.on": False})
    library.quickstart(Root())


def litestar(port):
    import uvicorn
    from litestar import Litestar, MediaType, Request, route

    @route("/login", http_method=["GET", "POST"], status_code=200, media_type=MediaType.TEXT)
    async def login() -> str:
        return "login"

    @route("/x", http_method=["GET", "POST"], status_code=200, media_type=MediaType.TEXT)
    async def read(request: Request) -> str:
        headers = request.headers
        query, cookie = request.query_params.get("api_key"), request.cookies.get("app_session")
        return text(request.method, headers.get("x-api-key"), query, cookie, headers.get("authorization"))

    uvicorn.run(Litestar([login, read]), host=HOST, port=port, log_level="error")


if __name__ == "__main__":
    globals()[sys.argv[1]](int(sys.argv[2]))
