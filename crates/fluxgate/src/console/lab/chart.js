// The result of one algorithm, and how it compares with the limit.

import { line, plot, stripes, WIDTH } from "../charts.js";
import { badge } from "../components.js";
import { h, replace, set, svg } from "../dom.js";
import { count, number, span } from "../format.js";
import { edgesOf, SLOTS } from "./settings.js";
import { sentence, times } from "./simulation.js";

/** @import { Settings } from "./settings.js" */
/** @import { Result } from "./simulation.js" */

export const COLUMN = WIDTH / SLOTS;
/** The levels are drawn above, the requests of each slot below. */
const LEVELS = 90;
const BARS = 76;
const HEIGHT = LEVELS + 14 + BARS;

/** @param {Settings} settings @param {number} height */
export const edgePath = (settings, height) =>
  edgesOf(settings).map((edge) => `M${(edge / settings.duration) * WIDTH} 0V${height}`).join("");

/** @param {Settings} settings */
export const timesOf = ({ duration }) =>
  [0, 0.25, 0.5, 0.75, 1].map((part) => (part === 0 ? "0" : span(part * duration)));

/** @param {string} id @param {string} name */
export function chart(id, name) {
  const hatch = `lab-hatch-${id}`;
  const paths = {
    edges: line("lab-edge"),
    base: line("lab-base", `M0 ${LEVELS}H${WIDTH}M0 ${HEIGHT}H${WIDTH}`),
    admitted: line("lab-admitted"),
    denied: line("lab-denied"),
    limit: line("lab-limit"),
    level: line("lab-level"),
  };
  set(paths.denied, { fill: `url(#${hatch})` });
  const picture = svg("svg.lab-picture", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
  }, svg("defs", stripes(hatch, "denied")), Object.values(paths));
  const limit = h("span.lab-limit-label", { "aria-hidden": "true" });
  const { element: plotted, label } = plot(picture);
  const verdict = h("span");
  const admitted = h("dd");
  const denied = h("dd");
  const worst = h("dd");
  const worstLabel = h("dt");
  const words = h("p.quiet");
  const element = h("section.card.stack-small", { "aria-labelledby": `lab-${id}` },
    h("div.card-head", h("h3", { id: `lab-${id}` }, name), verdict),
    h("dl.row.spread.lab-totals",
      h("div", h("dt", "Admitted"), admitted),
      h("div", h("dt", "Denied"), denied),
      h("div", worstLabel, worst)),
    h("div.lab-frame", plotted, limit),
    words);

  /**
   * @param {Result} result @param {Result} log @param {Settings} settings
   * @param {{level: number, bar: number}} tops the highest values of all charts, so that they compare
   */
  function update(result, log, settings, tops) {
    const { capacity } = settings;
    const window = span(settings.window);
    const unit = (LEVELS - 2) / Math.max(tops.level, capacity * 1.1, 1);
    const bar = BARS / Math.max(tops.bar, 1);
    const y = (/** @type {number} */ level) => LEVELS - level * unit;
    set(paths.edges, { d: edgePath(settings, HEIGHT) });
    set(paths.limit, { d: `M0 ${y(capacity)}H${WIDTH}` });
    set(paths.level, { d: steps(result.level.map(y)) });
    set(paths.admitted, { d: columns(result.admitted, (value) => [HEIGHT, value * bar]) });
    set(paths.denied, { d: columns(result.denied, (value, slot) =>
      [HEIGHT - result.admitted[slot] * bar, value * bar]) });
    limit.style.setProperty("--at", String(y(capacity) / HEIGHT));
    limit.textContent = result.id === "concurrency" ? `${capacity} running` : `limit ${capacity}`;
    label([], timesOf(settings));
    admitted.textContent = number(result.allowed);
    denied.textContent = number(result.refused);
    worst.textContent = number(result.worst);
    worstLabel.textContent = `Most ${result.delay > 0 ? "started" : "admitted"} in any ${window}`;
    words.textContent = sentence(result, log, settings);
    replace(verdict, result.id === "concurrency" ? badge(`${count(result.peak, "slot")} used`)
      : result.worst > capacity ? badge(`${times(result.worst, capacity)} the limit`, "warn")
      : badge("within the limit", "good"));
    set(picture, { "aria-label": `${name}: ${admitted.textContent} admitted, `
      + `${denied.textContent} denied, at most ${worst.textContent} in any ${window}.` });
  }
  return { element, update };
}

/**
 * @param {number[]} values
 * @param {(value: number, slot: number) => [number, number]} place the bottom and the height of each
 */
function columns(values, place) {
  return values.map((value, slot) => {
    const [bottom, height] = place(value, slot);
    if (height === 0) return "";
    return `M${slot * COLUMN + 1} ${bottom}v${-height}h${COLUMN - 2}v${height}z`;
  }).join("");
}

/** @param {number[]} heights */
const steps = (heights) =>
  `M0 ${LEVELS}${heights.map((y, slot) => `V${y}H${(slot + 1) * COLUMN}`).join("")}`;
