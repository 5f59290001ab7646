// Runs the programs in examples/clients/node.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";

import { HOST, freePort } from "./support/host.js";
import { start } from "./support/raw_http.js";
import { Service } from "./support/service.js";

const FOLDER = path.resolve("examples");
const examples = path.join(process.env.FLUXGATE_CHECKOUT, "examples");
/** No units come back while a test runs, however long it takes. */
const CONFIG = readFileSync(path.join(examples, "fluxgate.yaml"), "utf8")
  .replace(/^listen:.*$/m, 'listen: { api: "${API}" }')
  .replace("window: 1m", "window: 1h");

/** Runs a program to its end and returns the lines that it prints. */
async function run(file, ...args) {
  const child = spawn(process.execPath, [file, ...args], { cwd: FOLDER });
  let output = "";
  let errors = "";
  child.stdout.on("data", (chunk) => (output += chunk));
  child.stderr.on("data", (chunk) => (errors += chunk));
  const code = await new Promise((resolve) => child.on("close", resolve));
  assert.equal(code, 0, errors);
  return output.trim().split("\n");
}

/** Starts a server and returns it when it listens. */
async function serve(file, ...args) {
  const child = spawn(process.execPath, [file, ...args], { cwd: FOLDER });
  let errors = "";
  child.stderr.on("data", (chunk) => (errors += chunk));
  await new Promise((resolve, reject) => {
    child.stdout.on("data", resolve);
    child.on("close", () => reject(new Error(errors)));
  });
  return child;
}

/**
 * Changes the copies of the programs: they listen on a free address, and their clients wait for
 * 10 s. After the default of 100 ms the programs would fail open on a busy machine.
 */
function prepare() {
  for (const name of readdirSync(FOLDER).filter((name) => /\.(mjs|ts)$/.test(name))) {
    const text = readFileSync(path.join(FOLDER, name), "utf8")
      .replace('"127.0.0.1"', JSON.stringify(HOST))
      .replace("new Client(url)", "new Client(url, { deadline: 10_000 })")
      .replace(/\bdeadline: 10*\b/, "deadline: 10_000");
    writeFileSync(path.join(FOLDER, name), text);
  }
}

describe("examples", () => {
  let service;
  before(async () => {
    prepare();
    service = await Service.start(CONFIG);
  });
  after(() => service.stop());

  test("nest.ts compiles", () => {
    const tsc = path.resolve("node_modules/typescript/bin/tsc");
    const { status, stdout } = spawnSync(process.execPath, [tsc], { cwd: FOLDER, encoding: "utf8" });
    assert.equal(status, 0, stdout);
  });

  for (const file of ["express.mjs", "fastify.mjs", "koa.mjs", "dist/nest.js"]) {
    test(file, async () => {
      const port = freePort();
      const server = await serve(file, String(port), service.url);
      try {
        const headers = [["X-User-Id", file]];
        for (const expected of [200, 200, 200, 429]) {
          const { status, text } = await start(port, { path: "/", headers }).finish();
          assert.equal(status, expected);
          if (status === 200) assert.equal(text, "hello\n");
        }
        const { status, text } = await start(port, { path: "/health", headers }).finish();
        assert.deepEqual([status, text], [200, "healthy\n"]);
      } finally {
        const ended = new Promise((resolve) => server.on("close", resolve));
        server.kill();
        await ended;
      }
    });
  }

  test("calls.mjs", async () => {
    assert.deepEqual(await run("calls.mjs", service.url), ["2 2"]);
  });

  test("jobs.mjs backs off", async () => {
    const lines = await run("jobs.mjs", service.url, "jobs", "4");
    assert.equal(lines[0], "job 1: done, 2 left");
    const done = lines.filter((line) => line.includes(": done, "));
    assert.equal(done.length, 4, lines.join("\n"));
    const denied = lines.filter((line) => /^job 4: denied, retrying in \d+ ms$/.test(line));
    assert(denied.length >= 1 && denied.length <= 2, lines.join("\n"));
  });

  test("jobs.mjs waits for its turn, and gives its slots back", async () => {
    const other = await Service.start(`
listen: { api: "\${API}" }
rule_sets:
  jobs:
    rules:
      - { id: even, scope: per_user, algorithm: leaky_bucket, shape: true, bands: [9/9s] }
      - { id: at-once, scope: per_user, algorithm: concurrency, hold: 1h, bands: [ { capacity: 1 } ] }
`);
    try {
      const began = performance.now();
      const lines = await run("jobs.mjs", other.url, "ann", "3");
      assert.deepEqual(lines, [1, 2, 3].map((job) => `job ${job}: done, 0 left`));
      assert(performance.now() - began > 1_900);
      await other.reaches('fluxgate_slots_held{rule_set="jobs",rule="at-once"}', 0);
    } finally {
      await other.stop();
    }
  });

  test("jobs.mjs fails open", async () => {
    const [line] = await run("jobs.mjs", "http://127.0.0.1:1", "ann", "1");
    assert.match(line, /^job 1: done, FluxGate unavailable: .*ECONNREFUSED/);
  });
});
