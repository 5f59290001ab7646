// A proxy between client and service that fails in the ways that clients/README.md lists.

import net from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

import { HOST, freePort } from "./host.js";

export class FaultProxy {
  #target;
  #server = undefined;
  #port = freePort();
  #sockets = new Set();
  /** How many calls have arrived. */
  asked = 0;
  mode = "up";

  static async start(target, mode = "up") {
    const proxy = new FaultProxy();
    proxy.#target = target;
    await proxy.#listen();
    await proxy.set(mode);
    return proxy;
  }

  get url() {
    return `http://${HOST}:${this.#port}`;
  }

  /** How many connections of clients are open. */
  get connections() {
    return [...this.#sockets].filter((socket) => socket.isClient && !socket.destroyed).length;
  }

  async set(mode) {
    this.mode = mode;
    if (mode === "down") {
      await this.stop();
    } else if (mode === "restart") {
      await this.stop();
      await sleep(200);
      this.mode = "up";
      await this.#listen();
    } else {
      await this.#listen();
    }
  }

  async stop() {
    const server = this.#server;
    this.#server = undefined;
    for (const socket of this.#sockets) socket.destroy();
    if (server !== undefined) await new Promise((resolve) => server.close(resolve));
  }

  async #listen() {
    if (this.#server !== undefined) return;
    this.#server = net.createServer((socket) => this.#serve(socket));
    await new Promise((resolve) => this.#server.listen(this.#port, HOST, resolve));
  }

  #track(socket) {
    this.#sockets.add(socket);
    socket.setNoDelay(true);
    socket.on("error", () => {});
    socket.on("close", () => this.#sockets.delete(socket));
    return socket;
  }

  #serve(client) {
    this.#track(client);
    client.isClient = true;
    let upstream;
    let isSwallowing = false;
    const forward = (request) => {
      if (upstream === undefined) {
        upstream = this.#track(net.connect(this.#target, HOST));
        upstream.on("data", (chunk) => (isSwallowing ? client.destroy() : client.write(chunk)));
        upstream.on("close", () => client.destroy());
        client.on("close", () => upstream.destroy());
      }
      upstream.write(request);
    };
    let bytes = Buffer.alloc(0);
    client.on("data", (chunk) => {
      bytes = Buffer.concat([bytes, chunk]);
      for (;;) {
        const length = requestLength(bytes);
        if (length === undefined) return;
        const request = bytes.subarray(0, length);
        bytes = bytes.subarray(length);
        if (request.toString("latin1", 0, 9) === "POST /v1/") this.asked += 1;
        isSwallowing = this.mode === "swallow";
        this.#answer(client, request, forward);
      }
    });
  }

  #answer(client, request, forward) {
    switch (this.mode) {
      case "slow":
        setTimeout(() => client.destroyed || forward(request), 1_000);
        break;
      case "reset":
        client.resetAndDestroy();
        break;
      case "garbage":
        client.end("garbage\r\n\r\n");
        break;
      case "cut":
        client.end("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789");
        break;
      case "error":
        client.write("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 6\r\n\r\nbroken");
        break;
      default:
        forward(request);
    }
  }
}

/** Returns the length of the first request, if it is complete. */
function requestLength(bytes) {
  const end = bytes.indexOf("\r\n\r\n");
  if (end < 0) return undefined;
  const head = bytes.toString("latin1", 0, end);
  const body = Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0);
  const length = end + 4 + body;
  return bytes.length < length ? undefined : length;
}
