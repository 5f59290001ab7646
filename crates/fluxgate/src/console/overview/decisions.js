// The decisions of the fleet: a second now, and over time, with the changes of the rules.

import { get, REFUSED } from "../api.js";
import { sparkline, timeChart } from "../charts.js";
import { now } from "../clock.js";
import { segmented, showProblem, timeTag } from "../components.js";
import { h, replace, setText } from "../dom.js";
import { isLate } from "../fleet.js";
import { compact, count, link, micros, number, share, sum, time, zone } from "../format.js";
import { RANGES, recordOf, stepsOf, sumOf } from "./history.js";

/** @import { LiveEvent } from "../api.js" */
/** @import { Point, Series } from "../charts.js" */
/** @import { Context } from "../main.js" */
/** @import { Counts, Range, Recorded } from "./history.js" */

/** From the bottom of the stack, where a layer is easiest to read. */
const OUTCOMES = [
  { name: "denied", label: "Denied", of: [...REFUSED, "failed_closed"] },
  { name: "shadow-denied", label: "Shadow-denied", of: ["shadow_denied"] },
  { name: "without-store", label: "Decided without Redis", of: ["fallback", "failed_open"] },
  { name: "allowed", label: "Allowed", of: ["allowed", "exempt", "no_rule"] },
];
const MOST_RULES = 5;
const SPARK_SECONDS = 120;
/** More points are not told apart on a screen. */
const MOST_POINTS = 1500;
/** Other instances write what they counted every five seconds. */
const FLEET_DELAY_MS = 7000;
const MOST_CHANGES = 5;

/**
 * @param {Context} context
 * @param {(recorded: Recorded | null, range: Range) => void} onRecord gets what the chart is made of,
 * if it could be read
 */
export function decisionsCard(context, onRecord) {
  const { live, fleet, session, signal } = context;
  const figures = rateFigures();
  const latency = latencyFigure();
  const keep = session.history ?? 0;
  const ranges = RANGES.filter((_, index) => index === 0 || RANGES[index - 1].span < keep);
  let range = ranges[0];
  /** @type {"outcome" | "rule"} */
  let by = "outcome";
  let reading = new AbortController();
  let recorded = /** @type {Recorded | null} */ (null);
  const problem = h("div");
  const legend = h("div.row.legend");
  const when = h("span.hint");
  const title = h("h2");
  const note = h("p.hint", "Loading…");
  const changes = h("ul.changes-marked");
  let items = /** @type {{strong: HTMLElement, name: string}[]} */ ([]);
  const chart = timeChart((at, values) => {
    values.forEach((value, index) => items[index] && setText(items[index].strong, `${compact(value)}/s`));
    setText(when, at === null ? "" : `at ${time(at)}`);
  });

  /** @param {Series[]} series */
  function showLegend(series) {
    const key = series.map(({ name, label }) => name + label).join();
    if (legend.dataset.shown === key) return;
    legend.dataset.shown = key;
    items = series.map(({ name }) => ({ name, strong: h("strong") }));
    replace(legend, series.map(({ name, label }, index) =>
      h("span.row", h(`span.swatch.${name}`), label, " ", items[index].strong)).reverse(), when);
  }

  function draw() {
    const unit = by === "outcome" ? "Decisions per second" : "Refused per second, by rule";
    setText(title, unit);
    if (!session.history) return drawLive(unit);
    if (!recorded) {
      const to = now();
      return chart.update({ title: unit, series: [], points: [], isStacked: true, from: to - range.span, to, step: 1000, marks: [] });
    }
    const { step, from } = recorded;
    // What is not over yet, or not told by others yet, would look like a fall.
    const isFleet = (fleet.latest?.instances.length ?? 1) > 1;
    const until = step === 1000 ? now() - (isFleet ? FLEET_DELAY_MS : 1000) : now() - 60_000;
    const steps = Math.max(0, Math.min(stepsOf(recorded), Math.floor((until - from) / step) + 1));
    const { series, layers, isStacked } = by === "outcome" ? byOutcome(recorded) : byRule(recorded);
    const points = pointsOf(layers, recorded, steps, startOf(context));
    const sums = (/** @type {number} */ index) => {
      const values = layers.map((layer) => layer[index]);
      return (isStacked ? sum(values) : Math.max(0, ...values)) / (step / 1000);
    };
    let highest = 0;
    for (let index = 0; index < steps; index++) highest = Math.max(highest, sums(index));
    showLegend(series);
    const end = from + Math.max(steps, 1) * step;
    chart.update({
      title: unit, series, points, isStacked, highest, from: end - Math.min(range.span, keep), to: end,
      step: step * Math.max(1, Math.ceil(steps / MOST_POINTS)),
      marks: recorded.changes.map(({ at_ms: at }) => at),
    });
    setText(note, by === "outcome"
      ? `All instances, each decision once. Times are in ${zone()}.`
      : `All instances. A request counts for every rule that refused it; the ${MOST_RULES} rules with most. `
        + `Times are in ${zone()}.`);
    showChanges(changes, recorded.changes);
  }

  /** Without a record, there is what this page has seen of this instance. @param {string} unit */
  function drawLive(unit) {
    const history = live.history;
    const series = OUTCOMES.filter(({ name }) => name !== "without-store");
    const points = history.map(({ at, denied, shadow, allowed }) => ({ at, values: [denied, shadow, allowed] }));
    showLegend(series);
    const to = history.at(-1)?.at ?? now();
    chart.update({ title: unit, series, points, isStacked: true, from: to - 300_000, to, step: 1000, marks: [] });
    setText(note, "This instance, since this page was opened: nothing is recorded (history: false in the config). "
      + `Times are in ${zone()}.`);
  }

  function read() {
    reading.abort();
    reading = new AbortController();
    recorded = null;
    if (!session.history) return { run() {} };
    return recordOf(reading.signal, range, keep, (next) => {
      recorded = next;
      draw();
      onRecord(next, range);
    }, (error) => {
      showProblem(problem, error);
      if (error && !recorded) onRecord(null, range);
    });
  }
  let job = read();
  signal.addEventListener("abort", () => reading.abort());
  live.onRules(signal, () => job.run());

  const first = firstCall(context);
  let isShown = false;
  live.subscribe(signal, (event) => {
    figures.update(event, fleet.rate(event), fleet.latest);
    latency.update(live.history);
    if (!session.history) draw();
    if (!isShown) first.check();
    isShown = true;
  });
  fleet.subscribe(signal, () => live.latest && figures.update(live.latest, fleet.rate(live.latest), fleet.latest));

  const choices = h("div.row",
    session.history && segmented("Time", ranges.map(({ key, label }) => [key, label]), range.key, (key) => {
      range = ranges.find((each) => each.key === key) ?? range;
      job = read();
    }),
    session.history && segmented("By", [["outcome", "By outcome"], ["rule", "By rule"]], by, (value) => {
      by = value;
      draw();
    }));
  const element = h("section.card.hero", { "aria-label": "Decisions" },
    h("div.hero-figures", figures.element, latency.element),
    h("div.traffic", h("div.card-head", title, choices), problem, chart.element, legend, note, changes));
  draw();
  return { element, first: first.element };
}

