import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, Decision, Denied, InvalidRequest, Unavailable } from "fluxgate";

import { FaultProxy } from "./support/fault_proxy.js";
import { HOST } from "./support/host.js";
import { Service } from "./support/service.js";
import { bearing } from "./support/stalls.js";
import { until } from "./support/until.js";

const CONFIG = `
listen: { api: "\${API}" }
rule_sets:
  api:
    rules:
      - { id: per-user, scope: per_user, bands: [2/h] }
  slots:
    rules:
      - { id: running, scope: per_user, algorithm: concurrency, hold: 1s, bands: [ { capacity: 10 } ] }
  queue:
    rules:
      - { id: queue, scope: per_user, on_exceed: wait, max_wait: 1m, bands: [ { capacity: 1, window: 10s } ] }
  slots-and-queue:
    rules:
      - { id: running, scope: per_user, algorithm: concurrency, hold: 1s, bands: [ { capacity: 10 } ] }
      - { id: queue, scope: per_user, on_exceed: wait, max_wait: 1m, bands: [ { capacity: 1, window: 3s } ] }
`;

const SLOTS_HELD = 'fluxgate_slots_held{rule_set="slots",rule="running"}';

describe("a client", () => {
  /** A user for each test, with its own limits. */
  let nextUser = 1;
  let service;
  let proxy;
  before(async () => {
    service = await Service.start(CONFIG);
    proxy = await FaultProxy.start(service.port);
  });
  after(async () => {
    await proxy.stop();
    await service.stop();
  });

  /** Runs a test with a client of the proxy. */
  const using = (options, run) => async () => {
    await proxy.set("up");
    proxy.asked = 0;
    const client = new Client(proxy.url, { deadline: 10_000, onWarning: () => {}, ...options });
    try {
      await run(client, `user-${nextUser++}`);
    } finally {
      await client.close();
    }
  };

  /** Runs a test with holds, which are renewed after a third of a second and last for one. */
  const renewing = (run) => bearing(600, using({}, run));

  test(
    "has times in milliseconds and in seconds",
    using({}, async (client, user) => {
      await client.check("api", { user, cost: 2 });
      const denied = await client.check("api", { user });
      assert(denied instanceof Decision);
      assert.equal(denied.retryAfter, denied.retryAfterMs / 1000);
      assert.equal(denied.resetAfter, denied.resetAfterMs / 1000);
      assert.equal(denied.delay, 0);
      const never = await client.check("api", { user, cost: 3 });
      assert.deepEqual([never.retryAfter, never.retryAfterMs], [null, null]);
    }),
  );

  test(
    "renews all holds in one call",
    renewing(async (client, user) => {
      const holds = [];
      for (let at = 0; at < 5; at += 1) holds.push(await client.hold("slots", { user }));
      proxy.asked = 0;
      await sleep(1_500);
      // Every third of a second at most, however many holds there are.
      assert(proxy.asked >= 1 && proxy.asked <= 5, `${proxy.asked} calls`);
      assert(holds.every((hold) => hold.isHeld));
      await service.reaches(SLOTS_HELD, 5);
      await client.close();
      await service.reaches(SLOTS_HELD, 0);
    }),
  );

  test(
    "leaves a hold when the work has ended in any way",
    using({}, async (client, user) => {
      assert.equal(await client.withHold("slots", { user }, () => "done"), "done");
      const failure = new Error("the work fails");
      const failing = client.withHold("slots", { user }, () => Promise.reject(failure));
      await assert.rejects(failing, failure);
      await service.reaches(SLOTS_HELD, 0);
      await client.check("api", { user, cost: 2 });
      await assert.rejects(client.hold("api", { user }), (error) => {
        assert(error instanceof Denied);
        assert.equal(error.status, 429);
        assert.match(error.headers["retry-after"], /^\d+$/);
        return true;
      });
    }),
  );

  test(
    "settles what it could not settle when the hold is left",
    using({}, async (client, user) => {
      const hold = await client.hold("api", { user, cost: 2 }, { holdFor: "60s" });
      await proxy.set("down");
      await assert.rejects(hold.settle(1), Unavailable);
      assert(hold.isHeld);
      assert.equal(await hold.leave(), false);
      await proxy.set("up");
      const peek = () => client.peek("api", { user, cost: 0 });
      await until("one unit is left", async () => (await peek()).remaining === 1);
    }),
  );

  test(
    "gives back what an answer has taken that came too late",
    using({}, async (client, user) => {
      await client.check("queue", { user });
      await proxy.set("slow");
      proxy.asked = 0;
      const hasty = new Client(proxy.url, { deadline: 100, onWarning: () => {} });
      const decisions = await Promise.all([
        hasty.check("slots", { user }),
        hasty.batch([{ ruleSet: "slots", user }]),
        hasty.check("queue", { user, wait: true }),
      ]);
      assert.equal(decisions[0].outcome, "failed_open");
      await proxy.set("up");
      await until("each answer is undone by a call", () => proxy.asked >= 6);
      await service.reaches(SLOTS_HELD, 0);
      const peek = () => client.peek("queue", { user });
      await until("the reservation is cancelled", async () => (await peek()).delayMs <= 10_000);
      await hasty.close();
    }),
  );

  test(
    "keeps a hold while it waits, and returns both if it is interrupted",
    renewing(async (client, user) => {
      const held = 'fluxgate_slots_held{rule_set="slots-and-queue",rule="running"}';
      await client.withHold("slots-and-queue", { user }, async () => {
        const waiting = client.hold("slots-and-queue", { user });
        await sleep(1_500);
        await service.reaches(held, 2);
        const controller = new AbortController();
        const interrupted = client.hold("slots-and-queue", { user }, controller);
        await sleep(100);
        controller.abort();
        await assert.rejects(interrupted, { name: "AbortError" });
        await service.reaches(held, 2);
        const hold = await waiting;
        assert(hold.isHeld);
        await hold.settle();
      });
      await service.reaches(held, 0);
    }),
  );

  test(
    "reads an answer that arrived while the program was busy",
    using({}, async (_, user) => {
      // Not through the proxy, which would be busy, too.
      const deadline = 2_000;
      const client = new Client(service.url, { deadline, onError: "raise" });
      await client.check("api", { user });
      const end = performance.now() + deadline + 50;
      const call = client.check("api", { user });
      // Let the request go out.
      await new Promise((resolve) => setImmediate(resolve));
      blockUntilUsedUp(service, user);
      while (performance.now() < end);
      assert.equal((await call).outcome, "allowed");
      await client.close();
    }),
  );

  test(
    "uses no more connections than it may",
    using({ maxConnections: 3 }, async (client, user) => {
      const checks = Array.from({ length: 50 }, () => client.peek("api", { user }));
      const outcomes = (await Promise.all(checks)).map(({ outcome }) => outcome);
      assert(outcomes.every((outcome) => outcome === "allowed"));
      assert(proxy.connections <= 3, `${proxy.connections}`);
      await client.close();
      await until("all connections are closed", () => proxy.connections === 0);
      assert.equal((await client.check("api", {})).error.reason, "closed");
    }),
  );

  test(
    "says once that the service fails, and once that it decides again",
    using({}, async (_, user) => {
      const messages = [];
      const onWarning = (message) => messages.push(message);
      const client = new Client(proxy.url, { deadline: 10_000, onWarning });
      await proxy.set("down");
      for (let at = 0; at < 5; at += 1) await client.check("api", { user });
      await proxy.set("up");
      await sleep(600);
      for (let at = 0; at < 2; at += 1) await client.check("api", { user });
      assert.equal(messages.length, 2, messages.join("\n"));
      const [failure, recovery] = messages.map((it) => it.replace(proxy.url, "URL"));
      const effect = "requests are allowed \\(on_error=allow\\)";
      assert.match(failure, new RegExp(`^FluxGate at URL does not decide: .*ECONN.*; ${effect}$`));
      assert.equal(recovery, "FluxGate at URL decides again");
      await client.close();
    }),
  );

  test(
    "refuses calls that are wrong",
    using({ onError: "deny" }, async (client, user) => {
      await assert.rejects(client.check("api", { usr: "ann" }), (error) => {
        assert(error instanceof InvalidRequest);
        assert.match(error.problem.detail, /unknown field `usr`/);
        return true;
      });
      const large = client.check("api", { user: "x".repeat(70_000) });
      await assert.rejects(large, ({ problem }) => problem.status === 413);
      for (const options of [
        { onError: "open" },
        { onError: "toString" },
        { deadline: 0 },
        { maxConnections: 0 },
        { onerror: "deny" },
        { timeout: 100 },
      ]) {
        assert.throws(() => new Client(proxy.url, options), TypeError);
      }
      const misspelt = { message: "there is no option `onerror`" };
      assert.throws(() => new Client(proxy.url, { onerror: "deny" }), misspelt);
      const hosts = ["127.0.0.1:8081", "localhost:8081", "ftp://host", ""];
      for (const url of [...hosts, "http://user@host", "http://host/?a=1"]) {
        assert.throws(() => new Client(url), {
          name: "TypeError",
          message: /^expected the address of a service, such as http:\/\/127\.0\.0\.1:8081, /,
        });
      }
    }),
  );

  test("a program ends although it does not close its client", async () => {
    const program = `
      import { Client } from "fluxgate";
      const client = new Client(${JSON.stringify(service.url)}, { deadline: 10_000 });
      await client.hold("slots", { user: "exit" });
      console.log((await client.check("api", { user: "exit" })).outcome);
    `;
    const child = spawn(process.execPath, ["--input-type=module", "--eval", program]);
    let output = "";
    child.stdout.on("data", (chunk) => (output += chunk));
    const code = await new Promise((resolve) => child.on("close", resolve));
    assert.deepEqual([code, output], [0, "allowed\n"]);
  });
});

