// The sliders of the Lab.

import { h } from "../dom.js";
import { count } from "../format.js";
import { BOUNDS, DURATIONS, RUNS, WINDOWS } from "./settings.js";
import { span } from "./words.js";

/** @typedef {import("./settings.js").Settings} Settings */
/** @typedef {{element: HTMLElement, update: (settings: Settings) => void}} Control */

/**
 * @typedef {object} Slider
 * @property {string} label
 * @property {number[]} steps the values it can have
 * @property {(settings: Settings) => number} read
 * @property {(settings: Settings, value: number) => void} write
 * @property {(value: number, settings: Settings) => string} text
 * @property {string} [hint]
 */

/** @param {{least: number, most: number}} bounds */
function range({ least, most }) {
  return Array.from({ length: most - least + 1 }, (_, index) => least + index);
}

/**
 * Returns how a value that follows the capacity until it is set is read and written.
 * @param {"burst" | "refill"} name
 */
function following(name) {
  return {
    read: (/** @type {Settings} */ settings) => settings[name] ?? settings.capacity,
    write: (/** @type {Settings} */ settings, /** @type {number} */ value) => {
      settings[name] = value === settings.capacity ? null : value;
    },
  };
}

/**
 * @param {"requests" | "duration" | "capacity" | "window" | "run"} name
 */
function plain(name) {
  return {
    read: (/** @type {Settings} */ settings) => settings[name],
    write: (/** @type {Settings} */ settings, /** @type {number} */ value) => {
      settings[name] = value;
    },
  };
}

/** @type {{pattern: Slider[], limit: Slider[], bucket: Slider[], slot: Slider[]}} */
export const SLIDERS = {
  pattern: [
    { label: "Requests", steps: range(BOUNDS.requests), ...plain("requests"), text: String },
    { label: "Duration", steps: DURATIONS, ...plain("duration"), text: span },
  ],
  limit: [
    { label: "Capacity", steps: range(BOUNDS.capacity), ...plain("capacity"), text: (value) =>
      count(value, "request") },
    { label: "Window", steps: WINDOWS, ...plain("window"), text: span },
  ],
  bucket: [
    { label: "Burst", steps: range(BOUNDS.capacity), ...following("burst"), text: (value, { burst }) =>
      burst === null ? `${value}, as the capacity` : String(value) },
    { label: "Refill", steps: range(BOUNDS.capacity), ...following("refill"), text: (value, { window }) =>
      `${value} in ${span(window)}` },
  ],
  slot: [{ label: "A request runs for", steps: RUNS, ...plain("run"), text: span }],
};

let made = 0;

/**
 * @param {Slider} slider
 * @param {Settings} settings
 * @param {() => void} onChange
 * @returns {Control}
 */
export function sliderControl({ label, steps, read, write, text }, settings, onChange) {
  const id = `lab-slider-${made++}`;
  const output = h("output", { for: id });
  const input = h("input", { id, type: "range", min: 0, max: steps.length - 1, step: 1, oninput: () => {
    write(settings, steps[Number(input.value)]);
    onChange();
  } });
  const element = h("div", { class: "lab-slider" },
    h("label", { class: "field-label", for: id }, label), output, input);
  /** @param {Settings} settings */
  function update(settings) {
    const value = read(settings);
    const shown = text(value, settings);
    input.value = String(steps.indexOf(value));
    input.setAttribute("aria-valuetext", shown);
    // An output is a live region, and the slider already reads out its value.
    output.setAttribute("aria-live", "off");
    output.textContent = shown;
  }
  return { element, update };
}

/**
 * @param {string} title
 * @param {...(HTMLElement | false)} children
 */
export function controlGroup(title, ...children) {
  return h("fieldset", { class: "lab-group" }, h("legend", {}, title), ...children);
}
