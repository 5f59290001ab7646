// The Lab: one traffic pattern under every algorithm, decided by the real engine.

import { post, Problem } from "./api.js";
import { stripes } from "./charts.js";
import {
  button, card, copyText, field, notice, pageHead, problemNotice, segmented, table,
} from "./components.js";
import { h, replace, set, svg } from "./dom.js";
import { count, span } from "./format.js";
import { chart } from "./lab/chart.js";
import { drawing } from "./lab/drawing.js";
import { closest, countsOf, defaults, linkOf, PATTERNS, readSettings, SLOTS, STEPS } from "./lab/settings.js";
import { ALGORITHMS, eventsOf, resultsOf, rulesOf } from "./lab/simulation.js";
import { repeat } from "./polling.js";

/** @import { Name, Settings } from "./lab/settings.js" */
/** @import { Result } from "./lab/simulation.js" */

const DEBOUNCE_MS = 120;
/** What is decided stays decided; only what fails is asked for again. */
const NEVER_MS = 1e9;
const AWAY = "The service does not answer, so the results below are those of the settings before. They follow "
  + "by themselves when it is back.";
const COPIED = "Link copied. It contains all settings.";

/** @type {Record<Exclude<Name, "seed">, [string, (value: number, settings: Settings) => string]>} */
const SLIDERS = {
  requests: ["Requests", (value) => count(value, "request")],
  duration: ["Duration", span],
  capacity: ["Capacity", (value) => count(value, "request")],
  window: ["Window", span],
  burst: ["Burst", (value, { burst }) => `${count(value, "request")}${burst === null ? ", as the capacity" : ""}`],
  refill: ["Refill", (value, { window }) => `${count(value, "request")} in ${span(window)}`],
  run: ["Each request runs", span],
};
const NAMES = /** @type {(keyof typeof SLIDERS)[]} */ (Object.keys(SLIDERS));

/** @param {import("./main.js").Context} context */
export function view({ params, notify, signal }) {
  const settings = readSettings(params);
  const charts = ALGORITHMS.map(([id, name]) => chart(id, name));
  const pattern = drawing((counts) => change({ pattern: "drawn", drawn: counts }));
  const patterns = segmented("Pattern", PATTERNS, settings.pattern, (name) =>
    change({ pattern: name, drawn: name === "drawn" ? countsOf(settings) : settings.drawn }));
  const sliders = NAMES.map((name) => slider(name, settings, change));
  const [requests, duration, capacity, window, burst, refill, run] = sliders.map(({ element }) => element);
  const seed = h("input", {
    type: "number", min: 1, max: STEPS.seed.length, step: 1,
    onchange: () => change({ seed: closest(STEPS.seed, Number(seed.value)) }),
  });
  const seedRow = h("div.row.bottom", field("Seed", seed), button("New seed", () =>
    change({ seed: (settings.seed % STEPS.seed.length) + 1 })));
  const shape = h("input", { type: "checkbox", onchange: () => change({ shape: shape.checked }) });
  const problem = h("div.stack-small", h("p.quiet", "Loading…"));
  const announcement = h("p.visually-hidden", { role: "status" });
  const results = h("div.grid.lab-results", charts.map(({ element }) => element));
  const rules = h("pre.code", { tabindex: 0, role: "region", "aria-label": "Rules as YAML" });
  const numbers = h("div.stack-small");
  const numbersDetails = h("details", { ontoggle: showNumbers },
    h("summary", "The numbers as a table"), numbers);
  const trafficCard = card("Traffic", patterns, pattern.element);
  trafficCard.classList.add("lab-traffic");

  const element = h("div.stack",
    pageHead("Lab", ["Pick or draw a traffic pattern, and see what each algorithm admits. "
      + "The engine of this service decides, on separate counters."],
      button("Copy link", () => copyText(location.href, notify, COPIED)),
      button("Reset", () => change(defaults()))),
    h("div.lab-setup",
      trafficCard,
      card("Settings",
        group("Traffic", requests, duration, seedRow),
        group("Limit", capacity, window),
        group("Buckets", burst, refill,
          h("label.row", shape, "The leaky bucket queues requests (shape)")),
        group("Concurrency", run))),
    problem,
    h("div.row.spread", h("h2", "What each algorithm admits"), legend()),
    results, announcement, numbersDetails,
    h("details", h("summary", "The rules as YAML"), rules));

  /** @type {Result[]} */
  let shown = [];
  let shownCounts = countsOf(settings);
  let wanted = shownCounts;
  let latest = settings;
  let timer = 0;
  signal.addEventListener("abort", () => clearTimeout(timer));

  /** Shows the setting at once, and its results after a pause. @param {Partial<Settings>} [changes] */
  function change(changes) {
    Object.assign(settings, changes);
    const counts = showSettings();
    history.replaceState(null, "", linkOf(settings));
    wanted = counts;
    clearTimeout(timer);
    timer = setTimeout(job.run, DEBOUNCE_MS);
  }

  function showSettings() {
    const counts = countsOf(settings);
    pattern.update(settings, counts);
    for (const { update } of sliders) update();
    patterns.select(settings.pattern);
    requests.hidden = settings.pattern === "drawn";
    seedRow.hidden = settings.pattern !== "random";
    seed.value = String(settings.seed);
    shape.checked = settings.shape;
    rules.textContent = rulesOf(settings);
    return counts;
  }

  /** @param {AbortSignal} current */
  async function decide(current) {
    const asked = (latest = structuredClone(settings));
    const counts = wanted;
    const events = eventsOf(asked, counts);
    try {
      const { decisions } = events.length === 0 ? { decisions: [] }
        : await post("/v1/simulate", { rules: rulesOf(asked), events }, current);
      if (asked !== latest) return;
      shown = resultsOf(asked, events, decisions);
      shownCounts = counts;
      const level = Math.max(...shown.map(({ peak }) => peak)) * 1.06;
      const bar = Math.max(...counts);
      const log = /** @type {Result} */ (shown.find(({ id }) => id === "sliding_log"));
      shown.forEach((result, index) => charts[index].update(result, log, asked, { level, bar }));
      showNumbers();
      announcement.textContent = shown.map(({ name, allowed, worst }) =>
        `${name}: ${allowed} admitted, ${worst} in any ${span(asked.window)}.`).join(" ");
      replace(problem);
      delete results.dataset.stale;
    } catch (error) {
      if (asked !== latest || current.aborted) return;
      results.dataset.stale = "";
      const isAway = !(error instanceof Problem) || error.status === 0;
      replace(problem, isAway ? notice("warn", AWAY) : problemNotice(error),
        h("div.actions", button("Try again", () => change())));
      // It is tried again by itself.
      if (isAway || error.status >= 500) throw new Problem(0, String(error));
    }
  }

  function showNumbers() {
    if (!numbersDetails.open || shown.length === 0) return;
    const slots = table("Requests and admitted requests in each column",
      ["From", "Requests", ...shown.map(({ name }) => name)],
      shownCounts.map((requests, slot) => [
        span((settings.duration / SLOTS) * slot), requests, ...shown.map(({ admitted }) => admitted[slot]),
      ]), 1);
    slots.classList.add("scroll-box");
    replace(numbers, table("Totals of each algorithm",
      ["Algorithm", "Admitted", "Denied", `Most in any ${span(settings.window)}`, "Longest delay"],
      shown.map(({ name, allowed, refused, worst, delay }) =>
        [name, allowed, refused, worst, delay > 0 ? span(delay) : "none"]), 1), slots);
  }

  wanted = showSettings();
  const job = repeat(signal, NEVER_MS, decide);
  return { element };
}