/** Blocks this process until the service has decided the second request of a user. */
function blockUntilUsedUp(service, user) {
  const program = `
    const body = JSON.stringify({ rule_set: "api", user: ${JSON.stringify(user)}, peek: true });
    const peek = () => fetch("${service.url}/v1/check", { method: "POST", body });
    while ((await (await peek()).json()).allowed);
  `;
  execFileSync(process.execPath, ["--input-type=module", "--eval", program], { timeout: 60_000 });
}

test("CommonJS programs can require the package", { skip: !process.features.require_module }, () => {
  const program = 'console.log(typeof require("fluxgate").Client, typeof require("fluxgate/koa").rateLimit)';
  const args = ["--input-type=commonjs", "--eval", program];
  const output = execFileSync(process.execPath, args, { encoding: "utf8" });
  assert.equal(output, "function function\n");
});

/** Returns the warnings of checks that name these rule sets, none of which exists. */
async function warningsOf(answer, ruleSets) {
  const server = http.createServer((request, response) => {
    response.setHeader("X-FluxGate-Rule-Set", "missing");
    response.end(JSON.stringify(answer));
  });
  await new Promise((resolve) => server.listen(0, HOST, resolve));
  const url = `http://${HOST}:${server.address().port}`;
  const messages = [];
  const onWarning = (message) => messages.push(message.replace(url, "URL"));
  const client = new Client(url, { deadline: 10_000, onWarning });
  for (const ruleSet of ruleSets) await client.check(ruleSet, { user: "ann" });
  await client.close();
  server.close();
  return messages;
}

