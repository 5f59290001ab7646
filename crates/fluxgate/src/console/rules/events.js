// Parses an uploaded log into recorded requests.

/** @import { Recorded } from "../api.js" */

export const MOST_EVENTS = 10_000;

const COMBINED =
  /^(\S+) \S+ (.+?) \[([^\]]+)\] "((?:[^"\\]|\\.)*)" \S+ \S+(?: "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)")?/;

/**
 * Reads `ndjson`, or the combined format of Apache and nginx, whichever the first line is. `bad`
 * lines are left out, and those beyond the limit if it is `cut`.
 * @param {string} text
 */
export function parseLog(text) {
  const read = text.trimStart().startsWith("{") ? jsonEvent : combinedEvent;
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  /** @type {Recorded[]} */
  const events = [];
  let bad = 0;
  let latest = 0;
  let next = 0;
  for (; next < lines.length && events.length < MOST_EVENTS; next++) {
    const event = read(lines[next].trim());
    if (!event) bad++;
    else if (read === jsonEvent) events.push(event);
    else {
      // A server logs a request when it ends: where time would go back, it stands still.
      latest = Math.max(latest, event.t ?? 0);
      events.push({ ...event, t: latest });
    }
  }
  return { events, bad, cut: next < lines.length };
}

/**
 * Returns the events of one set; those that name no set become its own.
 * @param {Recorded[]} events @param {string} set
 */
export function eventsOfSet(events, set) {
  const holds = new Set();
  return events.flatMap((event) => {
    if (event.settle !== undefined) return holds.has(event.settle) ? [event] : [];
    if ((event.rule_set ?? set) !== set) return [];
    if (event.hold) holds.add(event.hold);
    return [{ ...event, rule_set: set }];
  });
}

/** @param {string} line @returns {Recorded | null} */
function jsonEvent(line) {
  try {
    const event = JSON.parse(line);
    return event.t !== undefined || event.time !== undefined ? event : null;
  } catch {
    return null;
  }
}

/** @param {string} line @returns {Recorded | null} */
function combinedEvent(line) {
  const [, ip, user, time = "", request = "", referer = "-", agent = "-"] = COMBINED.exec(line) ?? [];
  // 01/Jan/2026:09:10:00 +0100
  const t = Date.parse(time.replace(/^(\d+)\/(\w+)\/(\d+):/, "$1 $2 $3 ")) * 1000;
  if (Number.isNaN(t)) return null;
  const [, method, target = ""] = /^(\S+) (\S+)/.exec(unescape(request)) ?? [];
  const headers = Object.entries({ referer, "user-agent": agent }).filter(([, value]) => value !== "-");
  return {
    t,
    // Servers can be set to log names in place of addresses.
    ...(/^[\d.]+$|:/.test(ip) && { ip }),
    ...(user !== "-" && { user: unescape(user) }),
    ...(method && { method, path: pathOf(target) }),
    ...(headers.length > 0 && {
      headers: Object.fromEntries(headers.map(([name, value]) => [name, unescape(value)])),
    }),
  };
}

/** @param {string} target */
const pathOf = (target) => target.replace(/^https?:\/\/[^/?#]*/i, "").replace(/[?#].*$/, "") || "/";

/** @param {string} text */
function unescape(text) {
  return text.replace(/\\(?:x([0-9A-Fa-f]{2})|(.))/g, (_, hex, char) =>
    hex ? String.fromCharCode(parseInt(hex, 16)) : char);
}
