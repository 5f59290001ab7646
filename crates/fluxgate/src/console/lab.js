// The Lab: one traffic pattern under every algorithm, decided by the real engine.

import { post } from "./api.js";
import { button, card, field, problemNotice, segmented, table } from "./components.js";
import { h, replace, svg } from "./dom.js";
import { chart, hatchPattern } from "./lab/chart.js";
import { controlGroup, SLIDERS, sliderControl } from "./lab/controls.js";
import { drawing } from "./lab/drawing.js";
import { countsOf } from "./lab/patterns.js";
import { resultsOf } from "./lab/results.js";
import { BOUNDS, defaults, PATTERNS, readSettings, SLOTS, writeSettings } from "./lab/settings.js";
import { ALGORITHMS, eventsOf, rulesOf } from "./lab/traffic.js";
import { span } from "./lab/words.js";

/** @typedef {import("./lab/settings.js").Settings} Settings */
/** @typedef {import("./lab/results.js").Result} Result */

const DEBOUNCE = 120;
const ANNOUNCE = 900;

/** @param {import("./main.js").Context} context */
export function view({ params, signal, notify }) {
  const settings = readSettings(params);
  const charts = ALGORITHMS.map(({ id, name }) => chart(id, name));
  const pattern = drawing((counts) => {
    settings.pattern = "drawn";
    settings.drawn = counts;
    change();
  });
  const sliders = mapValues(SLIDERS, (group) =>
    group.map((slider) => sliderControl(slider, settings, change)));
  const patterns = segmented("Pattern", PATTERNS, settings.pattern, (name) => {
    if (name === "drawn") settings.drawn = countsOf(settings);
    settings.pattern = name;
    change();
  });
  const { seed, seedRow } = seedControls(settings, change);
  const shape = h("input", { type: "checkbox", onchange: () => {
    settings.shape = shape.checked;
    change();
  } });
  const problem = h("div", { class: "lab-problem" });
  const announcement = h("p", { class: "visually-hidden", role: "status" });
  const results = h("div", { class: "lab-results" }, charts.map(({ element }) => element));
  const rules = h("pre", { class: "code", tabindex: 0, role: "region", "aria-label": "Rules as YAML" });
  const numbers = h("div", {});
  const numbersDetails = h("details", { class: "lab-details", ontoggle: showNumbers },
    h("summary", {}, "The numbers as a table"), numbers);

  const trafficCard = card("Traffic", patterns, pattern.element);
  trafficCard.classList.add("lab-traffic");

  const element = h("div", { class: "stack lab" },
    h("div", { class: "lab-head" },
      h("div", {}, h("h1", {}, "Lab"),
        h("p", { class: "quiet" }, "Pick or draw a traffic pattern, and see what each algorithm admits. "
          + "The engine of this service decides, on counters of its own.")),
      h("div", { class: "actions" }, button("Copy link", copyLink), button("Reset", reset))),
    h("div", { class: "lab-setup" },
      trafficCard,
      card("Settings",
        controlGroup("Traffic", ...elements(sliders.pattern), seedRow),
        controlGroup("Limit", ...elements(sliders.limit)),
        controlGroup("Buckets", ...elements(sliders.bucket),
          h("label", { class: "lab-check" }, shape, "The leaky bucket queues requests (shape)")),
        controlGroup("Concurrency", ...elements(sliders.slot)))),
    problem,
    h("div", { class: "lab-results-head" }, h("h2", {}, "What each algorithm admits"), legend()),
    results, announcement, numbersDetails,
    h("details", { class: "lab-details" }, h("summary", {}, "The rules as YAML"), rules));

  /** @type {Result[]} */
  let shown = [];
  let shownCounts = countsOf(settings);
  let timer = 0;
  let announceTimer = 0;
  let call = new AbortController();

  /** Shows the setting at once, and its results after a short time without further changes. */
  function change() {
    const counts = showSettings();
    const query = writeSettings(settings).toString();
    history.replaceState(null, "", query ? `#/lab?${query}` : "#/lab");
    clearTimeout(timer);
    timer = setTimeout(() => run(counts), DEBOUNCE);
  }

  function showSettings() {
    const counts = countsOf(settings);
    pattern.update(settings, counts);
    for (const control of Object.values(sliders).flat()) control.update(settings);
    PATTERNS.forEach(([name], index) =>
      patterns.children[index].setAttribute("aria-pressed", String(name === settings.pattern)));
    const [requests] = sliders.pattern;
    requests.element.hidden = settings.pattern === "drawn";
    seedRow.hidden = settings.pattern !== "random";
    seed.value = String(settings.seed);
    shape.checked = settings.shape;
    rules.textContent = rulesOf(settings);
    return counts;
  }

  /** @param {number[]} counts */
  async function run(counts) {
    call.abort();
    const current = new AbortController();
    call = current;
    const asked = structuredClone(settings);
    const events = eventsOf(asked, counts);
    results.setAttribute("aria-busy", "true");
    try {
      const decisions = events.length === 0 ? [] : await decide(asked, events, current.signal);
      if (current.signal.aborted) return;
      shown = resultsOf(asked, events, decisions);
      shownCounts = counts;
      showResults(asked);
      replace(problem);
      results.removeAttribute("data-stale");
    } catch (error) {
      if (current.signal.aborted) return;
      const again = button("Try again", change);
      replace(problem, problemNotice(error), h("div", { class: "actions lab-retry" }, again));
      results.setAttribute("data-stale", "");
    }
    results.removeAttribute("aria-busy");
  }

  /** @param {Settings} asked */
  function showResults(asked) {
    const level = Math.max(...shown.map(({ peak }) => peak)) * 1.06;
    const bar = Math.max(...shownCounts);
    const log = /** @type {Result} */ (shown.find(({ id }) => id === "sliding_log"));
    shown.forEach((result, index) => charts[index].update(result, log, asked, { level, bar }));
    showNumbers();
    clearTimeout(announceTimer);
    announceTimer = setTimeout(() => {
      announcement.textContent = shown.map(({ name, allowed, worst }) =>
        `${name}: ${allowed} admitted, ${worst} in any ${span(asked.window)}.`).join(" ");
    }, ANNOUNCE);
  }

  function showNumbers() {
    if (!numbersDetails.open || shown.length === 0) return;
    replace(numbers, ...numberTables(shown, shownCounts, settings));
  }

  async function copyLink() {
    try {
      await navigator.clipboard.writeText(location.href);
      notify("The link is copied. It holds the whole setting.");
    } catch {
      notify("The browser does not allow copying here. Copy the address of this page instead.", "bad");
    }
  }

  function reset() {
    Object.assign(settings, defaults());
    change();
  }

  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    clearTimeout(announceTimer);
    call.abort();
  });
  run(showSettings());
  return { element };
}

