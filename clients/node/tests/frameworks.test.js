import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import "reflect-metadata";
import * as nest from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import express from "express";
import fastify from "fastify";
import Koa from "koa";

import { Client, InvalidRequest } from "fluxgate";
import * as forExpress from "fluxgate/express";
import * as forFastify from "fluxgate/fastify";
import * as forKoa from "fluxgate/koa";
import * as forNest from "fluxgate/nest";

import { HOST } from "./support/host.js";
import { start } from "./support/raw_http.js";
import { Service } from "./support/service.js";

const CONFIG = `
listen: { api: "\${API}" }
rule_sets:
  api-limits:
    rules:
      - { id: per-user, scope: per_user, bands: [2/h] }
  paths:
    rules:
      - { id: full, match: { path: ["/api/x"] }, scope: per_user, bands: [1/h] }
  tenants:
    rules:
      - { id: per-tenant, key: ["attr:tenant"], bands: [10/h] }
  addresses:
    rules:
      - { id: per-ip, scope: per_ip, bands: [1/h] }
  exports:
    rules:
      - { id: at-once, scope: per_user, algorithm: concurrency, hold: 5s, bands: [ { capacity: 1 } ] }
      - { id: rate, scope: per_user, bands: [3/h] }
`;

const SLOTS_HELD = 'fluxgate_slots_held{rule_set="exports",rule="at-once"}';

