// The time axis that the pattern and all charts share.

import { h, replace, svg } from "../dom.js";
import { edgesOf } from "./patterns.js";
import { span } from "./words.js";

/** @typedef {import("./settings.js").Settings} Settings */

/** The width of a chart in its own units; it is stretched to the width of the page. */
export const WIDTH = 600;

// More labels would touch each other on a phone.
const MOST_LABELS = 4;

/**
 * Returns the lines of the window edges as the data of a path.
 * @param {Settings} settings
 * @param {number} height
 */
export function edgePath(settings, height) {
  return edgesOf(settings)
    .map((edge) => `M${((edge / settings.duration) * WIDTH).toFixed(2)} 0V${height}`)
    .join("");
}

/** @param {string} name */
export function line(name) {
  return svg("path", { class: name, "vector-effect": "non-scaling-stroke" });
}

/** Makes the labels below a chart. `update` shows window edges, as many as fit. */
export function axis() {
  const element = h("div", { class: "lab-axis", "aria-hidden": "true" });
  let shownFor = "";
  /** @param {Settings} settings */
  function update(settings) {
    const next = `${settings.window} ${settings.duration}`;
    if (next === shownFor) return;
    shownFor = next;
    const edges = edgesOf(settings);
    const every = Math.ceil(edges.length / MOST_LABELS);
    const shown = edges.filter((edge, index) =>
      (index + 1) % every === 0 && edge <= settings.duration * 0.9);
    replace(element, [0, ...shown, settings.duration].map((time) => {
      const label = h("span", {}, time === 0 ? "0" : span(time));
      label.style.setProperty("--at", String(time / settings.duration));
      return label;
    }));
  }
  return { element, update };
}
