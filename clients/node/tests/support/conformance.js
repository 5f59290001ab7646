// Runs the cases of clients/conformance.json, as clients/README.md describes them.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, Denied, HoldEnded, InvalidRequest, Unavailable } from "fluxgate";

import { FaultProxy } from "./fault_proxy.js";
import { start } from "./raw_http.js";
import { Service } from "./service.js";
import { Delay, elapsed } from "./stalls.js";
import { until } from "./until.js";

const FILE = path.join(process.env.FLUXGATE_CHECKOUT, "clients", "conformance.json");
const { configs, cases } = JSON.parse(readFileSync(FILE, "utf8"));

/** Runs all cases of a kind; `startServer` starts a server with the middleware under test. */
export function runCases(name, kind, startServer) {
  describe(`conformance: ${name}`, { concurrency: 4 }, () => {
    for (const it of cases.filter((it) => it.kind === kind)) {
      test(it.name, { timeout: 120_000 }, (context) => runCase(context, it, startServer));
    }
    test("has cases", () => assert(cases.some((it) => it.kind === kind)));
  });
}

/** Runs a case. If it fails after the machine delayed it for longer than it bears, it is skipped. */
async function runCase(context, it, startServer) {
  const measured = { delay: 0 };
  try {
    await perform(measured, it, startServer);
  } catch (error) {
    const isJudged = it.bears_ms === undefined || measured.delay <= it.bears_ms;
    if (!(error instanceof assert.AssertionError) || isJudged) throw error;
    const delay = Math.round(measured.delay);
    context.skip(`the machine delayed it for ${delay} ms, it bears ${it.bears_ms}: ${error.message}`);
  }
}

async function perform(measured, it, startServer) {
  const service = await Service.start(configs[it.config ?? "main"].join("\n"));
  const proxy = await FaultProxy.start(service.port, it.service);
  const { on_error: onError = "allow", deadline_ms: deadline = 10_000 } = it.client ?? {};
  const client = new Client(proxy.url, { onError, deadline, onWarning: () => {} });
  const run = new Run(client, service, proxy);
  let server;
  let delay;
  try {
    if (it.kind === "http") {
      server = await startServer({ client, ...optionsOf(it.middleware) }, (headers) => run.ran(headers));
      run.port = server.port;
    }
    delay = new Delay(service);
    for (const step of it.steps) {
      for (let times = step.times ?? 1; times > 0; times -= 1) await run.step(step);
    }
  } finally {
    measured.delay = delay?.total() ?? 0;
    await server?.stop();
    await client.close();
    try {
      await until("connections to the service are closed", () => proxy.connections === 0);
    } finally {
      await proxy.stop();
      await service.stop();
    }
  }
}

function optionsOf(middleware) {
  return {
    ruleSet: middleware.rule_set,
    include: middleware.include,
    exclude: middleware.exclude,
    trustedProxies: middleware.trusted_proxies,
    maxConcurrentWaits: middleware.max_concurrent_waits,
  };
}

/** The state of a case that runs. */
class Run {
  #client;
  #service;
  #proxy;
  #holds = new Map();
  #started = new Map();
  #nextId = 1;
  /** The ids of the requests for which the handler has run. */
  #runs = [];

  constructor(client, service, proxy) {
    this.#client = client;
    this.#service = service;
    this.#proxy = proxy;
  }

  ran(headers) {
    this.#runs.push(headers["x-test-id"]);
  }

  async step(step) {
    const began = performance.now();
    await this.#do(step);
    if (step.elapsed_ms === undefined) return;
    const [least, most] = step.elapsed_ms;
    const ended = performance.now();
    const [took, ran] = [ended - began, elapsed(began, ended)];
    assert(took >= least - 1 && ran <= most, `${ran} of ${took} ms: ${JSON.stringify(step)}`);
  }

