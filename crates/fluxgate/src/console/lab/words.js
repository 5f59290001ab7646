// What an algorithm does with the pattern, in a sentence or two.

/** @typedef {import("./settings.js").Settings} Settings */
/** @typedef {import("./results.js").Result} Result */

/**
 * Returns a time as people say it: `500 ms`, `1.5 s`.
 * @param {number} milliseconds
 */
export function span(milliseconds) {
  if (milliseconds < 1000) return `${Number(milliseconds.toPrecision(3))}\u202fms`;
  return `${Number((milliseconds / 1000).toPrecision(3))}\u202fs`;
}

/**
 * @param {Result} result
 * @param {Result} log the result of the sliding log, which is exact
 * @param {Settings} settings
 * @returns {string}
 */
export function sentence(result, log, settings) {
  const { capacity, window } = settings;
  if (result.allowed + result.refused === 0) return "No request arrives.";
  switch (result.id) {
    case "token_bucket":
      return tokenBucket(result, settings);
    case "leaky_bucket":
      return leakyBucket(result, settings);
    case "fixed_window":
      if (result.worst > capacity) {
        return `The count starts again at each window edge, so ${result.worst} requests pass within `
          + `${span(window)}: ${times(result.worst, capacity)} the limit.`;
      }
      return "The count starts again at each window edge. This pattern gains nothing from it.";
    case "sliding_log":
      return `Exact: it keeps the time of every request, so no interval of ${span(window)} admits `
        + `more than ${capacity}.`;
    case "sliding_window":
      return slidingWindow(result, log, settings);
    case "concurrency":
      return concurrency(result, settings);
  }
}

/** @param {Result} result @param {Settings} settings */
function tokenBucket({ refused, worst }, { capacity, window, burst, refill }) {
  const size = burst ?? capacity;
  if (refused === 0) return `The bucket of ${size} never runs empty, so every request passes.`;
  const pace = span(window / (refill ?? capacity));
  const start = `A burst may take all ${size} tokens; then one request passes every ${pace}.`;
  if (worst <= capacity) return start;
  return `${start} Burst and refill together let ${worst} pass within ${span(window)}.`;
}

/** @param {Result} result @param {Settings} settings */
function leakyBucket({ refused, delay }, { capacity, window, burst, refill, shape }) {
  if (!shape) return "Without a queue it admits exactly what the token bucket admits.";
  if (delay === 0) return "The requests are far enough apart: none has to wait in the queue.";
  const pace = span(window / (refill ?? capacity));
  const full = refused > 0 ? ` When ${burst ?? capacity} are in it, more are denied.` : "";
  return `A queue that lets one request go every ${pace}; the longest wait is ${span(delay)}.${full}`;
}

/** @param {Result} result @param {Result} log @param {Settings} settings */
function slidingWindow(result, log, { capacity, window }) {
  const start = "Estimates the log from two counts.";
  const more = result.allowed - log.allowed;
  const differs = more === 0 ? "as many as the log" : `${Math.abs(more)} ${more > 0 ? "more" : "fewer"}`;
  const excess = result.worst > capacity ? `, and up to ${result.worst} within ${span(window)}` : "";
  return `${start} Here it admits ${differs}${more === 0 ? "" : " than the log"}${excess}.`;
}

/** @param {Result} result @param {Settings} settings */
function concurrency({ worst, peak }, { capacity, window, run }) {
  const start = `Counts requests that run, each for ${span(run)}: at most ${peak} of ${capacity} at once.`;
  return `${start} It does not limit the rate: ${worst} start within ${span(window)}.`;
}

/**
 * @param {number} value
 * @param {number} limit
 */
export function times(value, limit) {
  return `${Number((value / limit).toFixed(value / limit < 1.1 ? 2 : 1))}×`;
}
