// What is wrong, on every view: a line of what the service depends on, and a banner in plain words
// for what does not work.

import { browserAhead } from "./clock.js";
import { h, replace } from "./dom.js";
import { isLate, nameOf } from "./fleet.js";
import { count, duration, listed, time } from "./format.js";
import { watch } from "./polling.js";

/** @import { LiveEvent, Session } from "./api.js" */
/** @import { LiveFeed } from "./live.js" */
/** @import { Fleet, FleetFeed, Instance } from "./fleet.js" */
/** @typedef {"good" | "warn" | "bad" | "quiet"} Level */
/** A part of the line. @typedef {{level: Level, text: string, href?: string}} Part */
/** @typedef {{level: "warn" | "bad", title: string, text: string}} Trouble */
/** An answer of `/v1/routes`. @typedef {{routes: {id: string, upstreams: {
 *   url: string, health: "up" | "out", reason: string | null, requests: number, failures: number,
 * }[]}[]}} Routes */

const ROUTES_PATH = "/v1/routes";
const ROUTES_EVERY_MS = 10_000;
/** A clock that differs by less is not worth a word. */
const CLOCK_MS = 30_000;

/** @param {{signal: AbortSignal, live: LiveFeed, fleet: FleetFeed, session: Session}} sources */
export function health({ signal, live, fleet, session }) {
  const line = h("ul.health", { "aria-label": "Health" });
  const banners = h("div.banners");
  let routes = /** @type {Routes | null} */ (null);
  /** When the troubles began, by title. @type {Map<string, number>} */
  const since = new Map();

  if (session.routes) {
    watch(signal, ROUTES_PATH, ROUTES_EVERY_MS, (answer) => {
      routes = answer;
      update();
    }, () => (routes = null));
  }

  function update() {
    const event = live.latest;
    if (!event) return;
    const troubles = [
      ...storeTroubles(event, fleet.latest), ...instanceTroubles(fleet.latest), ...upstreamTroubles(routes),
      ...webhookTroubles(fleet.latest), ...versionTroubles(fleet.latest, session.version),
    ];
    showLine(line, [
      storePart(event, fleet.latest), instancePart(fleet.latest), upstreamPart(routes),
      webhookPart(fleet.latest), clockPart(),
    ].filter((part) => part !== null));
    for (const title of since.keys()) {
      if (!troubles.some((each) => each.title === title)) since.delete(title);
    }
    for (const { title } of troubles) if (!since.has(title)) since.set(title, event.at_ms);
    showBanners(banners, troubles, since);
  }
  live.subscribe(signal, update);
  fleet.subscribe(signal, update);
  return { line, banners };
}

/** @param {LiveEvent} event @param {Fleet | null} fleet */
const isStoreLost = ({ store }, fleet) =>
  store.kind !== "memory" && (store.breaker !== "closed" || Boolean(fleet?.failure));

/** @param {LiveEvent} event @param {Fleet | null} fleet @returns {Trouble[]} */
function storeTroubles(event, fleet) {
  if (event.store.kind === "memory") return [];
  if (isStoreLost(event, fleet)) {
    return [{ level: "bad", title: "Redis does not answer.",
      text: "Until it is back, limits are not shared: each instance decides by itself, or allows or denies "
        + "every request, as on_error of the rule set says. What is used cannot be read, refunded or "
        + "reset. Nothing needs to be done here when Redis is back." }];
  }
  const others = (fleet?.instances ?? []).filter((each) => each.store && each.store.breaker !== "closed");
  return others.length === 0 ? [] : [{ level: "bad",
    title: `Redis does not answer ${listed(others.map(nameOf))}.`,
    text: "This instance reaches Redis. The others decide without it, as on_error of the rule set says." }];
}

/** @param {Fleet | null} fleet @returns {Trouble[]} */
function instanceTroubles(fleet) {
  const late = (fleet?.instances ?? []).filter(isLate);
  if (late.length === 0) return [];
  return [{ level: "warn",
    title: `No sign of life from ${listed(late.map(nameOf))}.`,
    text: `${late.length === 1 ? "It has" : "They have"} stopped, or cannot reach Redis. The other instances `
      + "go on, and all counters are in Redis." }];
}

/** @param {Routes | null} routes */
const upstreamsOf = (routes) => (routes?.routes ?? []).flatMap(({ id, upstreams }) =>
  upstreams.map((upstream) => ({ route: id, ...upstream })));

/** @param {Routes | null} routes @returns {Trouble[]} */
function upstreamTroubles(routes) {
  const out = upstreamsOf(routes).filter(({ health: state }) => state === "out");
  if (out.length === 0) return [];
  const names = [...new Set(out.map(({ url, route, reason }) =>
    `${url} of route ${route}${reason ? ` (${reason})` : ""}`))];
  const lost = (routes?.routes ?? []).filter(({ upstreams }) =>
    upstreams.length > 0 && upstreams.every(({ health: state }) => state === "out"));
  return [{ level: lost.length > 0 ? "bad" : "warn",
    title: `${count(names.length, "upstream is", "upstreams are")} out: ${listed(names)}.`,
    text: lost.length > 0 ? `Route ${listed(lost.map(({ id }) => id))} has no upstream left.`
      : "The gateway sends requests to the others, and tries again by itself." }];
}

