// HTTP calls to the service, over connections that are reused.

import http from "node:http";
import https from "node:https";

import { Unavailable } from "./errors.js";

/** The largest answer that is read. */
const MAX_ANSWER = 4 * 1024 * 1024;
/** The service closes idle connections after 30 s; this side does so earlier. */
const IDLE = 20_000;
/** How long to wait for an answer whose deadline has passed. */
const LATE = 5_000;

export class Transport {
  #module;
  #agent;
  #host;
  #port;
  #prefix;
  #headers;
  #deadline;
  #maxLate;
  /** How many calls wait for a late answer. */
  #late = 0;
  #isClosed = false;

  constructor(url, { deadline, maxConnections, headers, ca, cert, key }) {
    const { protocol, host, hostname, port, pathname } = parseAddress(url);
    this.#module = protocol === "https:" ? https : http;
    this.#agent = new this.#module.Agent({
      ...(protocol === "https:" ? { ca, cert, key } : {}),
      keepAlive: true,
      // Requests beyond these wait for a connection, within their deadline.
      maxSockets: maxConnections,
      maxFreeSockets: maxConnections,
      scheduling: "lifo",
      timeout: IDLE,
      noDelay: true,
    });
    // A URL has an IPv6 address in brackets.
    this.#host = hostname.replace(/^\[(.*)\]$/, "$1");
    this.#port = port === "" ? undefined : port;
    this.#prefix = pathname.replace(/\/+$/, "");
    // In the form in which Node takes them as they are.
    this.#headers = ["Host", host, "Content-Type", "application/json", ...lines(headers)];
    this.#deadline = deadline;
    // Late answers occupy connections, and must leave some to others.
    this.#maxLate = Math.floor(maxConnections / 2);
  }

  /**
   * Posts JSON, once. Resolves to the status, the header lines and the body of the answer.
   *
   * If the answer comes after the deadline, `onLate` gets it: the service may have taken slots
   * or reserved units.
   */
  post(path, body, onLate) {
    if (this.#isClosed) {
      return Promise.reject(new Unavailable("closed", "the client is closed"));
    }
    return new Promise((resolve, reject) => {
      const request = this.#module.request({
        method: "POST",
        agent: this.#agent,
        host: this.#host,
        port: this.#port,
        path: this.#prefix + path,
        headers: [...this.#headers, "Content-Length", String(Buffer.byteLength(body))],
      });
      const call = new Call(request, this, this.#deadline, resolve, reject, onLate);
      request.on("error", (error) => call.fail("connection", "the connection failed", error));
      request.on("response", (response) => call.read(response));
      request.end(body);
    });
  }

  /** Closes all connections. */
  close() {
    this.#isClosed = true;
    this.#agent.destroy();
  }

  /** Returns whether one more call may wait for a late answer. */
  beginLate() {
    if (this.#isClosed || this.#late >= this.#maxLate) return false;
    this.#late += 1;
    return true;
  }

  endLate() {
    this.#late -= 1;
  }
}

/** One request and its answer. */
class Call {
  // Not private: there is one for each call, and private names cost time.
  constructor(request, transport, deadline, resolve, reject, onLate) {
    this.request = request;
    this.transport = transport;
    this.deadline = deadline;
    this.resolve = resolve;
    this.reject = reject;
    this.onLate = onLate;
    /** `pending`, then perhaps `late`, then `done`. */
    this.state = "pending";
    this.timer = setTimeout(lastChance, deadline, this);
  }

  read(response) {
    const chunks = [];
    let bytes = 0;
    response.on("data", (chunk) => {
      bytes += chunk.length;
      chunks.push(chunk);
      if (bytes > MAX_ANSWER) {
        this.fail("bad_response", "the answer is too large");
        this.request.destroy();
      }
    });
    response.on("error", (error) => this.fail("connection", "the answer broke off", error));
    response.on("end", () => {
      const body = chunks.length === 1 ? chunks[0] : Buffer.concat(chunks);
      const { statusCode: status, rawHeaders } = response;
      this.answer({ status, rawHeaders, body: body.toString("utf8") });
    });
  }

  answer(answer) {
    const state = this.finish();
    if (state === "pending") this.resolve(answer);
    else if (state === "late") this.onLate(answer);
  }

  fail(reason, message, cause) {
    if (this.finish() !== "pending") return;
    const text = cause === undefined ? message : `${message}: ${cause.code ?? cause.message}`;
    this.reject(new Unavailable(reason, text, cause));
  }

  /** Ends the call and returns the state that it was in. */
  finish() {
    const { state } = this;
    this.state = "done";
    clearTimeout(this.timer);
    if (state === "late") this.transport.endLate();
    return state;
  }

  /** Gives up on the answer, or goes on to wait for it in the background. */
  miss() {
    const { socket } = this.request;
    const isSent = socket !== null && !socket.connecting && !socket.secureConnecting;
    this.reject(new Unavailable("deadline", `no answer within ${this.deadline} ms`));
    if (this.onLate === undefined || !isSent || !this.transport.beginLate()) {
      this.state = "done";
      this.request.destroy();
      return;
    }
    this.state = "late";
    // A late answer is no reason for a program to go on.
    socket.unref();
    this.timer = setTimeout(() => this.request.destroy(), LATE).unref();
  }
}

/**
 * Reads what has arrived before a call gives up. If the program has blocked the event loop, the
 * answer may be there, but timers run first.
 */
function lastChance(call) {
  setImmediate(() => {
    if (call.state === "pending") call.miss();
  });
}

/** Returns the parts of the address of a service. */
function parseAddress(address) {
  const expected = "expected the address of a service, such as http://127.0.0.1:8081";
  const url = URL.canParse(address) ? new URL(address) : undefined;
  if (url === undefined || (url.protocol !== "http:" && url.protocol !== "https:")) {
    throw new TypeError(`${expected}, found ${JSON.stringify(address)}`);
  }
  if (url.username !== "" || url.search !== "") {
    throw new TypeError(`${expected}, without a user and a query: set the option \`headers\``);
  }
  return url;
}

/** Returns headers as a list of names and values. */
function lines(headers = {}) {
  return Object.entries(headers).flatMap(([name, value]) => [name, String(value)]);
}
