// The overview: what the service decides now, and what needs attention.

import { get } from "./api.js";
import { areaChart, sparkline } from "./charts.js";
import { badge, card, codeLine, empty, pageHead, poll } from "./components.js";
import { demoTraffic } from "./demo.js";
import { h, replace, setText } from "./dom.js";
import { compact, count, duration, micros, number, share } from "./format.js";
import { HISTORY_SECONDS, totals } from "./live.js";
import { pressure, topIdentities } from "./ranking.js";

/** @import { LiveEvent, RuleSet } from "./api.js" */
/** @import { Context } from "./main.js" */
/** @import { Sample } from "./live.js" */

/** From the bottom of the stack, where a layer is easiest to read. */
const SERIES = [
  { name: "denied", label: "Denied" },
  { name: "shadow-denied", label: "Shadow-denied" },
  { name: "allowed", label: "Allowed" },
];
const SPARK_SECONDS = 120;
const BREAKER = /** @type {const} */ ({
  closed: ["good", "store in use"], half_open: ["warn", "probing the store"],
  open: ["bad", "store not in use"],
});
const SOURCES = {
  file: "from a file", dir: "from a directory", redis: "from Redis", http: "from a server",
  mongodb: "from MongoDB", demo: "built in",
};

/** @param {Context} context */
export function view(context) {
  const { live, session, signal } = context;
  const traffic = trafficFigures();
  const latency = latencyFigure();
  const first = firstDecision(context);
  const service = serviceStrip(context);
  const rules = pressure();
  const hero = h("section.card.hero", { "aria-label": "Decisions" },
    h("div.hero-figures", traffic.figures, latency.element), traffic.chart);
  hero.hidden = first.hidden = true;
  live.subscribe(signal, (event) => {
    hero.hidden = !live.decided;
    first.hidden = live.decided;
    traffic.update(live.history);
    latency.update(live.history);
    service.update(event);
    rules.update(event);
  });
  return {
    element: h("div.stack",
      pageHead("Overview", [], session.demo && demoTraffic(context)),
      hero, first, service.element,
      h("div.halves", topIdentities(context), rules.element)),
  };
}

function trafficFigures() {
  const rate = h("span.figure-value");
  const deniedShare = h("span.figure-value");
  const second = h("div.figure.second", deniedShare, h("span.figure-unit", "denied"));
  const figures = h("div.figures",
    h("div.figure.first", rate, h("span.figure-unit", "decisions/s")), second);
  const values = SERIES.map(() => h("strong"));
  const items = SERIES.map(({ name, label }, layer) =>
    h("span.row", h(`span.swatch.${name}`), label, " ", values[layer]));
  const when = h("span.hint");
  const chart = areaChart(SERIES, "Decisions per second", HISTORY_SECONDS, (shown, age) => {
    shown.forEach((value, layer) => setText(values[layer], `${compact(value)}/s`));
    setText(when, age > 0 ? `${duration(age)} ago` : "now");
  });

  /** @param {Sample[]} history */
  function update(history) {
    const points = history.map(({ at, denied, shadow, allowed }) =>
      ({ at, values: [denied, shadow, allowed] }));
    const now = points[points.length - 1].values;
    const total = now[0] + now[1] + now[2];
    rate.textContent = total < 10_000 ? number(total) : compact(total);
    rate.classList.toggle("long", rate.textContent.length > 3);
    deniedShare.textContent = share(now[0] / (total || 1));
    second.classList.toggle("some", now[0] > 0);
    chart.update(points);
  }
  const legend = h("div.row.legend", items.reverse(), when);
  const title = h("p.hint", { "aria-hidden": "true" }, "Decisions per second");
  return { figures, chart: h("figure.traffic", title, chart.element, legend), update };
}