/**
 * @param {Settings} settings
 * @param {import("./lab/traffic.js").Event[]} events
 * @param {AbortSignal} signal
 */
async function decide(settings, events, signal) {
  const { decisions } = await post("/v1/simulate", { rules: rulesOf(settings), events }, signal);
  return decisions;
}

/**
 * @param {Settings} settings
 * @param {() => void} change
 */
function seedControls(settings, change) {
  const { least, most } = BOUNDS.seed;
  const seed = h("input", { type: "number", min: least, max: most, step: 1, onchange: () => {
    settings.seed = Math.min(most, Math.max(least, Math.round(Number(seed.value)) || least));
    change();
  } });
  const another = button("Another", () => {
    settings.seed = (settings.seed % most) + 1;
    change();
  }, { title: "Take the next seed" });
  return { seed, seedRow: h("div", { class: "lab-seed" }, field("Seed", seed), another) };
}

function legend() {
  /** @param {string} text @param {...SVGElement} marks */
  const item = (text, ...marks) => h("li", {},
    svg("svg", { width: 22, height: 14, viewBox: "0 0 22 14", "aria-hidden": "true" }, marks), text);
  return h("ul", { class: "lab-legend" },
    item("admitted", svg("rect", { class: "lab-admitted", x: 4, y: 1, width: 14, height: 12 })),
    item("denied", svg("defs", {}, hatchPattern("lab-hatch-legend")),
      svg("rect", { class: "lab-denied", fill: "url(#lab-hatch-legend)", x: 4, y: 1, width: 14, height: 12 })),
    item("admitted in the last window, or running", svg("path", { class: "lab-level", d: "M1 11H8V4H21" })),
    item("limit", svg("path", { class: "lab-limit", d: "M0 7H22" })),
    item("window edge", svg("path", { class: "lab-edge", d: "M11 0V14" })));
}

/**
 * @param {Result[]} results
 * @param {number[]} counts
 * @param {Settings} settings
 */
function numberTables(results, counts, { window, duration }) {
  const numeric = (/** @type {string} */ text) => ({ text, numeric: true });
  const totals = table(
    ["Algorithm", "Admitted", "Denied", `Most in any ${span(window)}`, "Longest delay"].map((text, index) =>
      index === 0 ? text : numeric(text)),
    results.map(({ name, allowed, refused, worst, delay }) =>
      [name, allowed, refused, worst, delay > 0 ? span(delay) : "none"]),
    { caption: "Totals of each algorithm" });
  const slots = table(
    ["From", numeric("Requests"), ...results.map(({ name }) => numeric(`${name} admits`))],
    counts.map((count, slot) => [
      span((duration / SLOTS) * slot), count, ...results.map(({ admitted }) => admitted[slot]),
    ]),
    { caption: "Requests and admitted requests in each slot" });
  slots.classList.add("lab-slots");
  return [totals, slots];
}

/** @param {import("./lab/controls.js").Control[]} controls */
function elements(controls) {
  return controls.map(({ element }) => element);
}

/**
 * @template {string} K
 * @template A, B
 * @param {Record<K, A>} object
 * @param {(value: A) => B} map
 * @returns {Record<K, B>}
 */
function mapValues(object, map) {
  const entries = /** @type {[K, A][]} */ (Object.entries(object));
  return /** @type {Record<K, B>} */ (Object.fromEntries(entries.map(([key, value]) => [key, map(value)])));
}
