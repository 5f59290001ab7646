// The service under test: the real binary with a configuration of its own.

import { spawn } from "node:child_process";
import { createHash, randomInt } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { createInterface } from "node:readline";

import { needed } from "./browser.mjs";

/** The machine may be busy. */
const READY_MS = 60_000;
/** Ports below those that the system gives to connections and to other servers. */
const PORTS = { first: 16_000, count: 4_000 };
const ROLES = ["viewer", "operator", "admin"];
const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
  + "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };

/** Rules that most tests use. */
export const RULES = `
  api:
    rules:
      - id: per-user
        name: Each user on the API
        match: { path: ["/api/**"] }
        scope: per_user
        bands: [ { id: hour, capacity: 10, window: 1h }, { id: day, capacity: 100, window: 1d } ]
      - id: login
        match: { path: [/login], methods: [POST] }
        scope: per_ip
        algorithm: sliding_log
        bands: [ { capacity: 5, window: 10m } ]
      - id: exports
        match: { path: ["/export/**"] }
        key: [user, "attr:tenant"]
        algorithm: concurrency
        hold: 1m
        bands: [ { capacity: 3 } ]
      - id: everything
        mode: shadow
        scope: global
        algorithm: fixed_window
        bands: [ { capacity: 1000, window: 1m } ]
`;

/**
 * Starts a service. Options: `rules` (YAML below `rule_sets`), `stored` (rules are in Redis),
 * `tokens` (one of each role: the token is the name of the role), `record`, `identities`, `demo`
 * (no config), `deadline` (of Redis), `feed` (the test writes the live events).
 */
export async function startService(options = {}) {
  const service = new Service(options);
  try {
    await service.begin();
  } catch (error) {
    await service.end();
    throw error;
  }
  return service;
}

class Service {
  #options;
  #folder = mkdtempSync(join(tmpdir(), "fluxgate-console-"));
  #child = null;
  #redis = null;
  #proxy = null;
  #address = "127.0.0.1:0";

  constructor(options) {
    this.#options = { rules: RULES, record: true, identities: true, ...options };
  }