describe("in applications", () => {
  let service;
  let client;
  const warnings = [];
  before(async () => {
    service = await Service.start(CONFIG);
    const onWarning = (message) => warnings.push(message);
    client = new Client(service.url, { deadline: 10_000, onWarning });
  });
  after(async () => {
    await client.close();
    await service.stop();
  });

  /** Runs a test with an Express application that listens. */
  async function listening(app, run) {
    const server = app.listen(0, HOST);
    await new Promise((resolve) => server.once("listening", resolve));
    try {
      return await run((path, headers = {}) =>
        start(server.address().port, { path, headers: Object.entries(headers) }).finish(),
      );
    } finally {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  }

  test("Express: the user by a function", async () => {
    const { rateLimit } = forExpress;
    const app = express();
    app.use(rateLimit({ client, ruleSet: "api-limits", user: (req) => req.get("x-account") }));
    app.get("/", (req, res) => res.send(String(forExpress.resultOf(req).decision.remaining)));
    await listening(app, async (get) => {
      const answers = [];
      for (const account of ["e1", "e1", "e1", "e2"]) {
        const { status, text } = await get("/", { "X-Account": account });
        answers.push(status === 200 ? text : status);
      }
      assert.deepEqual(answers, ["1", "0", 429, "1"]);
    });
  });

  test("Express: rules see the whole path in a router that is mounted", async () => {
    const app = express();
    const router = express.Router();
    router.use(forExpress.rateLimit({ client, ruleSet: "paths" }));
    router.use((req, res) => res.send("ok"));
    app.use("/api", router);
    await listening(app, async (get) => {
      assert.equal((await get("/api/x", { "X-User-Id": "mount" })).status, 200);
      assert.equal((await get("/api/x", { "X-User-Id": "mount" })).status, 429);
      assert.equal((await get("/api/y", { "X-User-Id": "mount" })).status, 200);
    });
  });

  test("Express: several limits for one request", async () => {
    const app = express();
    app.use(forExpress.rateLimit({ client, ruleSet: "api-limits" }));
    const attributes = () => ({ tenant: "t1", absent: undefined });
    app.use(forExpress.rateLimit({ client, ruleSet: "tenants", attributes, cost: 4 }));
    app.use((req, res) => res.send("ok"));
    await listening(app, async (get) => {
      const { headers } = await get("/", { "X-User-Id": "two" });
      assert.equal(headers["ratelimit-policy"], '"per-user/b0";q=2;w=3600,"per-tenant/b0";q=10;w=3600');
      assert.match(headers.ratelimit, /^"per-user\/b0";r=1;t=\d+,"per-tenant\/b0";r=6;t=\d+$/);
      assert.equal(headers["x-ratelimit-remaining"], "1");
      await get("/", { "X-User-Id": "two" });
      const refused = await get("/", { "X-User-Id": "three" });
      assert.equal(refused.status, 429);
      assert.equal(refused.headers["x-ratelimit-limit"], "10");
      assert.match(refused.headers["retry-after"], /^\d+$/);
    });
  });

  test("Express: a handler settles the hold of its request", async () => {
    const app = express();
    app.use(forExpress.rateLimit({ client, ruleSet: "exports" }));
    app.use(async (req, res) => {
      const { hold } = forExpress.resultOf(req);
      res.json(await hold.settle(2));
    });
    await listening(app, async (get) => {
      const { text } = await get("/", { "X-User-Id": "settle" });
      assert.deepEqual(JSON.parse(text), { charged: 2, uncharged: 0 });
    });
  });

  test("Express: slots are freed when a response ends, units stay charged", async () => {
    const app = express();
    app.use(forExpress.rateLimit({ client, ruleSet: "exports" }));
    app.use((req, res) => res.send("ok"));
    await listening(app, async (get) => {
      for (const expected of [200, 200, 200, 429]) {
        const { status, headers } = await get("/", { "X-User-Id": "slots" });
        assert.equal(status, expected, JSON.stringify(headers));
        await service.reaches(SLOTS_HELD, 0);
      }
    });
  });

  test("Express: a check that the service refuses is a failure of the limiter", async () => {
    const app = express();
    app.use(forExpress.rateLimit({ client, ruleSet: "addresses", ip: () => "nowhere" }));
    app.use((req, res) => res.send("ok"));
    warnings.length = 0;
    await listening(app, async (get) => {
      for (let at = 0; at < 3; at += 1) assert.equal((await get("/")).status, 200);
    });
    assert.equal(warnings.length, 1, warnings.join("\n"));
    const options = { deadline: 10_000, onError: "raise", onWarning: () => {} };
    const raising = new Client(service.url, options);
    const failing = express();
    failing.use(forExpress.rateLimit({ client: raising, ruleSet: "addresses", ip: () => "nowhere" }));
    let seen;
    failing.use((error, req, res, next) => {
      seen = error;
      res.sendStatus(500);
    });
    await listening(failing, async (get) => assert.equal((await get("/")).status, 500));
    assert(seen.cause instanceof InvalidRequest);
    await raising.close();
  });

  test("Express: a request that is too large to be sent is refused", async () => {
    const app = express();
    app.use(forExpress.rateLimit({ client, ruleSet: "api-limits", user: () => "x".repeat(70_000) }));
    app.use((req, res) => res.send("ok"));
    await listening(app, async (get) => {
      const { status, headers, text } = await get("/");
      assert.deepEqual([status, headers["retry-after"]], [429, undefined]);
      assert.equal(JSON.parse(text).title, "This request can never pass the limit");
    });
  });

  test("options that are wrong", () => {
    for (const options of [
      { client, ruleSet: "a", rules: "b" },
      { ruleSet: "a" },
      { client, ruleSet: "a", include: ["api"] },
      { client, ruleSet: "a", trustedProxies: ["nowhere"] },
    ]) {
      assert.throws(() => forExpress.rateLimit(options), TypeError);
    }
  });

  test("without a rule set everything passes, and a warning says so", async () => {
    const app = express();
    app.use(forExpress.rateLimit({ client }));
    app.use((req, res) => res.send("ok"));
    warnings.length = 0;
    await listening(app, async (get) => {
      for (let at = 0; at < 3; at += 1) assert.equal((await get("/")).status, 200);
    });
    assert.deepEqual(warnings, ["a middleware of FluxGate has no rule set: it limits nothing"]);
  });

  test("Koa: limit headers are on the answers to errors, too", async () => {
    const app = new Koa();
    app.silent = true;
    const user = (context) => context.get("x-account");
    app.use(forKoa.rateLimit({ client, ruleSet: "api-limits", user }));
    app.use((context) => {
      assert.equal(forKoa.resultOf(context).decision.remaining, 1);
      context.throw(418);
    });
    await listening(app, async (get) => {
      const { status, headers } = await get("/", { "X-Account": "koa" });
      assert.deepEqual([status, headers["x-ratelimit-remaining"]], [418, "1"]);
    });
  });

  test("Fastify: as a plugin, and as a hook of one route", async () => {
    const options = (name) => ({ client, ruleSet: "api-limits", user: () => name });
    const app = fastify();
    app.register(forFastify.rateLimit, options("f1"));
    app.get("/plugin", async (request) => forFastify.resultOf(request).decision.remaining);
    const single = fastify();
    single.get("/hook", { onRequest: forFastify.rateLimit(options("f2")) }, async () => "ok");
    single.get("/free", async () => "ok");
    const statuses = async (server, url) => {
      const answers = [];
      for (let at = 0; at < 3; at += 1) answers.push((await server.inject(url)).statusCode);
      return answers;
    };
    assert.deepEqual(await statuses(app, "/plugin"), [200, 200, 429]);
    assert.equal((await app.inject("/unknown")).statusCode, 429);
    assert.deepEqual(await statuses(single, "/hook"), [200, 200, 429]);
    assert.deepEqual(await statuses(single, "/free"), [200, 200, 200]);
    await Promise.all([app.close(), single.close()]);
  });

  test("Fastify: a slot is freed after an injected request", async () => {
    const app = fastify();
    app.register(forFastify.rateLimit({ client, ruleSet: "exports" }));
    app.get("/", async () => "ok");
    const headers = { "x-user-id": "inject" };
    for (let at = 0; at < 3; at += 1) {
      assert.equal((await app.inject({ url: "/", headers })).statusCode, 200);
      await service.reaches(SLOTS_HELD, 0);
    }
    await app.close();
  });

  test("NestJS: a guard of one route, and a filter of the application", async () => {
    class Routes {
      limited() {
        return "ok";
      }
      free() {
        return "ok";
      }
    }
    const decorate = (name, ...decorators) => {
      const descriptor = Object.getOwnPropertyDescriptor(Routes.prototype, name);
      for (const decorator of decorators) decorator(Routes.prototype, name, descriptor);
    };
    nest.Controller()(Routes);
    const guard = forNest.rateLimit({ client, ruleSet: "api-limits", user: () => "nest" });
    decorate("limited", nest.Get("limited"), nest.UseGuards(guard));
    decorate("free", nest.Get("free"));
    class Shortener {
      catch(exception, host) {
        const response = host.switchToHttp().getResponse();
        const { retryAfterMs } = exception.decision;
        response.status(exception.getStatus()).json({ again: retryAfterMs > 0 });
      }
    }
    nest.Catch(forNest.RateLimitException)(Shortener);
    class App {}
    nest.Module({ controllers: [Routes] })(App);
    const app = await NestFactory.create(App, { logger: false });
    app.useGlobalFilters(new Shortener());
    await app.listen(0, HOST);
    const url = await app.getUrl();
    const statuses = [];
    for (let at = 0; at < 3; at += 1) statuses.push((await fetch(`${url}/limited`)).status);
    assert.deepEqual(statuses, [200, 200, 429]);
    assert.deepEqual(await (await fetch(`${url}/limited`)).json(), { again: true });
    assert.equal((await fetch(`${url}/free`)).headers.get("x-ratelimit-limit"), null);
    await app.close();
  });
});
