// Traffic for the demo, sent from the browser.

import { get, post } from "./api.js";
import { button } from "./components.js";
import { h } from "./dom.js";
import { count } from "./format.js";

const TICK_MS = 100;
const STOP_AFTER_MS = 120_000;
/** More calls than this in flight: the service is slow, so this tick sends nothing. */
const MAX_IN_FLIGHT = 24;

/** Clients and their share of the traffic. The first two go over their limits. */
const CLIENTS = [
  { user: "mallory", ip: "198.51.100.66", weight: 5 },
  { user: "crawler", ip: "198.51.100.7", weight: 3 },
  ...Array.from({ length: 24 }, (_, i) => ({ user: `user-${i + 1}`, ip: `203.0.113.${i + 1}`, weight: 1 })),
];

/**
 * A button that starts and stops demo traffic. The traffic goes on in other views, and ends on
 * its own.
 * @param {import("./main.js").Context} context
 * @returns {{element: HTMLElement, dispose: () => void}}
 */
export function demoTraffic({ notify }) {
  const text = h("span", { class: "hint" });
  const toggle = button("", () => (running ? running.stop() : startTraffic(notify)), { kind: "primary" });
  function show() {
    toggle.textContent = running ? "Stop demo traffic" : "Send demo traffic";
    toggle.classList.toggle("primary", !running);
    const left = running ? Math.ceil((running.until - Date.now()) / 1000) : 0;
    text.textContent = running ? `${count(running.sent, "request")} sent, stops in ${left} s` : "";
  }
  show();
  const timer = setInterval(show, 1000);
  addEventListener("demo-traffic", show);
  return {
    element: h("div", { class: "actions" }, text, toggle),
    dispose() {
      clearInterval(timer);
      removeEventListener("demo-traffic", show);
    },
  };
}

/** The traffic of this page, if any. @type {{stop: () => void, sent: number, until: number} | null} */
let running = null;

/** @param {(text: string, kind?: "good" | "bad") => void} notify */
async function startTraffic(notify) {
  const stopped = new AbortController();
  const until = Date.now() + STOP_AFTER_MS;
  let inFlight = 0;
  const stop = () => {
    stopped.abort();
    clearInterval(timer);
    if (running === traffic) running = null;
    dispatchEvent(new Event("demo-traffic"));
  };
  const traffic = { stop, sent: 0, until };
  const fail = (/** @type {unknown} */ error) => {
    if (stopped.signal.aborted) return;
    stop();
    notify(`The demo traffic stopped: ${error instanceof Error ? error.message : error}`, "bad");
  };
  /** @type {(() => unknown)[]} */
  let kinds = [];
  const timer = setInterval(() => {
    if (Date.now() > until) return stop();
    // 20 to 60 requests a second, in slow waves.
    const requests = 4 + 2 * Math.sin(Date.now() / 5000) + (Math.random() - 0.5);
    for (let i = 0; i < Math.round(requests) && kinds.length > 0 && inFlight < MAX_IN_FLIGHT; i += 1) {
      inFlight += 1;
      post("/v1/check", kinds[Math.floor(Math.random() * kinds.length)](), stopped.signal)
        .then(() => (traffic.sent += 1), fail)
        .finally(() => (inFlight -= 1));
    }
  }, TICK_MS);
  running = traffic;
  dispatchEvent(new Event("demo-traffic"));
  try {
    kinds = requestsFor(await get("/v1/rule_sets", stopped.signal));
    if (kinds.length === 0) fail("there is no rule set.");
  } catch (error) {
    fail(error);
  }
}

/**
 * Returns makers of requests. The rules of the demo match the path of their name: `fixed`
 * matches `/fixed/**`.
 * @param {{rule_sets: {name: string, rules: {id: string}[]}[]}} active
 */
function requestsFor({ rule_sets: sets }) {
  return sets.slice(0, 1).flatMap(({ name, rules }) =>
    rules.map(({ id }) => () => {
      const { user, ip } = pickClient();
      const method = Math.random() < 0.8 ? "GET" : "POST";
      const path = `/${id}/${1 + Math.floor(Math.random() * 40)}`;
      return { rule_set: name, user, ip, method, path };
    }));
}

function pickClient() {
  const sum = CLIENTS.reduce((total, { weight }) => total + weight, 0);
  let rest = Math.random() * sum;
  return CLIENTS.find(({ weight }) => (rest -= weight) < 0) ?? CLIENTS[0];
}
