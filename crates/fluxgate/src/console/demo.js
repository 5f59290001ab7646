// Traffic for the demo, sent from the browser.

import { get, post } from "./api.js";
import { button } from "./components.js";
import { h } from "./dom.js";
import { count } from "./format.js";

/** @import { RuleSet } from "./api.js" */
/** @import { Context } from "./main.js" */

const TICK_MS = 100;
const STOP_AFTER_MS = 120_000;
/** With more calls in flight the service is slow, and gets no others. */
const MAX_IN_FLIGHT = 24;

/** The traffic of this page, if any. @type {{sent: number, until: number} | null} */
let running = null;

/** A button for traffic that goes on in other views, and ends on its own. @param {Context} context */
export function demoTraffic({ notify, signal }) {
  const text = h("span.hint");
  const toggle = button("", () => {
    if (running) running = null;
    else startTraffic(notify);
    show();
  });
  function show() {
    toggle.textContent = running ? "Stop demo traffic" : "Send demo traffic";
    toggle.classList.toggle("primary", !running);
    const left = running && Math.ceil((running.until - Date.now()) / 1000);
    text.textContent = running ? `${count(running.sent, "request")} sent, stops in ${left} s` : "";
  }
  show();
  const timer = setInterval(show, 500);
  signal.addEventListener("abort", () => clearInterval(timer));
  return h("div.actions", text, toggle);
}

/** @param {Context["notify"]} notify */
async function startTraffic(notify) {
  const traffic = (running = { sent: 0, until: Date.now() + STOP_AFTER_MS });
  let inFlight = 0;
  let failure = null;
  try {
    const { rule_sets: [set] } = await get("/v1/rule_sets");
    while (running === traffic && Date.now() < traffic.until && !failure) {
      // 20 to 60 requests a second, in slow waves.
      const requests = Math.round(4 + 2 * Math.sin(Date.now() / 5000));
      for (let i = 0; i < requests && inFlight < MAX_IN_FLIGHT; i++) {
        inFlight++;
        post("/v1/check", requestFor(set))
          .then(() => traffic.sent++, (error) => (failure = error))
          .finally(() => inFlight--);
      }
      await new Promise((done) => setTimeout(done, TICK_MS));
    }
    if (failure) throw failure;
  } catch (error) {
    notify(`The demo traffic stopped: ${/** @type {Error} */ (error).message}`, "bad");
  }
  if (running === traffic) running = null;
}

/**
 * Returns a request of one of 26 clients. Two of them exceed their limits. Each rule of the demo
 * matches the path with its name.
 * @param {RuleSet} set
 */
function requestFor({ name, rules }) {
  const random = (/** @type {number} */ below) => Math.floor(Math.random() * below);
  const client = random(32);
  const user = client < 5 ? "mallory" : client < 8 ? "crawler" : `user-${client - 7}`;
  const ip = client < 5 ? "198.51.100.66" : client < 8 ? "198.51.100.7" : `203.0.113.${client - 7}`;
  const method = random(5) > 0 ? "GET" : "POST";
  const path = `/${rules[random(rules.length)].id}/${1 + random(40)}`;
  return { rule_set: name, user, ip, method, path };
}
