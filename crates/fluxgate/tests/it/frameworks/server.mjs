// Serves what a framework reads of a request: `server.mjs FRAMEWORK PORT`. The answers are those
// of server.py.
import { createRequire } from "node:module";

// The others are installed beside Express.
const require = createRequire(process.env.FLUXGATE_EXPRESS);
const [framework, port] = process.argv.slice(2);
const host = "127.0.0.1";

const text = (method, headers, query, cookie) => {
  const [scheme, token] = (headers.authorization ?? "").split(/\s+/);
  const bearer = scheme?.toLowerCase() === "bearer" ? token : undefined;
  return `method=${method} header=${headers["x-api-key"]} query=${query} cookie=${cookie} bearer=${bearer}`;
};

const frameworks = {
  express() {
    const app = require("express")();
    app.use(require("cookie-parser")());
    app.all("/login", (_, response) => response.send("login"));
    app.all("/x", (request, response) => {
      response.send(text(request.method, request.headers, request.query.api_key, request.cookies.app_session));
    });
    app.listen(port, host);
  },
  koa() {
    const app = new (require("koa"))();
    const router = new (require("koa-router"))();
    router.all("/login", (context) => { context.body = "login"; });
    router.all("/x", (context) => {
      context.body = text(context.method, context.headers, context.query.api_key, context.cookies.get("app_session"));
    });
    app.use(router.routes()).listen(port, host);
  },
  async fastify() {
    const app = require("fastify")({ routerOptions: { ignoreTrailingSlash: true } });
    await app.register(require("@fastify/cookie"));
    app.all("/login", async () => "login");
    app.all("/x", async (request) => text(request.method, request.headers, request.query.api_key, request.cookies.app_session));
    await app.listen({ port: Number(port), host });
  },
  async hapi() {
    const server = require("@hapi/hapi").server({ port: Number(port), host, router: { stripTrailingSlash: true } });
    server.state("app_session", { strictHeader: false, ignoreErrors: true });
    server.route({ method: "*", path: "/login", handler: () => "login" });
    server.route({
      method: "*",
      path: "/x",
      handler: (request) => text(request.method.toUpperCase(), request.headers, request.query.api_key, request.state.app_session),
    });
    await server.start();
  },
};

await frameworks[framework]();