function latencyFigure() {
  const p50 = h("strong");
  const p99 = h("strong");
  const spark = sparkline("99th percentile of the latency");
  const element = h("div",
    h("div.row", h("span.quiet", "Latency"),
      h("span", h("span.quiet", "p50 "), p50), h("span", h("span.quiet", "p99 "), p99)),
    spark.element,
    h("div.hint", "p99, last 2 minutes"));
  /** @param {Sample[]} history */
  function update(history) {
    const last = history[history.length - 1];
    p50.textContent = last.p50 === null ? "–" : micros(last.p50);
    p99.textContent = last.p99 === null ? "–" : micros(last.p99);
    const values = history.slice(-SPARK_SECONDS).map((sample) => sample.p99);
    spark.update(values, last.p99 === null ? "no decisions now" : `${p99.textContent} now`);
  }
  return { element, update };
}

/** @param {Context} context */
function serviceStrip({ session, signal }) {
  const labels = [
    "Store", "Breaker", "Waiting", "Slots held", "Units on lease", "Instances", "Rules", "Uptime",
  ];
  const tiles = Object.fromEntries(labels.map((label) => {
    const value = h("dd.tile-value");
    const detail = h("dd.hint");
    return [label, { value, detail, element: h("div.tile", h("dt", label), value, detail) }];
  }));
  // The header says if the service does not answer.
  poll(signal, 10_000, async () => {
    /** @type {{instances: {revision: string}[], failure: string | null}} */
    const { instances, failure } = await get("/v1/instances", signal);
    const { value, detail } = tiles.Instances;
    replace(value, h("a", { href: "#/instances" }, number(instances.length)));
    const revisions = new Set(instances.map(({ revision }) => revision)).size;
    setText(detail, failure ? "others unknown" : instances.length < 2 ? "only this one"
      : revisions > 1 ? `${revisions} versions of the rules` : "same rules");
    detail.classList.toggle("attention", revisions > 1);
  });

  /** @param {LiveEvent} event */
  function update({ store, waiting, slots, leases, decisions, denied: no, revision, uptime_s: uptime }) {
    const { unavailable } = totals(decisions, no);
    const breaker = store.breaker.replace("_", " ");
    const { value } = tiles.Breaker;
    if (value.textContent !== breaker) replace(value, badge(breaker, BREAKER[store.breaker][0]));
    tiles["Units on lease"].element.hidden = leases === null;
    const { units = 0, allowed = 0, denied = 0 } = leases ?? {};
    for (const [label, [text, more]] of Object.entries({
      Store: [store.kind, store.keys === null ? "" : count(store.keys, "key")],
      Breaker: [breaker, unavailable > 0 ? `${count(unavailable, "decision")}/s without the store`
        : BREAKER[store.breaker][1]],
      Waiting: [number(waiting), "requests"],
      "Slots held": [number(slots), "by running requests"],
      "Units on lease": [number(units), `${compact(allowed + denied)}/s decided`],
      Rules: [revision.slice(0, 8), SOURCES[session.source]],
      Uptime: [duration(uptime * 1000), `version ${session.version}`],
    })) {
      setText(tiles[label].value, text);
      setText(tiles[label].detail, more);
    }
  }
  const element = h("section.card.strip", { "aria-label": "Service" },
    h("dl.grid.tiles", labels.map((label) => tiles[label].element)));
  return { element, update };
}

/** @param {Context} context */
function firstDecision({ session, signal }) {
  const command = h("div.first-command");
  /** @param {{rule_sets: RuleSet[]}} active */
  function show({ rule_sets: [set] }) {
    // A rule of the demo matches the path of its name.
    const path = session.demo ? `/${set?.rules[0]?.id}` : "/";
    const request = { rule_set: set?.name, user: "ann", ip: "203.0.113.1", method: "GET", path };
    const body = JSON.stringify(request).replaceAll("'", "'\\''");
    replace(command, codeLine(`curl -d '${body}' ${location.origin}/v1/check`));
  }
  get("/v1/rule_sets", signal).then(show, () => {});
  const text = session.demo
    ? "Send demo traffic with the button above, or request a decision from a terminal:"
    : "No decision since this page was opened. Request one from a terminal:";
  return card("Decisions", empty("No decisions yet", text), command);
}
