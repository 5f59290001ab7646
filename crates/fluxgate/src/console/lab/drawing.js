// The pattern: one column for each slot, drawn with a pointer or with the arrow keys.

import { h, svg } from "../dom.js";
import { count } from "../format.js";
import { axis, edgePath, line, WIDTH } from "./axis.js";
import { MOST_PER_SLOT, SLOTS } from "./settings.js";
import { span } from "./words.js";

/** @typedef {import("./settings.js").Settings} Settings */

const COLUMN = WIDTH / SLOTS;
const HEIGHT = 200;
const UNIT = HEIGHT / MOST_PER_SLOT;
const HINT = "Draw with the mouse or a finger. With the keyboard: left and right move between slots, "
  + "up and down change the number of requests, Page Up and Page Down by 5, Delete clears a slot.";

/**
 * @param {(counts: number[]) => void} onDraw called with all slots when some have changed
 */
export function drawing(onDraw) {
  /** @type {number[]} */
  let counts = new Array(SLOTS).fill(0);
  let duration = 0;

  const bars = Array.from({ length: SLOTS }, (_, slot) =>
    svg("rect", { class: "lab-bar", x: slot * COLUMN + 1, width: COLUMN - 2 }));
  const columns = Array.from({ length: SLOTS }, (_, slot) => svg("rect", {
    class: "lab-column",
    x: slot * COLUMN,
    y: 0,
    width: COLUMN,
    height: HEIGHT,
    role: "slider",
    tabindex: slot === 0 ? 0 : -1,
    "aria-orientation": "vertical",
    "aria-valuemin": 0,
    "aria-valuemax": MOST_PER_SLOT,
  }));
  const edges = line("lab-edge");
  const grid = line("lab-grid");
  grid.setAttribute("d", [5, 10, 15].map((units) => `M0 ${HEIGHT - units * UNIT}H${WIDTH}`).join(""));
  const surface = svg("svg", {
    class: "lab-surface",
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    role: "group",
    "aria-label": "Requests in each slot",
    "aria-describedby": "lab-drawing-hint",
    onpointerdown: start,
    onpointermove: move,
    onpointerleave: () => show(null),
    onkeydown: press,
    onfocusin: (/** @type {FocusEvent} */ event) => show(slotOf(event.target)),
  }, grid, edges, bars, columns);
  const times = axis();
  const readout = h("p", { class: "lab-readout quiet", "aria-hidden": "true" });
  const hint = h("p", { class: "hint", id: "lab-drawing-hint" }, HINT);
  const element = h("div", { class: "lab-drawing" },
    h("div", { class: "lab-scale", "aria-hidden": "true" },
      h("span", {}, MOST_PER_SLOT), h("span", {}, MOST_PER_SLOT / 2), h("span", {}, 0)),
    h("div", { class: "lab-plot" }, surface, times.element),
    readout, hint);

  /** @type {{slot: number, height: number} | null} the last point of the line being drawn */
  let last = null;

  /** @param {PointerEvent} event */
  function pointOf(event) {
    const box = surface.getBoundingClientRect();
    const slot = Math.floor(((event.clientX - box.left) / box.width) * SLOTS);
    const height = Math.round((1 - (event.clientY - box.top) / box.height) * MOST_PER_SLOT);
    return { slot: within(slot, SLOTS - 1), height: within(height, MOST_PER_SLOT) };
  }

  /** @param {PointerEvent} event */
  function start(event) {
    if (event.button !== 0) return;
    event.preventDefault();
    surface.setPointerCapture(event.pointerId);
    last = pointOf(event);
    put(last.slot, last.slot, () => /** @type {{height: number}} */ (last).height);
    focusOn(last.slot);
  }

  /** @param {PointerEvent} event */
  function move(event) {
    const point = pointOf(event);
    if (last && event.buttons & 1) {
      // A quick pointer skips slots: they get the heights of the line between two points.
      const from = last;
      const slots = point.slot - from.slot;
      put(Math.min(from.slot, point.slot), Math.max(from.slot, point.slot), (slot) =>
        slots === 0
          ? point.height
          : Math.round(from.height + ((point.height - from.height) * (slot - from.slot)) / slots));
      last = point;
    } else {
      last = null;
    }
    show(point.slot);
  }

  /** @param {KeyboardEvent} event */
  function press(event) {
    const slot = slotOf(event.target);
    if (slot === null || event.altKey || event.metaKey) return;
    /** @type {Record<string, number>} */
    const steps = { ArrowLeft: -1, ArrowRight: 1 };
    /** @type {Record<string, number>} */
    const heights = {
      ArrowUp: counts[slot] + 1,
      ArrowDown: counts[slot] - 1,
      PageUp: counts[slot] + 5,
      PageDown: counts[slot] - 5,
      End: MOST_PER_SLOT,
      Home: 0,
      Delete: 0,
      Backspace: 0,
    };
    if (event.key in steps) focusOn(within(slot + steps[event.key], SLOTS - 1));
    else if (event.key in heights) put(slot, slot, () => within(heights[event.key], MOST_PER_SLOT));
    else return;
    event.preventDefault();
    show(slotOf(document.activeElement));
  }

  /**
   * @param {number} from
   * @param {number} to
   * @param {(slot: number) => number} height
   */
  function put(from, to, height) {
    const next = counts.map((old, slot) => (slot >= from && slot <= to ? height(slot) : old));
    if (next.some((value, slot) => value !== counts[slot])) onDraw(next);
  }

  /** @param {number} slot */
  function focusOn(slot) {
    for (const column of columns) column.setAttribute("tabindex", "-1");
    columns[slot].setAttribute("tabindex", "0");
    columns[slot].focus({ preventScroll: true });
  }

  /** @param {EventTarget | null} target */
  function slotOf(target) {
    const slot = columns.indexOf(/** @type {SVGRectElement} */ (target));
    return slot < 0 ? null : slot;
  }

  /** @param {number} slot */
  function labelOf(slot) {
    const time = (/** @type {number} */ index) => span((duration / SLOTS) * index);
    return `Slot ${slot + 1}, ${time(slot)} to ${time(slot + 1)}`;
  }

  /** @param {number | null} slot */
  function show(slot) {
    const total = counts.reduce((sum, each) => sum + each, 0);
    readout.textContent = slot === null
      ? `${count(total, "request")} in ${span(duration)}`
      : `${labelOf(slot)}: ${count(counts[slot], "request")}`;
  }

  /**
   * @param {Settings} settings
   * @param {number[]} next
   */
  function update(settings, next) {
    const relabel = duration !== settings.duration;
    duration = settings.duration;
    next.forEach((height, slot) => {
      if (relabel) columns[slot].setAttribute("aria-label", labelOf(slot));
      if (height === counts[slot] && columns[slot].hasAttribute("aria-valuenow")) return;
      bars[slot].setAttribute("y", String(HEIGHT - height * UNIT));
      bars[slot].setAttribute("height", String(height * UNIT));
      columns[slot].setAttribute("aria-valuenow", String(height));
      columns[slot].setAttribute("aria-valuetext", count(height, "request"));
    });
    counts = next;
    edges.setAttribute("d", edgePath(settings, HEIGHT));
    times.update(settings);
    show(slotOf(document.activeElement));
  }

  return { element, update };
}

/**
 * @param {number} value
 * @param {number} most
 */
function within(value, most) {
  return Math.min(most, Math.max(0, value));
}
