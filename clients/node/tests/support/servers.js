// A server of each framework, with the handler that clients/README.md describes.

import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";

import "reflect-metadata";
import * as nest from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { FastifyAdapter } from "@nestjs/platform-fastify";
import express5 from "express";
import express4 from "express4";
import fastify from "fastify";
import Koa from "koa";

import { rateLimit as expressLimit } from "fluxgate/express";
import { rateLimit as fastifyLimit } from "fluxgate/fastify";
import { rateLimit as koaLimit } from "fluxgate/koa";
import { rateLimit as nestLimit } from "fluxgate/nest";

import { HOST } from "./host.js";

const LISTEN = { host: HOST, port: 0 };

/** Start a server with the middleware. `onRun(headers)` is called whenever the handler runs. */
export const SERVERS = {
  express: (options, onRun) => startExpress(express5, expressLimit(options), onRun),
  "express 4": (options, onRun) => startExpress(express4, expressLimit(options), onRun),
  fastify: (options, onRun) => startFastify(fastifyLimit(options), onRun),
  koa: (options, onRun) => startKoa(koaLimit(options), onRun),
  nest: (options, onRun) => startNest(undefined, nestLimit(options), onRun),
  "nest on fastify": (options, onRun) => startNest(new FastifyAdapter(), nestLimit(options), onRun),
};

/** Start a server that awaits a call before the handler runs, for comparison. */
export const AWAITING_SERVERS = {
  express: (call, onRun) => startExpress(express5, (req, res, next) => call().then(() => next()), onRun),
  fastify: (call, onRun) => startFastify(hookPlugin(async () => void (await call())), onRun),
  koa: (call, onRun) => startKoa((context, next) => call().then(next), onRun),
  nest: (call, onRun) => startNest(undefined, { canActivate: () => call().then(() => true) }, onRun),
};

/** Returns a plugin that adds a hook to the instance that registers it. */
function hookPlugin(hook) {
  const plugin = async (instance) => void instance.addHook("onRequest", hook);
  plugin[Symbol.for("skip-override")] = true;
  return plugin;
}

/** Returns what the handler answers: a text or a stream. */
function answer(url, headers, onRun) {
  onRun(headers);
  const { pathname, searchParams } = new URL(url, "http://test/");
  if (url.startsWith("/stream")) return Readable.from(lines(Number(searchParams.get("n") ?? 5)));
  if (pathname === "/break") return Readable.from(broken());
  if (pathname === "/fail") throw new Error("the handler fails");
  return "ok";
}

async function* lines(count) {
  for (let line = 0; line < count; line += 1) {
    yield "chunk\n";
    await sleep(100);
  }
}

async function* broken() {
  yield "chunk\n";
  await sleep(20);
  throw new Error("the body fails");
}

/** Pipes a stream into a response. */
function pipe(body, response) {
  if (typeof body === "string") return response.end(body);
  response.on("close", () => body.destroy());
  body.on("error", () => response.destroy());
  return body.pipe(response);
}

async function startExpress(express, limit, onRun) {
  const app = express();
  // The default handler of errors prints them.
  app.set("env", "test");
  app.use(limit);
  app.use((request, response) => {
    pipe(answer(request.originalUrl, request.headers, onRun), response);
  });
  const server = app.listen(LISTEN.port, LISTEN.host);
  await new Promise((resolve) => server.once("listening", resolve));
  return serverOf(server);
}

async function startFastify(limit, onRun) {
  const app = fastify({ forceCloseConnections: true });
  app.register(limit);
  const handler = async (request, reply) => {
    const body = answer(request.raw.url, request.headers, onRun);
    return reply.type("text/plain").send(body);
  };
  app.all("/*", handler);
  app.setNotFoundHandler(handler);
  await app.listen(LISTEN);
  return { port: app.server.address().port, stop: () => app.close() };
}

async function startKoa(limit, onRun) {
  const app = new Koa();
  app.silent = true;
  app.use(limit);
  app.use((context) => {
    context.type = "text";
    context.body = answer(context.originalUrl, context.headers, onRun);
  });
  const server = app.listen(LISTEN.port, LISTEN.host);
  await new Promise((resolve) => server.once("listening", resolve));
  return serverOf(server);
}

async function startNest(adapter, limit, onRun) {
  class Anything {
    handle(request, response) {
      const body = answer(request.originalUrl ?? request.url, request.headers, onRun);
      if (adapter === undefined) pipe(body, response);
      else response.type("text/plain").send(body);
    }
  }
  nest.Controller()(Anything);
  const descriptor = Object.getOwnPropertyDescriptor(Anything.prototype, "handle");
  nest.All(adapter === undefined ? "*path" : "*")(Anything.prototype, "handle", descriptor);
  nest.Req()(Anything.prototype, "handle", 0);
  nest.Res()(Anything.prototype, "handle", 1);
  class App {}
  nest.Module({ controllers: [Anything] })(App);
  const quiet = { logger: false, forceCloseConnections: true };
  const app = await (adapter === undefined
    ? NestFactory.create(App, quiet)
    : NestFactory.create(App, adapter, quiet));
  app.useGlobalGuards(limit);
  await app.listen(LISTEN.port, LISTEN.host);
  return { port: app.getHttpServer().address().port, stop: () => app.close() };
}

function serverOf(server) {
  const stop = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { port: server.address().port, stop };
}
