// The real service, one process per test.

import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { HOST, freePort } from "./host.js";
import { until } from "./until.js";

const BINARY = process.env.FLUXGATE;

export class Service {
  #process;
  #folder;

  /** Starts a service. `${API}` and `${GATEWAY}` in the config stand for free addresses. */
  static async start(config, { files = {}, scheme = "http" } = {}) {
    const service = new Service();
    service.#folder = await mkdtemp(path.join(os.tmpdir(), "fluxgate-"));
    for (const [name, content] of Object.entries(files)) {
      await writeFile(path.join(service.#folder, name), content);
    }
    service.port = freePort();
    service.gatewayPort = freePort();
    service.url = `${scheme}://${HOST}:${service.port}`;
    const text = config
      .replaceAll("${API}", `${HOST}:${service.port}`)
      .replaceAll("${GATEWAY}", `${HOST}:${service.gatewayPort}`);
    await writeFile(path.join(service.#folder, "fluxgate.yaml"), text);
    await service.run();
    return service;
  }

  /** Runs the process, again if it was stopped. */
  async run() {
    let output = "";
    const child = spawn(BINARY, ["run", "--config", "fluxgate.yaml"], {
      cwd: this.#folder,
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#process = child;
    child.stdout.on("data", (chunk) => (output += chunk));
    child.stderr.on("data", (chunk) => (output += chunk));
    let failure;
    child.on("error", (error) => (failure = error));
    const end = performance.now() + 60_000;
    while (failure === undefined && child.exitCode === null && performance.now() < end) {
      if (await accepts(this.port)) return;
      await sleep(10);
    }
    child.kill("SIGKILL");
    throw new Error(`the service does not start: ${failure ?? output}`);
  }

  /** Stops the process at once. */
  async kill() {
    const child = this.#process;
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("close", resolve));
    child.kill("SIGKILL");
    await ended;
  }

  async stop() {
    await this.kill();
    await rm(this.#folder, { recursive: true, force: true });
  }

  /** Returns the value of a metric. */
  async metric(name) {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    const line = text.split("\n").find((it) => it.startsWith(`${name} `));
    return line === undefined ? 0 : Number(line.slice(name.length));
  }

  /** Waits until a metric has a value. */
  reaches(name, expected, seconds) {
    return until(`${name} is ${expected}`, async () => (await this.metric(name)) === expected, seconds);
  }

  /** Returns how many slots are held, by all rules. */
  async slotsHeld() {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    const lines = text.matchAll(/^fluxgate_slots_held\{.*\} (\d+)$/gm);
    return Array.from(lines, ([, held]) => Number(held)).reduce((sum, held) => sum + held, 0);
  }

  get pid() {
    return this.#process.pid;
  }
}

function accepts(port) {
  return new Promise((resolve) => {
    const socket = net.connect(port, HOST);
    socket.on("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.on("error", () => resolve(false));
  });
}