/** @param {Recorded} recorded */
function byOutcome({ decisions }) {
  const groups = OUTCOMES.map((group) => ({ ...group, values: added(decisions.filter(({ outcome }) =>
    group.of.includes(outcome)), decisions[0].values.length) }));
  const shown = groups.filter(({ name, values }) => name !== "without-store" || values.some((value) => value > 0));
  return { series: shown, layers: shown.map(({ values }) => values), isStacked: true };
}

/** @param {Recorded} recorded */
function byRule({ rules }) {
  const refused = rules.filter(({ outcome, rule }) => rule !== null && REFUSED.includes(outcome));
  /** @type {Map<string, Counts[]>} */
  const grouped = new Map();
  for (const counts of refused) {
    const name = `${counts.rule_set} / ${counts.rule}`;
    grouped.set(name, [...(grouped.get(name) ?? []), counts]);
  }
  const sums = [...grouped].map(([label, counts]) =>
    ({ label, values: added(counts, rules[0].values.length), sum: sumOf(counts, () => true) }));
  const most = sums.sort((a, b) => b.sum - a.sum).slice(0, MOST_RULES)
    .map((each, index) => ({ ...each, name: `rule-${index}` }));
  return { series: most, layers: most.map(({ values }) => values), isStacked: false };
}

/** Returns the sums of counts by step. @param {Counts[]} counts @param {number} length */
function added(counts, length) {
  const sums = Array(length).fill(0);
  for (const { values } of counts) values.forEach((value, index) => (sums[index] += value));
  return sums;
}

/**
 * Returns rates per second. Steps are joined if they are many.
 * @param {number[][]} layers @param {Recorded} recorded @param {number} steps @param {number} start
 * @returns {Point[]} from `start` on: before it, nothing was recorded
 */
