// The headers that report limits, on the responses of the application.

import { LIMIT_HEADERS } from "./decision.js";

/** The limit headers of responses that are not sent yet. */
const pending = new WeakMap();

/**
 * Sets the limit headers of a decision on a response. With several decisions for one request, the
 * lists hold the entries of all; the others describe the one with the least left, or the denial.
 */
export function setLimitHeaders(response, { headers, allowed }) {
  const known = pending.get(response);
  // Something else has answered in the meantime, or there is nothing to report.
  if (response.headersSent || Object.keys(headers).length === 0) return;
  const merged = known === undefined ? { ...headers } : merge(known, headers, allowed);
  if (known === undefined) setAgainBeforeHead(response);
  pending.set(response, merged);
  write(response, merged);
}

function write(response, headers) {
  for (const name in headers) response.setHeader(LIMIT_HEADERS.get(name), headers[name]);
}

/** Koa and some error handlers remove all headers before they answer. */
function setAgainBeforeHead(response) {
  const { writeHead } = response;
  response.writeHead = function (...args) {
    response.writeHead = writeHead;
    const headers = pending.get(response);
    for (const name in headers) {
      if (!response.hasHeader(name)) response.setHeader(LIMIT_HEADERS.get(name), headers[name]);
    }
    return writeHead.apply(response, args);
  };
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
