// A service that fails under load: 200 requests a second through the middleware.

import assert from "node:assert/strict";
import http from "node:http";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import express from "express";

import { Client } from "fluxgate";
import { rateLimit } from "fluxgate/express";

import { FaultProxy } from "./support/fault_proxy.js";
import { HOST } from "./support/host.js";
import { Service } from "./support/service.js";
import { Delay, elapsed } from "./support/stalls.js";
import { until } from "./support/until.js";

const CONFIG = `
listen: { api: "\${API}" }
rule_sets:
  api:
    rules:
      - { id: rate, scope: global, bands: [ { capacity: 1000000, window: 1s } ] }
      - { id: running, scope: global, algorithm: concurrency, hold: 2s, bands: [ { capacity: 100000 } ] }
`;
const SLOTS_HELD = 'fluxgate_slots_held{rule_set="api",rule="running"}';

const DEADLINE = 100;
/** What the server may add to the deadline. */
const SLACK = 100;
/** For how long a service that has failed is not asked. */
const PAUSE = 500;
const PER_SECOND = 200;

/** Sends requests at a steady rate. Each is recorded with its time and its result. */
class Load {
  results = [];
  #port;
  #agent = new http.Agent({ keepAlive: true });
  #pending = [];
  #isOver = false;
  #running;

  constructor(port) {
    this.#port = port;
    this.#running = this.#run();
  }

  async #run() {
    const began = performance.now();
    for (let sent = 0; !this.#isOver; sent += 1) {
      const due = began + (sent * 1_000) / PER_SECOND;
      await sleep(Math.max(0, due - performance.now()));
      this.#pending.push(this.#send(sent));
    }
  }

  #send(id) {
    const at = performance.now();
    return new Promise((resolve, reject) => {
      const options = { port: this.#port, agent: this.#agent, headers: { "X-Test-Id": id } };
      const request = http.get({ host: HOST, ...options }, (response) => {
        response.resume();
        response.on("end", () => {
          const isLimited = response.headers["x-ratelimit-limit"] !== undefined;
          const took = elapsed(at);
          this.results.push({ id, at, took, status: response.statusCode, isLimited });
          resolve();
        });
      });
      request.on("error", reject);
    });
  }

  /** Returns whether a request since then was decided by the service, or was not. */
  has(isLimited, since) {
    return this.results.some((it) => it.isLimited === isLimited && it.at > since);
  }

  async stop() {
    this.#isOver = true;
    await this.#running;
    await Promise.all(this.#pending);
    this.#agent.destroy();
  }
}

/** Returns the resources of this process that a client could leak. */
function resources() {
  const counts = { Timeout: 0, TCPSocketWrap: 0 };
  for (const name of process.getActiveResourcesInfo()) if (name in counts) counts[name] += 1;
  return counts;
}

async function withFault(fault, onError) {
  const service = await Service.start(CONFIG);
  const proxy = await FaultProxy.start(service.port);
  try {
    await runLoad(fault, onError, service, proxy);
  } finally {
    await proxy.stop();
    await service.stop();
  }
}

async function runLoad(fault, onError, service, proxy) {
  const before = resources();
  const client = new Client(proxy.url, { onError, deadline: DEADLINE, onWarning: () => {} });
  const application = await startApplication(client);
  const load = new Load(application.port);
  try {
    const times = await failFor(fault, service, proxy, load);
    await load.stop();
    check(load, application.runs, times, onError);
    // Everything that was taken is given back.
    await service.reaches(SLOTS_HELD, 0);
    assert(proxy.connections <= 64, `${proxy.connections} connections`);
  } finally {
    await load.stop();
    await client.close();
    await application.stop();
  }
  await until("connections are closed", () => proxy.connections === 0);
  await proxy.stop();
  // Timers of late answers end with their connections.
  await until("timers and sockets are gone", () => {
    const now = resources();
    return now.Timeout <= before.Timeout && now.TCPSocketWrap <= before.TCPSocketWrap;
  });
}

async function startApplication(client) {
  const app = express();
  const runs = new Map();
  app.use(rateLimit({ client, ruleSet: "api" }));
  app.use((request, response) => {
    const id = request.get("x-test-id");
    runs.set(id, (runs.get(id) ?? 0) + 1);
    response.send("ok");
  });
  // The framework's answer to an error, without its log.
  app.use((error, request, response, next) => response.sendStatus(500));
  const server = app.listen(0, HOST);
  await new Promise((resolve) => server.once("listening", resolve));
  const stop = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { port: server.address().port, runs, stop };
}

/** Lets the service fail for a while. Returns when it was up again, and what delayed its return. */
async function failFor(fault, service, proxy, load) {
  await until("requests are decided", () => load.results.length > 50 && load.has(true, 0));
  const failsFrom = performance.now();
  if (fault === "kill") await service.kill();
  else await proxy.set(fault);
  // A restart may be over before a request meets it.
  if (fault !== "restart") {
    await until("requests are not decided", () => load.has(false, failsFrom));
    await sleep(1_300);
  }
  if (fault === "kill") await service.run();
  else await proxy.set("up");
  const upAgain = performance.now();
  const delay = new Delay(service);
  await until("requests are decided again", () => load.has(true, upAgain));
  const delayed = delay.total();
  await sleep(500);
  return { upAgain, delayed };
}

function check({ results }, runs, { upAgain, delayed }, onError) {
  const slowest = Math.max(...results.map(({ took }) => took));
  assert(slowest < DEADLINE + SLACK, `a request took ${slowest} ms`);
  for (const { id, status } of results) {
    assert.equal(runs.get(String(id)) ?? 0, status === 200 ? 1 : 0, `request ${id}: ${status}`);
  }
  const unlimited = results.filter(({ isLimited }) => !isLimited);
  const failed = { allow: 200, deny: 503, raise: 500 }[onError];
  assert(unlimited.every(({ status }) => status === failed));
  const limited = results.filter(({ isLimited }) => isLimited).map(({ at }) => at);
  const recovered = Math.min(...limited.filter((at) => at > upAgain)) - upAgain;
  // A call that the machine makes late fails, and costs another pause.
  const lateCalls = Math.floor(delayed / (DEADLINE / 2));
  const most = 1_000 + delayed + lateCalls * (DEADLINE + PAUSE);
  assert(recovered < most, `recovers after ${recovered} ms; the machine was late by ${delayed} ms`);
}

describe("200 requests a second", () => {
  for (const fault of ["down", "slow", "reset", "garbage", "cut", "swallow", "restart", "kill"]) {
    test(`service ${fault}`, () => withFault(fault, "allow"));
  }
  test("service down, fails closed", () => withFault("down", "deny"));
  test("service slow, raises", () => withFault("slow", "raise"));
});