const NO_RULE = {
  allowed: true,
  outcome: "no_rule",
  rule: null,
  band: null,
  limit: null,
  remaining: null,
  retry_after_ms: 0,
  reset_after_ms: 0,
  delay_ms: 0,
  violated: [],
};

test("a rule set that does not exist is reported once", async () => {
  assert.deepEqual(await warningsOf(NO_RULE, ["api-limts", "other", "api-limts", "other"]), [
    "FluxGate at URL has no rule set `api-limts`: requests that it should limit pass",
    "FluxGate at URL has no rule set `other`: requests that it should limit pass",
  ]);
  const denial = { ...NO_RULE, allowed: false, outcome: "denied", retry_after_ms: null };
  assert.deepEqual(await warningsOf(denial, ["api-limts"]), [
    "FluxGate at URL has no rule set `api-limts`: requests that it should limit are denied",
  ]);
  const many = Array.from({ length: 150 }, (_, at) => `set-${at}`);
  assert.equal((await warningsOf(NO_RULE, [...many, ...many])).length, 100);
});

test("a batch reports rule sets that do not exist", async () => {
  const service = await Service.start(CONFIG);
  const messages = [];
  const onWarning = (message) => messages.push(message);
  const client = new Client(service.url, { deadline: 10_000, onWarning });
  try {
    const ruleSets = ["api", "api-limts", "other", "api-limts"];
    const decisions = await client.batch(ruleSets.map((ruleSet) => ({ ruleSet, user: "ann" })));
    const outcomes = decisions.map(({ outcome }) => outcome);
    assert.deepEqual(outcomes, ["allowed", "no_rule", "no_rule", "no_rule"]);
    await client.check("other");
  } finally {
    await client.close();
    await service.stop();
  }
  const message = (name) =>
    `FluxGate at ${service.url} has no rule set \`${name}\`: requests that it should limit pass`;
  assert.deepEqual(messages, [message("api-limts"), message("other")]);
});

test("headers and a prefix of the path go with every call", async () => {
  const seen = [];
  const server = http.createServer((request, response) => {
    seen.push([request.url, request.headers.authorization, request.headers["content-type"]]);
    response.end("{}");
  });
  await new Promise((resolve) => server.listen(0, HOST, resolve));
  const url = `http://${HOST}:${server.address().port}/limits/`;
  const headers = { Authorization: "Bearer t" };
  const client = new Client(url, { headers, deadline: 10_000, onWarning: () => {} });
  assert.equal((await client.check("api")).error.reason, "bad_response");
  assert.deepEqual(seen, [["/limits/v1/check", "Bearer t", "application/json"]]);
  await client.close();
  server.close();
});

test("TLS with a private certificate authority", async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), "fluxgate-tls-"));
  const openssl = (...args) => execFileSync("openssl", args, { cwd: folder, stdio: "pipe" });
  openssl(
    ..."req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2".split(" "),
    ...`-keyout tls.key -out tls.crt -subj /CN=test -addext subjectAltName=IP:${HOST}`.split(" "),
  );
  const files = {};
  for (const name of ["tls.crt", "tls.key"]) files[name] = readFileSync(path.join(folder, name));
  const config = CONFIG.replace(
    'api: "${API}"',
    'api: { address: "${API}", tls: { cert: tls.crt, key: tls.key } }',
  );
  const service = await Service.start(config, { files, scheme: "https" });
  const options = { deadline: 10_000, onWarning: () => {} };
  const trusting = new Client(service.url, { ...options, ca: files["tls.crt"] });
  const other = new Client(service.url, options);
  try {
    assert.equal((await trusting.check("api", { user: "ann" })).outcome, "allowed");
    assert.equal((await other.check("api", { user: "ann" })).error.reason, "connection");
  } finally {
    await Promise.all([trusting.close(), other.close(), service.stop()]);
    rmSync(folder, { recursive: true });
  }
});
