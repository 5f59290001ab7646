// The client of a FluxGate service.

import { Circuit } from "./circuit.js";
import {
  Decision,
  MISSING,
  decisionFrom,
  isRuleSetMissing,
  readConsumed,
  readDecision,
  readJson,
} from "./decision.js";
import { Denied, InvalidRequest, Unavailable } from "./errors.js";
import { AS_RESERVED, Hold, HoldKeeper, RELEASE, duration } from "./holds.js";
import { sleep } from "./time.js";
import { Transport } from "./transport.js";

/** The largest body that the service reads. */
const MAX_BODY = 64 * 1024;
/**
 * How many names of missing rule sets are remembered, and logged. A program may take them from its
 * clients, so neither the memory nor the log may grow with them.
 */
const MAX_MISSING = 100;
/** How long a charge is held unless a call says otherwise, in milliseconds. */
const DEFAULT_HOLD = 60_000;

/**
 * Without `status=true`: the service answers simple checks faster, and a proxy in between must not
 * take a denial for a failure.
 */
const CHECK = "/v1/check";

/** The names of fields that differ from those of the service. */
const FIELDS = {
  __proto__: null,
  ruleSet: "rule_set",
  apiKey: "api_key",
  normalPath: "normal_path",
  ignoreCase: "ignore_case",
  ruleId: "rule_id",
  refillTokensPerSecond: "refill_tokens_per_second",
};

const OPTIONS = new Set(
  "onError deadline maxConnections headers ca cert key onWarning".split(" "),
);

/** What happens to requests that the service does not decide. */
const EFFECTS = { allow: "are allowed", deny: "are denied", raise: "fail" };

export class Client {
  #name;
  #transport;
  #circuit = new Circuit();
  #holds;
  #onWarning;
  #isFailing = false;
  #onError;
  /** The rule sets that do not exist, as far as they were reported. */
  #missing = new Set();
  #undoCheck = this.#undo((answer) => [readDecision(answer)]);

  constructor(url, options = {}) {
    for (const name of Object.keys(options)) {
      if (!OPTIONS.has(name)) throw new TypeError(`there is no option \`${name}\``);
    }
    const {
      onError = "allow",
      deadline = 100,
      maxConnections = 64,
      onWarning = emitWarning,
      ...others
    } = options;
    if (!Object.hasOwn(EFFECTS, onError)) {
      throw new TypeError(`onError is "allow", "deny" or "raise", not ${JSON.stringify(onError)}`);
    }
    if (!(deadline > 0)) throw new TypeError("deadline is a time in milliseconds, above 0");
    if (!(maxConnections >= 1)) throw new TypeError("maxConnections is at least 1");
    this.#onError = onError;
    this.#onWarning = onWarning;
    this.#name = `FluxGate at ${url}`;
    this.#transport = new Transport(url, { deadline, maxConnections, ...others });
    this.#holds = new HoldKeeper((path, body) => this.#ask(path, body, readJson));
  }

  get onError() {
    return this.#onError;
  }

  /** Decides a request, and charges it if it is allowed. */
  async check(ruleSet, request = {}) {
    const body = fieldsOf(request);
    body.rule_set = ruleSet;
    try {
      const read = (answer) => this.#readCheck(answer, ruleSet);
      return await this.#ask(CHECK, body, read, this.#undoCheck);
    } catch (error) {
      return this.fallback(error);
    }
  }

  /** Decides a request without charging it. */
  peek(ruleSet, request = {}) {
    return this.check(ruleSet, { ...request, peek: true });
  }

  /** Decides several requests in one call, separately and in order. */
  async batch(requests) {
    const checks = requests.map(fieldsOf);
    const read = (answer) => {
      const { decisions } = readJson(answer);
      if (!Array.isArray(decisions) || decisions.length !== checks.length) {
        throw new Unavailable("bad_response", "the answer does not have a decision for each check");
      }
      return decisions.map((json, at) => {
        const decision = decisionFrom(json);
        if (json.rule_set === MISSING) this.#warnMissing(checks[at].rule_set, decision);
        return decision;
      });
    };
    const onLate = this.#undo(read);
    try {
      return await this.#ask("/v1/check/batch", { checks }, read, onLate);
    } catch (error) {
      const decision = this.fallback(error);
      return checks.map(() => decision);
    }
  }

  /** Charges one bucket whose limit comes with the call, or one configured rule. */
  async consume(request) {
    const onLate = this.#undo((answer) => [readConsumed(answer)]);
    try {
      return await this.#ask("/v1/consume", fieldsOf(request), readConsumed, onLate);
    } catch (error) {
      return this.fallback(error);
    }
  }

  /**
   * Decides a request and sleeps for the delay of the decision. If the delay is longer than
   * `maxWait` milliseconds, the request is denied. If `signal` is aborted, so is the wait. Both
   * return the units that were reserved.
   */
  async wait(ruleSet, request = {}, { maxWait = Infinity, signal } = {}) {
    signal?.throwIfAborted();
    const decision = await this.check(ruleSet, { ...request, wait: true });
    if (decision.delayMs === 0) return decision;
    if (decision.delayMs > maxWait) return this.refuseWait(ruleSet, request, decision);
    const hold = this.keep(decision);
    try {
      await sleep(decision.delayMs, signal);
    } catch (reason) {
      await this.cancel(decision);
      throw reason;
    } finally {
      hold.forget();
    }
    return decision;
  }

