// The real service, one process per test.

import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

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
    service.port = await freePort();
    service.gatewayPort = await freePort();
    service.url = `${scheme}://127.0.0.1:${service.port}`;
    const text = config
      .replaceAll("${API}", `127.0.0.1:${service.port}`)
      .replaceAll("${GATEWAY}", `127.0.0.1:${service.gatewayPort}`);
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
    for (let tries = 0; tries < 1_000; tries += 1) {
      if (failure !== undefined || child.exitCode !== null) break;
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

  /** Waits until a metric has a value: gauges may be a moment late. */
  async reaches(name, expected) {
    let value;
    for (let tries = 0; tries < 50; tries += 1) {
      value = await this.metric(name);
      if (value === expected) return;
      await sleep(100);
    }
    throw new Error(`${name} is ${value}, not ${expected}`);
  }
}

async function freePort() {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function accepts(port) {
  return new Promise((resolve) => {
    const socket = net.connect(port, "127.0.0.1");
    socket.on("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.on("error", () => resolve(false));
  });
}