/** @param {keyof typeof SLIDERS} name @param {Settings} settings @param {() => void} onChange */
function slider(name, settings, onChange) {
  const [label, text] = SLIDERS[name];
  const steps = STEPS[name];
  const id = `lab-${name}`;
  // An output is a live region, but the slider already reads out its value.
  const output = h("output", { for: id, "aria-live": "off" });
  const input = h("input", { id, type: "range", min: 0, max: steps.length - 1, step: 1, oninput() {
    const value = steps[Number(input.value)];
    // Burst and refill follow the capacity until they are set.
    const follows = (name === "burst" || name === "refill") && value === settings.capacity;
    Object.assign(settings, { [name]: follows ? null : value });
    onChange();
  } });
  function update() {
    const value = settings[name] ?? settings.capacity;
    output.textContent = text(value, settings);
    input.value = String(steps.indexOf(value));
    set(input, { "aria-valuetext": output.textContent });
  }
  const element = h("div.lab-slider", h("label.field-label", { for: id }, label), output, input);
  return { element, update };
}

/** @param {string} title @param {...HTMLElement} children */
const group = (title, ...children) => h("fieldset.lab-group", h("legend", title), ...children);

function legend() {
  /** @param {string} text @param {...SVGElement} marks */
  const item = (text, ...marks) => h("li.row",
    svg("svg", { width: 22, height: 14, viewBox: "0 0 22 14", "aria-hidden": "true" }, marks), text);
  const box = { x: 4, y: 1, width: 14, height: 12 };
  return h("ul.row.hint",
    item("admitted", svg("rect.lab-admitted", box)),
    item("denied", svg("defs", stripes("lab-hatch-legend", "denied")),
      svg("rect.lab-denied", { fill: "url(#lab-hatch-legend)", ...box })),
    item("admitted in the last window, or running", svg("path.lab-level", { d: "M1 11H8V4H21" })),
    item("window edge", svg("path.lab-edge", { d: "M11 0V14" })));
}
