// The headers that report limits, on the responses of the application.

import { LIMIT_HEADERS } from "./decision.js";

/** The limit headers that were set on a response. */
const WRITTEN = Symbol("fluxgate.limitHeaders");

/**
 * Sets the limit headers of a decision on a response. With several decisions for one request, the
 * lists hold the entries of all; the others describe the one with the least left, or the denial.
 */
export function setLimitHeaders(response, { headers, allowed }) {
  const known = response[WRITTEN];
  // Something else has answered in the meantime, or there is nothing to report.
  if (response.headersSent || Object.keys(headers).length === 0) return;
  const merged = known === undefined ? headers : merge(known, headers, allowed);
  response[WRITTEN] = merged;
  write(response, merged);
}

/** Returns the limit headers that were set on a response. */
export function limitHeadersOf(response) {
  return response[WRITTEN] ?? {};
}

function write(response, headers) {
  for (const name in headers) response.setHeader(LIMIT_HEADERS.get(name), headers[name]);
}

function merge(known, added, allowed) {
  const merged = { ...known };
  for (const name of ["ratelimit-policy", "ratelimit"]) {
    const values = [known[name], added[name]].filter((value) => value !== undefined);
    if (values.length > 0) merged[name] = values.join(",");
  }
  const left = (headers) => Number(headers["x-ratelimit-remaining"] ?? Infinity);
  if (!allowed || left(added) < left(known)) {
    for (const name of ["limit", "remaining", "reset"]) {
      const value = added[`x-ratelimit-${name}`];
      if (value !== undefined) merged[`x-ratelimit-${name}`] = value;
    }
  }
  if (added["retry-after"] !== undefined) merged["retry-after"] = added["retry-after"];
  return merged;
}
