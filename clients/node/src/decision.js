// Decisions of the service, and those that stand in for them.

import { STATUS_CODES } from "node:http";

import { InvalidRequest, Unavailable } from "./errors.js";

/** The headers that report limits, by their names in lower case. */
export const LIMIT_HEADERS = new Map(
  [
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "RateLimit-Policy",
    "RateLimit",
    "Retry-After",
  ].map((name) => [name.toLowerCase(), name]),
);

const QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY =
  "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/** The header with the status of a rule that forbids a request. */
const STATUS = "x-fluxgate-status";

/**
 * The header by which the service tells that a check names a rule set that does not exist. In a
 * batch, the decision has a field `rule_set` with this value.
 */
const RULE_SET = "x-fluxgate-rule-set";
export const MISSING = "missing";

/** The titles of statuses that Node spells in another way than the gateway. */
const TITLES = { 418: "I'm a teapot" };

/** Whether each outcome allows the request; null if it may do either. */
const OUTCOMES = {
  allowed: true,
  shadow_denied: true,
  no_rule: true,
  exempt: true,
  failed_open: true,
  denied: false,
  never: false,
  forbidden: false,
  failed_closed: false,
  fallback: null,
};

/** What the service says about one request. */
export class Decision {
  constructor(fields) {
    this.allowed = fields.allowed;
    this.outcome = fields.outcome;
    this.rule = fields.rule ?? null;
    this.band = fields.band ?? null;
    this.limit = fields.limit ?? null;
    this.remaining = fields.remaining ?? null;
    this.retryAfterMs = fields.retryAfterMs ?? null;
    this.resetAfterMs = fields.resetAfterMs ?? 0;
    this.delayMs = fields.delayMs ?? 0;
    this.violated = fields.violated ?? [];
    this.hold = fields.hold ?? null;
    this.holdMs = fields.holdMs ?? null;
    this.reservation = fields.reservation ?? null;
    this.status = fields.status ?? statusOf(fields);
    this.headers = fields.headers ?? {};
    this.error = fields.error ?? null;
  }

  /** After how many seconds the same request would pass; null if it never will. */
  get retryAfter() {
    return this.retryAfterMs === null ? null : this.retryAfterMs / 1000;
  }

  get resetAfter() {
    return this.resetAfterMs / 1000;
  }

  get delay() {
    return this.delayMs / 1000;
  }

  /** The decision in place of a service that does not decide, if it must not stop requests. */
  static failedOpen(error) {
    return new Decision({ allowed: true, outcome: "failed_open", retryAfterMs: 0, error });
  }

  /** The decision in place of a service that does not decide, if no request may pass then. */
  static failedClosed(error) {
    return new Decision({
      allowed: false,
      outcome: "failed_closed",
      retryAfterMs: 1000,
      headers: { "retry-after": "1" },
      error,
    });
  }

  /** The decision about a request that cannot be sent to the service. */
  static never() {
    return new Decision({ allowed: false, outcome: "never", remaining: 0 });
  }
}

/** Returns the status that the gateway would send. */
function statusOf({ allowed, outcome }) {
  if (allowed) return 200;
  return { forbidden: 403, failed_closed: 503 }[outcome] ?? 429;
}

/** Returns the body with which the gateway refuses a request. */
export function problemOf(decision) {
  const { status, outcome } = decision;
  return {
    ...kindOf(decision),
    status,
    ...detailOf(decision),
    "violated-policies": decision.violated,
    ...(status === 503 ? { outcome } : {}),
    retry_after_ms: decision.retryAfterMs,
  };
}

function kindOf({ status, outcome }) {
  if (status === 503) {
    return { type: REDUCED_CAPACITY, title: "Requests cannot be counted at the moment" };
  }
  if (outcome === "forbidden") {
    return { type: "about:blank", title: TITLES[status] ?? STATUS_CODES[status] ?? "Forbidden" };
  }
  const isNever = outcome === "never";
  const used = "The quota for these requests is used up";
  return { type: QUOTA_EXCEEDED, title: isNever ? "This request can never pass the limit" : used };
}

/** Returns the reason of a denial that waiting does not end. */
function detailOf({ outcome, rule, limit }) {
  if (outcome === "forbidden") return { detail: "a rule forbids this request" };
  // A request that is too large to be sent has no rule.
  if (outcome !== "never" || rule === null) return {};
  if (limit !== null) return { detail: "its cost is above the capacity of the limit" };
  return { detail: "it lacks a part of the key that the rule counts by" };
}

