// The result of one algorithm: what it admits and denies in each slot, and how that compares with
// the limit.

import { badge } from "../components.js";
import { h, replace, svg } from "../dom.js";
import { count, number } from "../format.js";
import { axis, edgePath, line, WIDTH } from "./axis.js";
import { SLOTS } from "./settings.js";
import { sentence, span, times } from "./words.js";

/** @typedef {import("./settings.js").Settings} Settings */
/** @typedef {import("./results.js").Result} Result */

const COLUMN = WIDTH / SLOTS;
/** The levels are drawn above, the requests of each slot below. */
const LEVELS = 90;
const GAP = 14;
const BARS = 76;
const HEIGHT = LEVELS + GAP + BARS;

/**
 * @param {string} id
 * @param {string} name
 */
export function chart(id, name) {
  const hatch = `lab-hatch-${id}`;
  const paths = {
    over: line("lab-over"),
    limit: line("lab-limit"),
    level: line("lab-level"),
    admitted: line("lab-admitted"),
    denied: line("lab-denied"),
    edges: line("lab-edge"),
    base: line("lab-base"),
  };
  paths.denied.setAttribute("fill", `url(#${hatch})`);
  paths.base.setAttribute("d", `M0 ${LEVELS}H${WIDTH}M0 ${HEIGHT}H${WIDTH}`);
  const picture = svg("svg", {
    class: "lab-picture",
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    role: "img",
  }, svg("defs", {}, hatchPattern(hatch)), paths.edges, paths.base, paths.over, paths.admitted,
    paths.denied, paths.limit, paths.level);
  const limit = h("span", { class: "lab-limit-label", "aria-hidden": "true" });
  const axisLabels = axis();
  const verdict = h("span", {});
  const title = h("h3", { id: `lab-${id}` }, name);
  const admitted = h("dd", {});
  const denied = h("dd", {});
  const worst = h("dd", {});
  const worstLabel = h("dt", {});
  const words = h("p", { class: "lab-words" });
  const element = h("section", { class: "card lab-result", "aria-labelledby": `lab-${id}` },
    h("div", { class: "card-head" }, title, verdict),
    h("dl", { class: "lab-totals" },
      h("div", {}, h("dt", {}, "Admitted"), admitted),
      h("div", {}, h("dt", {}, "Denied"), denied),
      h("div", {}, worstLabel, worst)),
    h("div", { class: "lab-plot" }, h("div", { class: "lab-frame" }, picture, limit), axisLabels.element),
    words);

  /**
   * @param {Result} result
   * @param {Result} log
   * @param {Settings} settings
   * @param {{level: number, bar: number}} tops the highest values of all charts, so that they compare
   */
  function update(result, log, settings, tops) {
    const { capacity, window } = settings;
    const unit = (LEVELS - 2) / Math.max(tops.level, capacity * 1.1, 1);
    const bar = BARS / Math.max(tops.bar, 1);
    const y = (/** @type {number} */ level) => LEVELS - level * unit;
    paths.edges.setAttribute("d", edgePath(settings, HEIGHT));
    paths.limit.setAttribute("d", `M0 ${y(capacity).toFixed(2)}H${WIDTH}`);
    paths.level.setAttribute("d", steps(result.level.map(y)));
    paths.over.setAttribute("d", columns(result.level.map((level) =>
      [y(capacity), Math.max(0, level - capacity) * unit]), 0));
    paths.admitted.setAttribute("d", columns(result.admitted.map((value) =>
      [HEIGHT, value * bar]), 1));
    paths.denied.setAttribute("d", columns(result.denied.map((value, slot) =>
      [HEIGHT - result.admitted[slot] * bar, value * bar]), 1));
    limit.style.setProperty("--at", (y(capacity) / HEIGHT).toFixed(4));
    limit.textContent = result.id === "concurrency" ? `${capacity} running` : `limit ${capacity}`;
    axisLabels.update(settings);
    admitted.textContent = number(result.allowed);
    denied.textContent = number(result.refused);
    worst.textContent = number(result.worst);
    const doing = result.delay > 0 ? "proceed" : "admitted";
    worstLabel.textContent = `Most ${doing} in any ${span(window)}`;
    words.textContent = sentence(result, log, settings);
    showVerdict(result, capacity);
    picture.setAttribute("aria-label", `${name}: ${number(result.allowed)} admitted, `
      + `${number(result.refused)} denied, at most ${result.worst} in any ${span(window)}.`);
  }

  /**
   * @param {Result} result
   * @param {number} capacity
   */
  function showVerdict({ id, worst, peak }, capacity) {
    if (id === "concurrency") replace(verdict, badge(`${count(peak, "slot")} used`, "quiet"));
    else if (worst > capacity) replace(verdict, badge(`${times(worst, capacity)} the limit`, "warn"));
    else replace(verdict, badge("within the limit", "good"));
  }

  return { element, update };
}

/** @param {string} id */
export function hatchPattern(id) {
  const stripes = { patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
  return svg("pattern", { id, width: 5, height: 5, ...stripes },
    svg("rect", { class: "lab-hatch-ground", width: 5, height: 5 }),
    svg("rect", { class: "lab-hatch-stroke", width: 2, height: 5 }));
}

/**
 * Returns rectangles that stand on a line, one for each slot with a height.
 * @param {number[][]} values the bottom and the height of each
 * @param {number} inset
 */
function columns(values, inset) {
  return values.map(([bottom, height], slot) => {
    if (height === 0) return "";
    const up = height.toFixed(2);
    return `M${slot * COLUMN + inset} ${bottom.toFixed(2)}v-${up}h${COLUMN - 2 * inset}v${up}z`;
  }).join("");
}

/** @param {number[]} heights */
function steps(heights) {
  return `M0 ${LEVELS}${heights.map((y, slot) => `V${y.toFixed(2)}H${(slot + 1) * COLUMN}`).join("")}`;
}
