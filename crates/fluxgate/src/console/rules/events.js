// Recorded requests out of a log that somebody uploads. Pure.

/** @typedef {Record<string, unknown>} Event a line of docs/simulate.md */
/** @typedef {{events: Event[], bad: number, cut: boolean}} Log `bad` lines were left out; `cut` if there were more */

export const MOST_EVENTS = 10_000;

const COMBINED =
  /^(\S+) \S+ (.+?) \[([^\]]+)\] "((?:[^"\\]|\\.)*)" \S+ \S+(?: "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)")?/;
const TIME = /^(\d\d)\/(\w{3})\/(\d{4}):(\d\d:\d\d:\d\d) ([+-]\d\d)(\d\d)$/;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/**
 * Reads `ndjson`, or the combined format of Apache and nginx, whichever the first line is.
 * @param {string} text
 * @returns {Log}
 */
export function parseLog(text) {
  const isJson = text.trimStart().startsWith("{");
  /** @type {Log} */
  const log = { events: [], bad: 0, cut: false };
  let latest = 0;
  let start = 0;
  while (start < text.length) {
    const found = text.indexOf("\n", start);
    const end = found < 0 ? text.length : found;
    const line = text.slice(start, end).trim();
    start = end + 1;
    if (line === "") continue;
    if (log.events.length === MOST_EVENTS) return { ...log, cut: true };
    const event = isJson ? jsonEvent(line) : combinedEvent(line);
    if (!event) {
      log.bad++;
      continue;
    }
    if (!isJson) {
      // A server logs a request when it ends: where time would go back, it stands still.
      latest = Math.max(latest, Number(event.t));
      event.t = latest;
    }
    log.events.push(event);
  }
  return log;
}

/**
 * Returns the events of one set; those that name no set become its own.
 * @param {Event[]} events
 * @param {string} set
 */
export function eventsOfSet(events, set) {
  const holds = new Set();
  return events.flatMap((event) => {
    if ("settle" in event) return holds.has(event.settle) ? [event] : [];
    if ((event.rule_set ?? set) !== set) return [];
    if (event.hold) holds.add(event.hold);
    return [{ ...event, rule_set: set }];
  });
}

/**
 * @param {string} line
 * @returns {Event | null}
 */
function jsonEvent(line) {
  try {
    const event = JSON.parse(line);
    const isEvent = typeof event === "object" && event !== null && !Array.isArray(event);
    return isEvent && ("t" in event || "time" in event) ? event : null;
  } catch {
    return null;
  }
}

/**
 * @param {string} line
 * @returns {Event | null}
 */
function combinedEvent(line) {
  const [, ip, user, time, request, referer, agent] = COMBINED.exec(line) ?? [];
  const t = time === undefined ? NaN : timeOf(time);
  if (!Number.isFinite(t)) return null;
  /** @type {Event} */
  const event = { t: t * 1000 };
  // Servers can be set to log names in place of addresses.
  if (/^[\d.]+$|:/.test(ip)) event.ip = ip;
  if (user !== "-") event.user = unescape(user);
  const [, method, target] = /^(\S+) (\S+)(?: HTTP\/[\d.]+)?$/.exec(unescape(request)) ?? [];
  if (method) {
    event.method = method;
    event.path = pathOf(target);
  }
  /** @type {Record<string, string>} */
  const headers = {};
  if (referer && referer !== "-") headers.referer = unescape(referer);
  if (agent && agent !== "-") headers["user-agent"] = unescape(agent);
  if (Object.keys(headers).length > 0) event.headers = headers;
  return event;
}

/** @param {string} text */
function timeOf(text) {
  const [, day, name, year, clock, hours, minutes] = TIME.exec(text) ?? [];
  const month = String(MONTHS.indexOf(name) + 1).padStart(2, "0");
  return Date.parse(`${year}-${month}-${day}T${clock}${hours}:${minutes}`);
}

/** @param {string} target */
function pathOf(target) {
  const path = target.replace(/^https?:\/\/[^/?#]*/i, "").replace(/[?#].*$/, "");
  return path === "" ? "/" : path;
}

/** @param {string} text */
function unescape(text) {
  return text.replace(/\\(?:x([0-9A-Fa-f]{2})|(.))/g, (_, hex, char) =>
    hex ? String.fromCharCode(parseInt(hex, 16)) : char);
}
