// Limits the requests to a server of any framework.

import { TrustedProxies } from "./address.js";
import { Ambiguous } from "./ambiguous.js";
import { Client } from "./client.js";
import { Decision, problemOf } from "./decision.js";
import { InvalidRequest, Unavailable } from "./errors.js";
import { FORWARDED, HeaderReader } from "./headers.js";
import { setLimitHeaders } from "./limit_headers.js";
import { PathSet, readPath, withoutSlash } from "./path.js";
import { sleep } from "./time.js";

const USER = "x-user-id";
const API_KEY = "x-api-key";

const OPTIONS = new Set(
  `client ruleSet include exclude ignoreCase user apiKey ip attributes cost headers
  trustedProxies maxConcurrentWaits`.split(/\s+/),
);

/** The client has disconnected, so there is nothing to answer. */
export const GONE = Symbol("gone");

/** The decision about a request, and its hold. */
const RESULT = Symbol("fluxgate.result");

/** Returns the last decision about a request, and its hold; undefined if there is none. */
export function resultOf(request) {
  return (request.raw ?? request.req ?? request)[RESULT];
}

export class Filter {
  #client;
  #ruleSet;
  #include;
  #exclude;
  #ignoreCase;
  #functions;
  #customizes;
  #headers;
  #proxies;
  #maxWaits;
  #waiting = 0;
  #hasWarned = false;

  constructor(options) {
    for (const name of Object.keys(options)) {
      if (!OPTIONS.has(name)) throw new TypeError(`there is no option \`${name}\``);
    }
    const {
      client,
      ruleSet,
      include,
      exclude = [],
      ignoreCase = false,
      user,
      apiKey,
      ip,
      attributes,
      cost,
      headers,
      trustedProxies = [],
      maxConcurrentWaits = 100,
    } = options;
    if (!(client instanceof Client)) throw new TypeError("the option `client` must be a Client");
    this.#client = client;
    this.#ruleSet = ruleSet;
    this.#include = include && new PathSet(include, ignoreCase);
    this.#exclude = new PathSet(exclude, ignoreCase);
    this.#ignoreCase = ignoreCase;
    this.#functions = { user, apiKey, ip, attributes, cost };
    this.#customizes = Object.values(this.#functions).some((it) => it !== undefined);
    this.#headers = new HeaderReader([USER, API_KEY, FORWARDED], headers);
    this.#proxies = new TrustedProxies(trustedProxies);
    this.#maxWaits = maxConcurrentWaits;
  }