  /**
   * Takes slots, or charges units that are settled later. Throws `Denied` if the request is
   * denied. If it must wait for its units, it does.
   */
  async hold(ruleSet, request = {}, { holdFor = DEFAULT_HOLD, signal } = {}) {
    const held = { ...request, hold: duration(holdFor), wait: true };
    const decision = await this.check(ruleSet, held);
    if (!decision.allowed) throw new Denied(decision);
    const hold = new Hold(this.#holds, decision, RELEASE);
    try {
      await sleep(decision.delayMs, signal);
    } catch (reason) {
      hold.forget();
      await this.cancel(decision);
      throw reason;
    }
    return hold;
  }

  /** Runs `work` while it holds, and leaves the hold when `work` has ended in any way. */
  async withHold(ruleSet, request, work, options) {
    const hold = await this.hold(ruleSet, request, options);
    try {
      return await work(hold);
    } finally {
      await hold.leave();
    }
  }

  /**
   * Renews the hold of a decision until it is settled, released or left. Left, the charge stays
   * as reserved, and only the slots are freed.
   */
  keep(decision) {
    return new Hold(this.#holds, decision, AS_RESERVED);
  }

  /**
   * Cancels the reservation of a decision with a delay, which also ends its hold. Resolves to
   * whether it was cancelled now. If the service does not answer, the call is repeated in the
   * background.
   */
  async cancel(decision) {
    return decision.reservation !== null && this.#holds.cancel(decision);
  }

  /** Cancels a reservation and returns the denial of the same request. */
  async refuseWait(ruleSet, request, decision) {
    await this.cancel(decision);
    return this.check(ruleSet, { ...request, wait: false, again: true });
  }

  /** Returns the decision in place of one that failed, or throws the error, as `onError` says. */
  fallback(error) {
    if (!(error instanceof Unavailable) || this.#onError === "raise") throw error;
    return this.#onError === "deny" ? Decision.failedClosed(error) : Decision.failedOpen(error);
  }

  /** Ends all holds, and closes all connections. */
  async close() {
    await this.#holds.close();
    this.#transport.close();
  }

  [Symbol.asyncDispose]() {
    return this.close();
  }

  /** Reports that the service rejects the calls of a filter. */
  warnRejected(error) {
    const effect = this.#effect();
    this.warn(`${this.#name} rejects the calls of the middleware: ${error.message}; ${effect}`, error);
  }

  /** Reports something that should not happen. */
  warn(message, cause) {
    this.#onWarning(message, cause);
  }

  /** Reads the answer to a check, and reports that its rule set is missing. */
  #readCheck(answer, ruleSet) {
    const decision = readDecision(answer);
    // Nearly all decisions have a rule.
    if (decision.rule === null && isRuleSetMissing(answer)) this.#warnMissing(ruleSet, decision);
    return decision;
  }

  #warnMissing(ruleSet, { allowed }) {
    const isNew = ruleSet !== undefined && !this.#missing.has(ruleSet);
    if (isNew && this.#missing.size < MAX_MISSING) {
      this.#missing.add(ruleSet);
      const effect = allowed ? "pass" : "are denied";
      const message = `has no rule set \`${ruleSet}\`: requests that it should limit ${effect}`;
      this.warn(`${this.#name} ${message}`);
    }
  }

  #effect() {
    return `requests ${EFFECTS[this.#onError]} (on_error=${this.#onError})`;
  }

  async #ask(path, fields, read, onLate) {
    const body = JSON.stringify(fields);
    if (body.length > MAX_BODY / 4 && Buffer.byteLength(body) > MAX_BODY) {
      const detail = `the body is over ${MAX_BODY} bytes`;
      throw new InvalidRequest({ title: "Content Too Large", status: 413, detail });
    }
    const permit = this.#circuit.admit();
    if (permit === undefined) {
      const reason = "it failed before, and is not asked for a moment";
      throw this.#undecided(new Unavailable("circuit_open", reason));
    }
    try {
      const value = read(await this.#transport.post(path, body, onLate));
      this.#succeeded();
      return value;
    } catch (error) {
      if (!(error instanceof Unavailable)) {
        this.#succeeded();
        throw error;
      }
      const undecided = this.#undecided(error);
      this.#failed(permit, undecided);
      throw undecided;
    }
  }

  /** Returns the error of a call with the address of the service. */
  #undecided({ reason, message, cause }) {
    return new Unavailable(reason, `${this.#name} does not decide: ${message}`, cause);
  }

  #succeeded() {
    this.#circuit.succeeded();
    if (!this.#isFailing) return;
    this.#isFailing = false;
    this.warn(`${this.#name} decides again`);
  }

  #failed(permit, error) {
    this.#circuit.failed(permit);
    // Once, and not for every request.
    if (this.#isFailing || error.reason === "closed") return;
    this.#isFailing = true;
    this.warn(`${error.message}; ${this.#effect()}`, error);
  }

  /** Returns a function that gives back what an answer has taken that came too late. */
  #undo(readAll) {
    return (answer) => {
      let decisions;
      try {
        decisions = readAll(answer);
      } catch (error) {
        // Nothing was decided.
        if (error instanceof Unavailable || error instanceof InvalidRequest) return;
        throw error;
      }
      for (const decision of decisions) this.#holds.abandon(decision);
    };
  }
}

/** Returns the fields of a request under the names of the service. */
function fieldsOf(request) {
  const fields = {};
  for (const name in request) {
    const value = request[name];
    fields[FIELDS[name] ?? name] = name === "hold" ? duration(value) : value;
  }
  return fields;
}

function emitWarning(message) {
  process.emitWarning(message, "FluxGateWarning");
}