/** @param {Fleet | null} fleet */
const webhooksOf = (fleet) => (fleet?.instances ?? []).flatMap(({ webhooks }) => webhooks ?? []);

/** @param {Fleet | null} fleet @returns {Trouble[]} */
function webhookTroubles(fleet) {
  const failing = webhooksOf(fleet).filter((each) => each.is_failing);
  if (failing.length === 0) return [];
  const waiting = failing.reduce((sum, { queued }) => sum + queued, 0);
  return [{ level: "warn",
    title: `The webhook ${listed([...new Set(failing.map(({ server }) => server))])} does not accept events.`,
    text: `${count(waiting, "event waits", "events wait")} for it. Each is tried for an hour.` }];
}

/** @param {Fleet | null} fleet @param {string} version of the page @returns {Trouble[]} */
function versionTroubles(fleet, version) {
  const own = fleet?.instances.find((each) => each.is_self)?.version;
  return !own || own === version ? [] : [{ level: "warn",
    title: `The service was updated to version ${own}.`,
    text: "Reload this page: it is of the version before." }];
}

/** @param {LiveEvent} event @param {Fleet | null} fleet @returns {Part} */
function storePart(event, fleet) {
  if (event.store.kind === "memory") return { level: "quiet", text: "Counters in memory of this process" };
  return isStoreLost(event, fleet) ? { level: "bad", text: "Redis does not answer" }
    : { level: "good", text: "Redis answers" };
}

/** @param {Fleet | null} fleet @returns {Part | null} */
function instancePart(fleet) {
  if (!fleet) return null;
  const late = fleet.instances.filter(isLate).length;
  const text = fleet.failure ? "Other instances unknown"
    : late > 0 ? `${late} of ${count(fleet.instances.length, "instance")} silent`
    : count(fleet.instances.length, "instance");
  return { level: fleet.failure || late > 0 ? "warn" : "good", text, href: "#/instances" };
}

/** @param {Routes | null} routes @returns {Part | null} */
function upstreamPart(routes) {
  const all = upstreamsOf(routes);
  if (all.length === 0) return null;
  const out = all.filter(({ health: state }) => state === "out").length;
  return out > 0 ? { level: "bad", text: `${out} of ${count(all.length, "upstream")} out` }
    : { level: "good", text: `${count(all.length, "upstream")} up` };
}

/** @param {Fleet | null} fleet @returns {Part | null} */
function webhookPart(fleet) {
  const all = webhooksOf(fleet);
  if (all.length === 0) return null;
  const isFailing = all.some((each) => each.is_failing);
  return { level: isFailing ? "warn" : "good", text: isFailing ? "Webhook fails" : "Webhooks sent" };
}

/** @returns {Part | null} */
function clockPart() {
  const ahead = browserAhead();
  if (Math.abs(ahead) < CLOCK_MS) return null;
  return { level: "warn", text: `The clock of this browser is ${duration(Math.abs(ahead))} `
    + `${ahead > 0 ? "fast" : "slow"}; times here are those of the service` };
}

/** @param {Element} line @param {Part[]} parts */
function showLine(line, parts) {
  const text = JSON.stringify(parts);
  if (line.getAttribute("data-shown") === text) return;
  line.setAttribute("data-shown", text);
  replace(line, parts.map(({ level, text: words, href }) =>
    h(`li.health-part.${level}`, href ? h("a", { href }, words) : words)));
}

/** Banners stay as they are while they say the same, so that they are read out once.
 * @param {Element} place @param {Trouble[]} troubles @param {Map<string, number>} since */
function showBanners(place, troubles, since) {
  const texts = troubles.map(({ level, title, text }) => JSON.stringify([level, title, text]));
  for (const child of [...place.children]) {
    if (!texts.includes(child.getAttribute("data-shown") ?? "")) child.remove();
  }
  troubles.forEach(({ level, title, text }, index) => {
    const isShown = [...place.children].some((each) => each.getAttribute("data-shown") === texts[index]);
    if (isShown) return;
    place.append(h(`div.banner.${level}`,
      { role: level === "bad" ? "alert" : "status", "data-shown": texts[index] },
      h("p", h("strong", title), ` ${text} `, h("span.hint", `Since ${time(since.get(title) ?? 0)}.`))));
  });
}

/** Says that the service does not answer. @param {LiveFeed} live @param {Element} place
 * @param {unknown} problem `null`: it answers */
export function showConnection(live, place, problem) {
  if (!problem) return replace(place);
  if (place.firstChild) return;
  const asOf = live.latest ? ` What is shown is of ${time(live.latest.at_ms)}.` : "";
  replace(place, h("div.banner.bad", { role: "alert" },
    h("p", h("strong", "Connection lost. "), `${problem} Reconnecting every second.${asOf}`)));
}