  /**
   * Decides a request. Resolves to undefined if it may proceed, to a refusal, or to `GONE`.
   *
   * `request` and `response` are those of Node, `target` is the request target as it was sent,
   * and `source` is what the functions of the options get.
   */
  async admit(request, response, target, source) {
    let path;
    let headers;
    try {
      path = readPath(target);
      if (!this.#applies(path)) return undefined;
      headers = this.#headers.read(request.rawHeaders);
      checkMethod(request.method);
    } catch (error) {
      if (error instanceof Ambiguous) return refusalOf(error);
      throw error;
    }
    const context = this.#contextOf(request, path, headers);
    if (this.#customizes) await this.#customize(context, source);
    // Without a place to wait, nothing is reserved.
    context.wait = this.#waiting < this.#maxWaits;
    let decision = await this.#check(context);
    if (decision.delayMs > 0) decision = await this.#wait(context, decision, response);
    if (isOver(response)) return this.#abandon(decision);
    setLimitHeaders(response, decision);
    if (!decision.allowed) return refusalOf(decision);
    const hold = decision.hold === null ? null : this.#client.keep(decision);
    if (hold !== null) onEnd(response, () => hold.leave());
    request[RESULT] = { decision, hold };
    return undefined;
  }

  #applies(path) {
    if (this.#exclude.containsBoth(path)) return false;
    if (this.#include !== undefined && !this.#include.containsEither(path)) return false;
    if (this.#ruleSet === undefined) this.#warnOfRuleSet();
    return this.#ruleSet !== undefined;
  }

  #contextOf(request, path, { sent, counted, forwarded }) {
    return {
      ip: this.#proxies.clientAddress(request.socket?.remoteAddress, forwarded),
      user: textOf(counted[USER]),
      apiKey: textOf(counted[API_KEY]),
      method: request.method,
      path: path.raw,
      normalPath: withoutSlash(path.normal) === path.raw ? undefined : path.normal,
      ignoreCase: this.#ignoreCase ? true : undefined,
      headers: sent,
      wait: true,
    };
  }

  /** Adds what the functions of the options return. */
  async #customize(context, source) {
    const { user, apiKey, ip, attributes, cost } = this.#functions;
    if (user !== undefined) context.user = textOf(await user(source));
    if (apiKey !== undefined) context.apiKey = textOf(await apiKey(source));
    if (ip !== undefined) context.ip = textOf(await ip(source));
    if (attributes !== undefined) context.attributes = textsOf(await attributes(source));
    if (cost !== undefined) context.cost = typeof cost === "number" ? cost : await cost(source);
  }

  async #check(context) {
    try {
      return await this.#client.check(this.#ruleSet, context);
    } catch (error) {
      if (!(error instanceof InvalidRequest)) throw error;
      // Too large for the service. `onError` must not decide: a client could choose that.
      if (error.problem.status === 413) return Decision.never();
      if (!this.#hasWarned) this.#client.warnRejected(error);
      this.#hasWarned = true;
      return this.#client.fallback(new Unavailable("invalid_request", error.message, error));
    }
  }

  /** Waits for the turn of a request, or until its client has gone. */
  async #wait(context, decision, response) {
    if (this.#waiting >= this.#maxWaits) {
      await this.#client.cancel(decision);
      return this.#check({ ...context, wait: false, again: true });
    }
    this.#waiting += 1;
    const hold = this.#client.keep(decision);
    const controller = new AbortController();
    const stop = onEnd(response, () => controller.abort());
    // An end of the response is noticed by the caller.
    await sleep(decision.delayMs, controller.signal).catch(() => {});
    stop();
    hold.forget();
    this.#waiting -= 1;
    return decision;
  }

  /** Gives back what the request of a client has taken that has gone. */
  async #abandon(decision) {
    const isCancelled = await this.#client.cancel(decision);
    if (!isCancelled && decision.hold !== null) await this.#client.keep(decision).release();
    return GONE;
  }

  #warnOfRuleSet() {
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    this.#client.warn("a middleware of FluxGate has no rule set: it limits nothing");
  }
}

/** Returns whether a response has ended, failed or lost its client. */
function isOver(response) {
  return response.closed === true || response.destroyed === true;
}

/** Calls back when a response has ended, failed or lost its client. Returns how to stop that. */
function onEnd(response, callback) {
  const stop = () => {
    response.off("close", listener);
    response.off("finish", listener);
  };
  const listener = () => {
    stop();
    callback();
  };
  if (isOver(response)) {
    callback();
    return () => {};
  }
  response.on("close", listener);
  response.on("finish", listener);
  return stop;
}

/** Returns the response that refuses a request, as the gateway does. */
function refusalOf(cause) {
  const isDecision = cause instanceof Decision;
  const problem = isDecision
    ? problemOf(cause)
    : {
        type: "about:blank",
        title: "Bad Request",
        status: 400,
        detail: `the request is ambiguous: ${cause.message}`,
      };
  return {
    status: problem.status,
    problem,
    body: Buffer.from(JSON.stringify(problem)),
    contentType: "application/problem+json",
    decision: isDecision ? cause : null,
  };
}

/** Returns a value as text; undefined if it is missing or empty. */
function textOf(value) {
  return value === undefined || value === null || value === "" ? undefined : String(value);
}

function textsOf(values) {
  const entries = Object.entries(values ?? {});
  return Object.fromEntries(entries.filter(([, value]) => value !== undefined && value !== null));
}

/** The registry of IANA, and `PURGE`, which is widely used to clear caches. */
const METHODS = new Set(
  `ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE
  MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PRI
  PROPFIND PROPPATCH PUT QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE
  UPDATEREDIRECTREF VERSION-CONTROL PURGE`.split(/\s+/),
);

/** Rejects a method that differs from a registered one only by case: rules distinguish them. */
function checkMethod(method) {
  if (!METHODS.has(method) && METHODS.has(method.toUpperCase())) {
    throw new Ambiguous("the method differs from a registered one only by case");
  }
}
