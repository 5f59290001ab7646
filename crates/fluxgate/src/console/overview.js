// The overview: what the service decides now, and what needs attention.

import { get } from "./api.js";
import { areaChart, sparkline } from "./charts.js";
import { badge, card, codeLine, empty } from "./components.js";
import { demoTraffic } from "./demo.js";
import { h, replace } from "./dom.js";
import { compact, count, duration, micros, number, share, time } from "./format.js";
import { HISTORY_SECONDS, totals } from "./live.js";
import { pressure } from "./pressure.js";
import { topIdentities } from "./top.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./live.js").LiveEvent} LiveEvent */

/** From the bottom of the stack, where a layer is easiest to read. */
const SERIES = [
  { name: "denied", label: "Denied" },
  { name: "shadow-denied", label: "Shadow-denied" },
  { name: "allowed", label: "Allowed" },
];
const SPARK_SECONDS = 120;

/** @param {Context} context */
export function view(context) {
  const { live, session, signal } = context;
  const demo = session.demo ? demoTraffic(context) : null;
  const traffic = trafficCard();
  const first = firstDecision(context);
  const latency = latencyFigure();
  const service = serviceStrip(context);
  const rules = pressure();
  const top = topIdentities(context);
  const hero = h("section", { class: "card hero", "aria-label": "Decisions" },
    h("div", { class: "hero-figures" }, traffic.figures, latency.element), traffic.chart);

  /** @param {LiveEvent} event */
  function update(event) {
    hero.hidden = !live.decided;
    first.hidden = live.decided;
    traffic.update(live.history);
    latency.update(live.history);
    service.update(event);
    rules.update(event);
  }
  const unsubscribe = live.subscribe(update);
  hero.hidden = first.hidden = true;
  if (live.latest) update(live.latest);

  const element = h("div", { class: "stack" },
    h("div", { class: "row spread" }, h("h1", {}, "Overview"), demo?.element),
    hero, first, service.element,
    h("div", { class: "halves" }, top.element, rules.element));
  signal.addEventListener("abort", unsubscribe);
  return {
    element,
    dispose() {
      traffic.dispose();
      demo?.dispose();
    },
  };
}

function trafficCard() {
  const rate = h("span", { class: "figure-value" }, "–");
  const deniedShare = h("span", { class: "figure-value" }, "–");
  const deniedFigure = h("div", { class: "figure second" },
    deniedShare, h("span", { class: "figure-unit" }, "denied"));
  const figures = h("div", { class: "figures" },
    h("div", { class: "figure first" }, rate, h("span", { class: "figure-unit" }, "decisions/s")),
    deniedFigure);

  const legendTime = h("span", { class: "hint" });
  const legendValues = SERIES.map(() => h("strong", {}));
  const legend = h("div", { class: "legend" },
    SERIES.map(({ name, label }, layer) =>
      h("span", { class: "legend-item" },
        h("span", { class: `swatch ${name}` }), label, " ", legendValues[layer])).reverse(),
    legendTime);
  /** @type {number[]} */
  let current = [0, 0, 0];
  /** @param {import("./charts.js").Point | null} point */
  function showLegend(point) {
    const values = point?.values ?? current;
    legendValues.forEach((element, layer) => (element.textContent = `${compact(values[layer])}/s`));
    legendTime.textContent = point ? `at ${time(point.at)}` : "now";
  }
  const chart = areaChart({
    series: SERIES, unit: "Decisions per second", maxSeconds: HISTORY_SECONDS, onHover: showLegend,
  });
  return {
    figures,
    chart: h("figure", { class: "traffic" }, chart.element, legend),
    dispose: chart.dispose,
    /** @param {import("./live.js").Sample[]} history */
    update(history) {
      const last = history[history.length - 1];
      const total = last.allowed + last.denied + last.shadow;
      rate.textContent = total < 10_000 ? number(total) : compact(total);
      rate.classList.toggle("long", rate.textContent.length > 3);
      deniedShare.textContent = total > 0 ? share(last.denied / total) : "0%";
      deniedFigure.classList.toggle("some", last.denied > 0);
      current = [last.denied, last.shadow, last.allowed];
      chart.update(history.map(({ at, denied, shadow, allowed }) =>
        ({ at, values: [denied, shadow, allowed] })));
    },
  };
}

function latencyFigure() {
  const p50 = h("strong", {}, "–");
  const p99 = h("strong", {}, "–");
  const spark = sparkline("99th percentile of the latency");
  return {
    element: h("div", { class: "latency" },
      h("div", { class: "latency-head" },
        h("span", { class: "quiet" }, "Latency"),
        h("span", {}, h("span", { class: "quiet" }, "p50 "), p50),
        h("span", {}, h("span", { class: "quiet" }, "p99 "), p99)),
      spark.element,
      h("div", { class: "hint" }, "p99, last 2 minutes")),
    /** @param {import("./live.js").Sample[]} history */
    update(history) {
      const last = history[history.length - 1];
      p50.textContent = last.p50 === null ? "–" : micros(last.p50);
      p99.textContent = last.p99 === null ? "–" : micros(last.p99);
      const values = history.slice(-SPARK_SECONDS).map((sample) => sample.p99);
      spark.update(values, last.p99 === null ? "no decisions now" : `${micros(last.p99)} now`);
    },
  };
}