  async #do(step) {
    const { expect = {} } = step;
    if (step.call !== undefined) {
      const found = await this.#call(step);
      const reason = found.error?.message;
      matches(found, expect, reason === undefined ? step.call : `${step.call} (${reason})`);
    } else if (step.start !== undefined) {
      this.#started.set(step.start, this.#send(step.request));
    } else if (step.finish !== undefined) {
      await this.#check(this.#started.get(step.finish), expect);
    } else if (step.abort !== undefined) {
      this.#started.get(step.abort).abort();
    } else if (step.request !== undefined) {
      await this.#check(this.#send(step.request), expect);
    } else if (step.service !== undefined) {
      await this.#proxy.set(step.service);
    } else if (step.sleep_ms !== undefined) {
      await sleep(step.sleep_ms);
      const { slots_held: slots } = step;
      if (slots === undefined) return;
      const areHeld = async () => (await this.#service.slotsHeld()) === slots;
      await until(`${slots} slots are held`, areHeld, 0.4);
    } else if (step.asked !== undefined) {
      matches(this.#proxy.asked, step.asked, "asked");
      this.#proxy.asked = 0;
    } else if (step.handler_runs !== undefined) {
      matches(this.#runs.length, step.handler_runs, "handler_runs");
    } else {
      assert.fail(`unknown step ${JSON.stringify(step)}`);
    }
  }

  #send(request) {
    const id = String(this.#nextId++);
    const headers = [...(request.headers ?? []), ["X-Test-Id", id]];
    return { id, ...start(this.port, { ...request, headers }) };
  }

  async #check({ id, finish }, expect) {
    const { status, headers, text } = await finish();
    const found = { status, headers, text, handler_ran: this.#runs.includes(id) };
    if (expect.body !== undefined) found.body = JSON.parse(text);
    matches(found, expect, "response");
  }

  async #call(step) {
    try {
      return await this.#callNow(step);
    } catch (error) {
      if (error instanceof Denied) return { error: "denied", decision: plain(error.decision) };
      if (error instanceof HoldEnded) return { error: "ended" };
      if (error instanceof Unavailable) return { error: "unavailable" };
      if (error instanceof InvalidRequest) return { error: "invalid", status: error.problem.status };
      if (error.name === "AbortError") return { error: "interrupted" };
      throw error;
    }
  }

  async #callNow({ call, args, as, interrupt_after_ms: interrupt }) {
    const client = this.#client;
    const { rule_set: ruleSet, hold, hold_ms, max_wait_ms, checks, ...request } = args;
    const held = this.#holds.get(hold);
    switch (call) {
      case "check":
      case "peek":
        return plain(await client[call](ruleSet, camel(request)));
      case "wait":
        return plain(
          await client.wait(ruleSet, camel(request), {
            maxWait: max_wait_ms,
            signal: interrupt === undefined ? undefined : abortAfter(interrupt),
          }),
        );
      case "batch":
        return { decisions: (await client.batch(checks.map(camel))).map(plain) };
      case "consume":
        return plain(await client.consume(camel(request)));
      case "hold": {
        const options = hold_ms === undefined ? {} : { holdFor: hold_ms };
        const taken = await client.hold(ruleSet, camel(request), options);
        this.#holds.set(as, taken);
        return plain(taken.decision);
      }
      case "settle":
        return held.settle(request);
      case "renew":
        return { renewed: await held.renew() };
      case "release":
        return { released: await held.release() };
      case "leave":
        await held[Symbol.asyncDispose]();
        return {};
      default:
        return assert.fail(`unknown call ${call}`);
    }
  }
}

function abortAfter(milliseconds) {
  const controller = new AbortController();
  setTimeout(() => controller.abort(), milliseconds);
  return controller.signal;
}

/** Returns the arguments under the names of this client. */
function camel(args) {
  const rename = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(args).map(([name, value]) => [rename(name), value]));
}

/** Returns a decision under the names of the service. */
function plain(decision) {
  const { retryAfterMs, resetAfterMs, delayMs, ...others } = decision;
  return {
    ...others,
    retry_after_ms: retryAfterMs,
    reset_after_ms: resetAfterMs,
    delay_ms: delayMs,
  };
}

/** Compares a value with an expectation. */
function matches(found, expected, place) {
  if (expected === null) {
    assert(found === null || found === undefined, `${place}: ${JSON.stringify(found)}`);
  } else if (Array.isArray(expected)) {
    assert.equal(found?.length, expected.length, `${place}: ${JSON.stringify(found)}`);
    expected.forEach((it, at) => matches(found[at], it, `${place}[${at}]`));
  } else if (expected.regex !== undefined) {
    assert.match(String(found), new RegExp(expected.regex), place);
  } else if (expected.between !== undefined) {
    const [least, most] = expected.between;
    assert(found >= least && found <= most, `${place}: ${found}, expected ${least} to ${most}`);
  } else if (typeof expected === "object") {
    const isHeaders = place.endsWith("headers");
    for (const [name, value] of Object.entries(expected)) {
      matches(found[isHeaders ? name.toLowerCase() : name], value, `${place}.${name}`);
    }
  } else {
    assert.deepEqual(found, expected, place);
  }
}
