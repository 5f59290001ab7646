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
  #options;
  #prefix;
  #headers;
  #deadline;
  #maxLate;
  /** How many calls wait for a late answer. */
  #late = 0;
  #isClosed = false;

  constructor(url, { deadline, maxConnections, headers, ca, cert, key }) {
    const { protocol, hostname, port, pathname, username, search } = new URL(url);
    if (protocol !== "http:" && protocol !== "https:") {
      throw new TypeError(`the URL must begin with http:// or https://; ${url} does not`);
    }
    if (username !== "" || search !== "") {
      throw new TypeError("the URL must have no user and no query; set the option `headers`");
    }
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
    this.#options = {
      method: "POST",
      agent: this.#agent,
      // A URL has an IPv6 address in brackets.
      host: hostname.replace(/^\[(.*)\]$/, "$1"),
      port: port === "" ? undefined : port,
    };
    this.#prefix = pathname.replace(/\/+$/, "");
    this.#headers = { "Content-Type": "application/json", ...headers };
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
        ...this.#options,
        path: this.#prefix + path,
        headers: { ...this.#headers, "Content-Length": Buffer.byteLength(body) },
      });
      new Call(request, { resolve, reject, onLate, transport: this, deadline: this.#deadline });
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
  #request;
  #options;
  #timer;
  /** `pending`, then perhaps `late`, then `done`. */
  #state = "pending";
  #chunks = [];
  #bytes = 0;

  constructor(request, options) {
    this.#request = request;
    this.#options = options;
    this.#timer = setTimeout(() => this.#lastChance(), options.deadline);
    request.on("error", (error) => this.#fail("connection", "the connection failed", error));
    request.on("response", (response) => this.#read(response));
  }

  #read(response) {
    response.on("data", (chunk) => {
      this.#bytes += chunk.length;
      if (this.#bytes > MAX_ANSWER) {
        this.#fail("bad_response", "the answer is too large");
        this.#request.destroy();
      } else {
        this.#chunks.push(chunk);
      }
    });
    response.on("error", (error) => this.#fail("connection", "the answer broke off", error));
    response.on("end", () => {
      const body = this.#chunks.length === 1 ? this.#chunks[0] : Buffer.concat(this.#chunks);
      const { statusCode: status, rawHeaders } = response;
      this.#answer({ status, rawHeaders, body: body.toString("utf8") });
    });
  }

  #answer(answer) {
    const state = this.#finish();
    if (state === "pending") this.#options.resolve(answer);
    else if (state === "late") this.#options.onLate(answer);
  }

  #fail(reason, message, cause) {
    if (this.#finish() !== "pending") return;
    const text = cause === undefined ? message : `${message}: ${cause.code ?? cause.message}`;
    this.#options.reject(new Unavailable(reason, text, cause));
  }

  /** Ends the call and returns the state that it was in. */
  #finish() {
    const state = this.#state;
    this.#state = "done";
    clearTimeout(this.#timer);
    if (state === "late") this.#options.transport.endLate();
    return state;
  }

  /**
   * Reads what has arrived before it gives up. If the program has blocked the event loop, the
   * answer may be there, but timers run first.
   */
  #lastChance() {
    setImmediate(() => {
      if (this.#state === "pending") this.#miss();
    });
  }

  #miss() {
    const { deadline, reject, onLate, transport } = this.#options;
    const { socket } = this.#request;
    const isSent = socket !== null && !socket.connecting && !socket.secureConnecting;
    reject(new Unavailable("deadline", `no answer within ${deadline} ms`));
    if (onLate === undefined || !isSent || !transport.beginLate()) {
      this.#state = "done";
      this.#request.destroy();
      return;
    }
    this.#state = "late";
    // A late answer is no reason for a program to go on.
    socket.unref();
    this.#timer = setTimeout(() => this.#request.destroy(), LATE).unref();
  }
}