/** @param {Context} context */
function serviceStrip({ session, signal }) {
  const tiles = {
    store: tile("Store"),
    breaker: tile("Breaker"),
    waiting: tile("Waiting"),
    slots: tile("Slots held"),
    leases: tile("Units on lease"),
    instances: tile("Instances"),
    revision: tile("Rules"),
    uptime: tile("Uptime"),
  };
  const link = h("a", { href: "#/instances" }, "–");
  replace(tiles.instances.value, link);
  const poll = async () => {
    if (document.hidden) return;
    try {
      const { instances } = await get("/v1/instances", signal);
      link.textContent = number(instances.length);
      const revisions = new Set(instances.map((/** @type {{revision: string}} */ { revision }) => revision));
      const text = revisions.size > 1 ? `${revisions.size} versions of the rules` : "same rules";
      tiles.instances.set(null, instances.length > 1 ? text : "only this one");
      tiles.instances.detail.classList.toggle("attention", revisions.size > 1);
    } catch {
      // The header says if the service does not answer.
    }
  };
  const timer = setInterval(poll, 10_000);
  signal.addEventListener("abort", () => clearInterval(timer));
  poll();

  return {
    element: h("section", { class: "card strip", "aria-label": "Service" },
      h("dl", { class: "tiles" }, Object.values(tiles).map(({ element }) => element))),
    /** @param {LiveEvent} event */
    update({ store, waiting, slots, leases, decisions, revision, uptime_s: uptime }) {
      const { unavailable } = totals(decisions);
      tiles.store.set(store.kind, store.keys === null ? "" : count(store.keys, "key"));
      tiles.breaker.setBadge(...BREAKER[store.breaker], unavailable > 0
        ? `${count(unavailable, "decision")}/s without the store`
        : store.breaker === "closed" ? "store in use" : "store not in use");
      tiles.waiting.set(number(waiting), "requests");
      tiles.slots.set(number(slots), "by running requests");
      tiles.leases.element.hidden = leases === null;
      const leased = leases ? compact(leases.allowed + leases.denied) : "";
      tiles.leases.set(number(leases?.units ?? 0), `decide ${leased}/s`);
      tiles.revision.set(revision.slice(0, 8), SOURCES[session.source] ?? session.source);
      tiles.uptime.set(duration(uptime * 1000), `version ${session.version}`);
    },
  };
}

/** @type {Record<string, [string, import("./components.js").Kind]>} */
const BREAKER = { closed: ["closed", "good"], half_open: ["half open", "warn"], open: ["open", "bad"] };

/** @type {Record<string, string>} */
const SOURCES = {
  file: "from a file", directory: "from a directory", redis: "from Redis", demo: "of the demo",
};

/** @param {string} label */
function tile(label) {
  const value = h("dd", { class: "tile-value" });
  const detail = h("dd", { class: "hint" });
  let shown = "";
  return {
    element: h("div", { class: "tile" }, h("dt", {}, label), value, detail),
    value,
    detail,
    /** @param {string | null} text @param {string} more */
    set(text, more) {
      if (text !== null && value.textContent !== text) value.textContent = text;
      if (detail.textContent !== more) detail.textContent = more;
    },
    /** @param {string} text @param {import("./components.js").Kind} kind @param {string} more */
    setBadge(text, kind, more) {
      if (shown !== text) replace(value, badge(text, kind));
      shown = text;
      if (detail.textContent !== more) detail.textContent = more;
    },
  };
}

/**
 * Says how to make a first decision.
 * @param {Context} context
 */
function firstDecision({ session, signal }) {
  const command = h("div", { class: "first-command" });
  const show = (/** @type {string} */ set, /** @type {string} */ path) => {
    const body = JSON.stringify({ rule_set: set, user: "ann", ip: "203.0.113.1", method: "GET", path });
    replace(command, codeLine(`curl -d '${body.replaceAll("'", "'\\''")}' ${location.origin}/v1/check`));
  };
  show("default", "/");
  get("/v1/rule_sets", signal).then(({ rule_sets: [set] }) => {
    // A rule of the demo matches the path of its name.
    if (set) show(set.name, session.demo ? `/${set.rules[0]?.id ?? ""}` : "/");
  }, () => {});
  const text = session.demo
    ? "Send demo traffic with the button above, or make a decision from a terminal:"
    : "Nothing has asked for a decision since this page was opened. Make one from a terminal:";
  return card("Decisions", empty("No decisions yet", text), command);
}