function pointsOf(layers, { from, step }, steps, start) {
  const joined = Math.max(1, Math.ceil(steps / MOST_POINTS));
  const points = [];
  for (let index = 0; index + joined <= steps; index += joined) {
    const at = from + index * step;
    if (at + step * joined <= start) continue;
    points.push({ at, values: layers.map((values) => sum(values.slice(index, index + joined)) / joined / (step / 1000)) });
  }
  return points;
}

/** Returns when the record begins: with the process, if it is in its memory. @param {Context} context */
function startOf({ live, fleet }) {
  const own = fleet.latest?.instances.find((each) => each.is_self);
  return live.latest?.store.kind === "memory" && own ? own.started_ms : 0;
}

/** @param {Element} place @param {Recorded["changes"]} changes */
function showChanges(place, changes) {
  const key = JSON.stringify(changes);
  if (place.getAttribute("data-shown") === key) return;
  place.setAttribute("data-shown", key);
  const rest = changes.length - MOST_CHANGES;
  replace(place, changes.slice(-MOST_CHANGES).reverse().map(({ at_ms: at, rule_set: set, revision, who }) =>
    h("li.row", h("span.mark", { "aria-hidden": "true" }), timeTag(at),
      h("span", `Rules of ${set} ${revision ? "changed" : "removed"}${who ? ` by ${who}` : ""}. `,
        h("a", { href: link("rules", { view: "history", set, at: String(at) }) }, "What changed"), "."))),
    rest > 0 && h("li.hint", `${count(rest, "earlier change")} in this time.`));
}

function rateFigures() {
  const rate = h("span.figure-value");
  const denied = h("span.figure-value");
  const second = h("div.figure.second", denied, h("span.figure-unit", "denied"));
  const scope = h("p.hint");
  const element = h("div.figures",
    h("div.figure.first", rate, h("span.figure-unit", "decisions/s")), second, scope);

  /** @param {LiveEvent} event @param {{all: number, denied: number}} sums @param {Context["fleet"]["latest"]} fleet */
  function update(event, sums, fleet) {
    const all = Math.round(sums.all);
    setText(rate, all < 10_000 ? number(all) : compact(all));
    rate.classList.toggle("long", (rate.textContent ?? "").length > 3);
    setText(denied, share(sums.denied / (sums.all || 1)));
    second.classList.toggle("some", sums.denied > 0);
    const instances = fleet?.instances.filter((each) => !isLate(each)).length ?? 1;
    setText(scope, fleet?.failure ? "This instance only: the others are not known without Redis."
      : instances > 1 ? `Summed over ${count(instances, "instance")}.`
      : event.store.kind === "memory" ? "Of this instance, which has its own counters."
      : "Of the only instance.");
  }
  return { element, update };
}

function latencyFigure() {
  const p50 = h("strong");
  const p99 = h("strong");
  const spark = sparkline("99th percentile of the latency");
  const element = h("div",
    h("div.row", h("span.quiet", "Latency"),
      h("span", h("span.quiet", "p50 "), p50), h("span", h("span.quiet", "p99 "), p99)),
    spark.element,
    h("div.hint", "p99 of this instance, last 2 minutes"));
  /** @param {import("../live.js").Sample[]} history */
  function update(history) {
    const last = history[history.length - 1];
    p50.textContent = last.p50 === null ? "–" : micros(last.p50);
    p99.textContent = last.p99 === null ? "–" : micros(last.p99);
    const values = history.slice(-SPARK_SECONDS).map((sample) => sample.p99);
    spark.update(values, last.p99 === null ? "no decisions now" : `${p99.textContent} now`);
  }
  return { element, update };
}

/** How to make a first decision, if there has been none. @param {Context} context */
function firstCall({ session, live, signal }) {
  const element = h("div", { hidden: true });
  async function check() {
    const isKnown = async () => {
      if (!session.history) return false;
      const from = Math.ceil(now() - Math.min(session.history, 86_400_000) + 1000);
      /** @type {import("../api.js").History} */
      const { decisions = [] } = await get(`/v1/history?from=${from}`, signal);
      return decisions.some(({ values }) => values.some((value) => value > 0));
    };
    const hasSome = await isKnown().catch(() => true);
    if (hasSome || live.decided || signal.aborted) return;
    const { firstDecision } = await import("./first.js");
    replace(element, firstDecision(session, signal));
    element.hidden = false;
    live.subscribe(signal, () => (element.hidden = live.decided));
  }
  return { element, check };
}
