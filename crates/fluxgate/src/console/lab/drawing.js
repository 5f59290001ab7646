// The pattern: one column for each slot, drawn with a pointer or with the arrow keys.

import { HEIGHT, line, plot, WIDTH } from "../charts.js";
import { h, set, svg } from "../dom.js";
import { count, span, sum } from "../format.js";
import { COLUMN, edgePath, timesOf } from "./chart.js";
import { MOST_PER_SLOT, SLOTS } from "./settings.js";

const UNIT = HEIGHT / MOST_PER_SLOT;
const HINT = "Draw with the mouse or a finger. With the keyboard: left and right move between columns, "
  + "up and down change the number of requests, Page Up and Page Down by 5, Delete clears a column.";

/** @type {Record<string, number>} */
const MOVES = { ArrowLeft: -1, ArrowRight: 1 };
/** @type {Record<string, number>} */
const CHANGES = {
  ArrowUp: 1, ArrowDown: -1, PageUp: 5, PageDown: -5, End: MOST_PER_SLOT, Home: -MOST_PER_SLOT,
  Delete: -MOST_PER_SLOT, Backspace: -MOST_PER_SLOT,
};

/** @param {(counts: number[]) => void} onDraw called with all slots when some have changed */
export function drawing(onDraw) {
  /** @type {number[]} */
  let counts = [];
  let duration = 0;
  /** The last point of the line being drawn. @type {{slot: number, height: number} | null} */
  let last = null;

  const slots = Array.from({ length: SLOTS }, (_, slot) => slot);
  const bars = slots.map((slot) =>
    svg("rect.lab-bar", { x: slot * COLUMN + 1, width: COLUMN - 2 }));
  const columns = slots.map((slot) => svg("rect.lab-column", {
    x: slot * COLUMN, y: 0, width: COLUMN, height: HEIGHT,
    role: "slider", tabindex: slot === 0 ? 0 : -1, "aria-orientation": "vertical",
    "aria-valuemin": 0, "aria-valuemax": MOST_PER_SLOT,
  }));
  const edges = line("lab-edge");
  const rows = [5, 10, 15].map((units) => `M0 ${HEIGHT - units * UNIT}H${WIDTH}`);
  const surface = svg("svg.lab-surface", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none",
    role: "group", "aria-label": "Requests in each column", "aria-describedby": "lab-drawing-hint",
    onpointerdown: start,
    onpointermove: move,
    onpointerleave: () => show(-1),
    onkeydown: press,
    onfocusin: (/** @type {FocusEvent} */ event) => show(slotOf(event.target)),
  }, line("lab-base", rows.join("")), edges, bars, columns);
  const { element: plotted, label } = plot(surface);
  const readout = h("p.lab-readout.quiet", { "aria-hidden": "true" });
  const element = h("div.lab-drawing",
    plotted, readout, h("p.hint", { id: "lab-drawing-hint" }, HINT));

  /** @param {PointerEvent} event */
  function pointOf({ clientX, clientY }) {
    const box = surface.getBoundingClientRect();
    const slot = Math.floor(((clientX - box.left) / box.width) * SLOTS);
    const height = Math.round((1 - (clientY - box.top) / box.height) * MOST_PER_SLOT);
    return { slot: within(slot, SLOTS - 1), height: within(height, MOST_PER_SLOT) };
  }

  /** @param {PointerEvent} event */
  function start(event) {
    if (event.button !== 0) return;
    event.preventDefault();
    surface.setPointerCapture(event.pointerId);
    const { slot, height } = (last = pointOf(event));
    put(slot, slot, () => height);
    focusOn(slot);
  }

  /** @param {PointerEvent} event */
  function move(event) {
    const to = pointOf(event);
    const from = event.buttons & 1 ? last : null;
    if (from) {
      // A quick pointer skips slots: they get the heights of the line between two points.
      const slope = (to.height - from.height) / (to.slot - from.slot || 1);
      put(Math.min(from.slot, to.slot), Math.max(from.slot, to.slot), (slot) =>
        Math.round(to.height + slope * (slot - to.slot)));
    }
    last = from && to;
    show(to.slot);
  }

  /** @param {KeyboardEvent} event */
  function press(event) {
    const slot = slotOf(event.target);
    if (slot < 0 || event.altKey || event.metaKey) return;
    const { key } = event;
    if (key in MOVES) focusOn(within(slot + MOVES[key], SLOTS - 1));
    else if (key in CHANGES) put(slot, slot, () => within(counts[slot] + CHANGES[key], MOST_PER_SLOT));
    else return;
    event.preventDefault();
    show(slotOf(document.activeElement));
  }

  /** @param {number} from @param {number} to @param {(slot: number) => number} height */
  function put(from, to, height) {
    const next = counts.map((old, slot) => (slot >= from && slot <= to ? height(slot) : old));
    if (next.some((value, slot) => value !== counts[slot])) onDraw(next);
  }

  /** @param {number} slot */
  function focusOn(slot) {
    columns.forEach((column, index) => set(column, { tabindex: index === slot ? 0 : -1 }));
    columns[slot].focus({ preventScroll: true });
  }

  /** @param {EventTarget | null} target */
  const slotOf = (target) => columns.indexOf(/** @type {SVGRectElement} */ (target));

  /** @param {number} slot */
  function labelOf(slot) {
    const [from, to] = [slot, slot + 1].map((index) => span((duration / SLOTS) * index));
    return `Column ${slot + 1}, ${from} to ${to}`;
  }

  /** @param {number} slot */
  function show(slot) {
    readout.textContent = slot < 0
      ? `${count(sum(counts), "request")} in ${span(duration)}`
      : `${labelOf(slot)}: ${count(counts[slot], "request")}`;
  }

  /** @param {import("./settings.js").Settings} settings @param {number[]} next */
  function update(settings, next) {
    const isChanged = (/** @type {number} */ slot) =>
      next[slot] !== counts[slot] || settings.duration !== duration;
    const changed = slots.filter(isChanged);
    counts = next;
    duration = settings.duration;
    for (const slot of changed) {
      const height = next[slot];
      set(bars[slot], { y: HEIGHT - height * UNIT, height: height * UNIT });
      set(columns[slot], {
        "aria-label": labelOf(slot),
        "aria-valuenow": height,
        "aria-valuetext": count(height, "request"),
      });
    }
    set(edges, { d: edgePath(settings, HEIGHT) });
    label([MOST_PER_SLOT, MOST_PER_SLOT / 2, 0], timesOf(settings));
    show(slotOf(document.activeElement));
  }

  return { element, update };
}

/** @param {number} value @param {number} most */
const within = (value, most) => Math.min(most, Math.max(0, value));