  async begin() {
    const { stored, store } = this.#options;
    if (stored) this.#redis = await startRedis(this.#folder);
    this.store = store ?? this.#redis?.url;
    await this.start();
    const directory = process.env.FLUXGATE_CONSOLE_DIR;
    if (this.#options.feed || directory) this.#proxy = await startProxy(this.#address, directory, this.#options.feed);
  }

  /** The origin of the page. */
  get origin() {
    return `http://${this.#proxy?.address ?? this.#address}`;
  }

  get feed() {
    return this.#proxy.feed;
  }

  /** Starts the process; after a stop, on the same address. */
  async start() {
    const { demo } = this.#options;
    if (!demo) writeFileSync(this.path("fluxgate.yaml"), this.#config());
    const from = demo ? [] : ["--config", this.path("fluxgate.yaml")];
    const listeners = demo ? ["gateway", "grpc", "resp"].map((name) => `listen.${name}=127.0.0.1:0`) : [];
    const values = [`listen.api=${this.#address}`, ...listeners].flatMap((value) => ["--set", value]);
    this.#child = start(needed("FLUXGATE_BIN"), ["run", ...from, ...values], this.#folder);
    // The log is JSON with a config, and text in the demo.
    const line = await this.#child.line((text) => /\blistening\b/.test(text) && /listener"?[:=]"api"/.test(text));
    this.#address = /address"?[:=]"?([\d.:]+)/.exec(line)[1];
    for (const end = Date.now() + READY_MS; Date.now() < end;) {
      const { status } = await fetch(`http://${this.#address}/readyz`);
      if (status === 200) return;
      await new Promise((done) => setTimeout(done, 20));
    }
    throw new Error(`the service is not ready\n${this.#child.output()}`);
  }

  stop() {
    return this.#child.stop();
  }

  /** Stops Redis, which forgets everything. */
  stopRedis() {
    return this.#redis.stop();
  }

  /** Makes Redis answer nothing; it keeps what it has. */
  pauseRedis() {
    this.#redis.signal("SIGSTOP");
  }

  resumeRedis() {
    this.#redis.signal("SIGCONT");
  }

  /** Starts Redis again, at the same address. */
  async startRedis() {
    this.#redis = await startRedis(this.#folder, Number(new URL(this.#redis.url).port));
  }

  async end() {
    this.#proxy?.close();
    await this.#child?.stop();
    await this.#redis?.stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  path(name) {
    return join(this.#folder, name);
  }

  write(name, text) {
    writeFileSync(this.path(name), text);
    return this.path(name);
  }

  /** Returns the address of a view. */
  url(hash = "") {
    return `${this.origin}/console/${hash}`;
  }

  /** Calls the API as an admin, as somebody other than the page. */
  async call(method, path, body, headers = {}) {
    const response = await fetch(`http://${this.#address}${path}`, {
      method,
      headers: { "Content-Type": "application/json", ...(this.#options.tokens && { Authorization: "Bearer admin" }), ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text === "" ? null : JSON.parse(text);
  }

  /** Makes decisions, one after another. */
  async check(request, times = 1) {
    const decisions = [];
    for (let time = 0; time < times; time++) {
      decisions.push(await this.call("POST", "/v1/check", { rule_set: "api", ...request }));
    }
    return decisions;
  }

  /** Makes the service read its tokens again: only these roles have one. */
  setTokens(roles) {
    this.write("tokens", tokenLines(roles));
    this.#child.signal("SIGHUP");
  }

  #config() {
    const { tokens, record, identities, rules, stored, deadline = "30s", config = "" } = this.#options;
    if (tokens) this.write("tokens", tokenLines(ROLES));
    const admin = [`record: ${record}`, tokens && `tokens_file: ${JSON.stringify(this.path("tokens"))}`];
    return [
      `listen: { api: "127.0.0.1:0" }`,
      `admin: { ${admin.filter(Boolean).join(", ")} }`,
      `telemetry: { identities: ${identities} }`,
      // A deadline that only an outage misses.
      this.store && `store: { redis: { url: "${this.store}", deadline: ${deadline} } }`,
      stored || !rules ? "rules_from: { redis: {} }" : `rule_sets:${rules}`,
      config,
      "",
    ].filter((line) => line !== undefined).join("\n");
  }
}

function tokenLines(roles) {
  const hash = (token) => createHash("sha256").update(token).digest("hex");
  return roles.map((role) => `the-${role}:${role}:${hash(role)}\n`).join("");
}

/** Starts a process that ends with this one. */
function start(program, args, folder) {
  const child = spawn("setpriv", ["--pdeathsig", "KILL", program, ...args], { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
  const lines = [];
  const waiting = new Set();
  const push = (line) => {
    lines.push(line);
    if (lines.length > 2000) lines.shift();
    for (const look of waiting) look(line);
  };
  createInterface({ input: child.stdout }).on("line", push);
  createInterface({ input: child.stderr }).on("line", push);
  const exited = new Promise((done) => child.once("exit", done));
  return {
    output: () => lines.join("\n"),
    signal: (name) => child.kill(name),
    /** Waits for a line of the log. */
    line(isWanted) {
      return new Promise((resolve, reject) => {
        const end = (settle, value) => {
          waiting.delete(look);
          clearTimeout(late);
          settle(value);
        };
        const look = (line) => isWanted(line) && end(resolve, line);
        const fail = (why) => end(reject, new Error(`${program} ${why}\n${lines.join("\n")}`));
        const late = setTimeout(() => fail("is not ready"), READY_MS);
        child.once("error", (error) => fail(error.message));
        exited.then((code) => fail(`has ended with ${code}`));
        waiting.add(look);
        lines.forEach(look);
      });
    },
    async stop() {
      child.kill("SIGKILL");
      await exited;
    },
  };
}

/** Starts a Redis on a port that nobody else uses: it says so itself if that is taken. */
async function startRedis(folder, wanted) {
  for (;;) {
    const port = wanted ?? PORTS.first + randomInt(PORTS.count);
    const redis = start("redis-server", ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"], folder);
    try {
      await redis.line((line) => line.includes("Ready to accept connections"));
      return { url: `redis://127.0.0.1:${port}`, stop: redis.stop, signal: redis.signal };
    } catch (error) {
      if (!redis.output().includes("Address already in use")) throw error;
    }
  }
}

/**
 * Starts a server in front of the service. It passes calls on, except for the live events if the
 * test feeds them, and the files of the page if they come from a directory (in development).
 */
async function startProxy(address, directory, isFed) {
  const feed = isFed ? new Feed() : null;
  const server = createServer((request, response) => {
    const path = request.url.split("?")[0];
    if (feed && path === "/v1/live") feed.open(response);
    else if (directory && path.startsWith("/console/")) serveFile(directory, path.slice("/console/".length), response);
    else pass(address, request, response);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return {
    address: `127.0.0.1:${server.address().port}`,
    feed,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

function pass(address, request, response) {
  const [host, port] = address.split(":");
  const onward = httpRequest({ host, port, method: request.method, path: request.url, headers: request.headers });
  onward.on("response", (answer) => {
    response.writeHead(answer.statusCode, answer.rawHeaders);
    answer.pipe(response);
    answer.on("error", () => response.destroy());
  });
  onward.on("error", () => response.destroy());
  response.on("close", () => onward.destroy());
  request.pipe(onward);
}

function serveFile(directory, path, response) {
  const file = join(directory, normalize(`/${path || "index.html"}`));
  try {
    const text = readFileSync(file);
    response.writeHead(200, { "Content-Type": TYPES[extname(file)], "Content-Security-Policy": POLICY, "Cache-Control": "no-cache" });
    response.end(text);
  } catch {
    response.writeHead(404).end();
  }
}

/** Live events, written by a test. */
class Feed {
  #streams = new Set();
  #last = "";

  open(response) {
    response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
    response.flushHeaders();
    // A page that hears nothing for some seconds connects again, as on a busy machine, and an event
    // that is sent in between is lost. A service would send the next one.
    response.write(this.#last);
    this.#streams.add(response);
    response.on("close", () => this.#streams.delete(response));
  }

  get isOpen() {
    return this.#streams.size > 0;
  }

  send(...events) {
    const texts = events.map((event) => `data: ${JSON.stringify(event)}\n\n`);
    this.#last = texts.at(-1);
    for (const stream of this.#streams) stream.write(texts.join(""));
  }

  /** Ends the stream, as a service that stops does. */
  end() {
    for (const stream of this.#streams) stream.end();
  }
}

/** Returns a live event. */
export function liveEvent(fields = {}) {
  const { denied = 0, never = 0, failed_closed = 0 } = fields.decisions ?? {};
  return {
    at_ms: Date.now(), revision: "a1b2c3d4", uptime_s: 3725, decisions: {}, rules: [],
    denied: denied + never + failed_closed,
    latency_us: { p50: null, p99: null }, waiting: 0, slots: 0,
    store: { kind: "memory", breaker: "closed", keys: 1234 }, leases: null, ...fields,
  };
}