/** Returns the JSON of an answer. Throws `InvalidRequest` if the service refuses the call. */
export function readJson({ status, body }) {
  let json;
  try {
    json = JSON.parse(body);
  } catch (cause) {
    throw new Unavailable("bad_response", `the answer (${status}) is not JSON`, cause);
  }
  if (json === null || typeof json !== "object") throw unexpected(status);
  if (status === 200) return json;
  // 408 and 429 come from something that is busy, not from a fault of the call.
  if (status >= 400 && status < 500 && status !== 408 && status !== 429) {
    const { type, title, detail } = json;
    throw new InvalidRequest({ type, title, status, detail });
  }
  throw unexpected(status);
}

/** Returns the decision in an answer to a check. */
export function readDecision(answer) {
  const json = readJson(answer);
  const headers = limitHeaders(answer.rawHeaders);
  const isForbidden = json.outcome === "forbidden";
  return decisionFrom(json, headers, isForbidden ? forbiddenStatus(answer) : undefined);
}

/** Returns whether an answer to a check says that its rule set does not exist. */
export function isRuleSetMissing(answer) {
  return header(answer, RULE_SET) === MISSING;
}

/** Returns the status of a rule that forbids a request. A proxy may have removed the header. */
function forbiddenStatus(answer) {
  const status = Number(header(answer, STATUS));
  return status >= 400 && status < 500 ? status : 403;
}

/** Returns the first line of a header of an answer; undefined if there is none. */
function header({ rawHeaders }, name) {
  const at = rawHeaders.findIndex((it, at) => at % 2 === 0 && it.toLowerCase() === name);
  return at < 0 ? undefined : rawHeaders[at + 1];
}

/** Returns the decision in a JSON object of the service. */
export function decisionFrom(json, headers, status) {
  const { allowed, outcome, violated } = json;
  const expected = Object.hasOwn(OUTCOMES, outcome) ? OUTCOMES[outcome] : undefined;
  const isConsistent =
    typeof allowed === "boolean" &&
    expected !== undefined &&
    (expected === null || expected === allowed) &&
    Array.isArray(violated) &&
    isCount(json.delay_ms) &&
    isCount(json.reset_after_ms) &&
    (json.retry_after_ms === null || isCount(json.retry_after_ms));
  // Never an allow by accident.
  if (!isConsistent) throw unexpected(200);
  return new Decision({
    status,
    headers,
    allowed,
    outcome,
    rule: json.rule,
    band: json.band,
    limit: json.limit,
    remaining: json.remaining,
    retryAfterMs: json.retry_after_ms,
    resetAfterMs: json.reset_after_ms,
    delayMs: json.delay_ms,
    violated,
    hold: json.hold,
    holdMs: json.hold_ms,
    reservation: json.reservation,
  });
}

/** Returns the decision in an answer to `/v1/consume`, which has fewer fields. */
export function readConsumed(answer) {
  const json = readJson(answer);
  const { allowed, retry_after_ms: retry, remaining } = json;
  const outcome = json.outcome ?? (allowed ? "allowed" : retry === null ? "never" : "denied");
  const fields = { rule: null, band: null, limit: null, reset_after_ms: 0, delay_ms: 0 };
  const { hold, hold_ms } = json;
  return decisionFrom({
    ...fields,
    allowed,
    outcome,
    remaining,
    retry_after_ms: retry,
    violated: [],
    hold,
    hold_ms,
  });
}

function isCount(value) {
  return typeof value === "number" && value >= 0;
}

function unexpected(status) {
  return new Unavailable("bad_response", `the answer (${status}) is not a decision`);
}

/** Returns the headers that report limits, by their names in lower case. */
function limitHeaders(rawHeaders) {
  const headers = {};
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const written = rawHeaders[at];
    // The service writes them in lower case; a proxy may not.
    const name = LIMIT_HEADERS.has(written) ? written : written.toLowerCase();
    if (!LIMIT_HEADERS.has(name)) continue;
    const value = rawHeaders[at + 1];
    headers[name] = Object.hasOwn(headers, name) ? `${headers[name]}, ${value}` : value;
  }
  return headers;
}
