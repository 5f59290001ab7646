// Charts that update in place. Pictures are stretched to the page, so their text is beside them.

import { h, replace, set, svg } from "./dom.js";
import { compact, duration } from "./format.js";

/** @typedef {{at: number, values: number[]}} Point values in the order of the series */

/** The size of a picture in its own units. */
export const WIDTH = 600;
export const HEIGHT = 200;
const ROWS = 4;
/** Values further apart are not joined: what happened between them is not known. */
const GAP_MS = 3000;

/** A picture with values beside it and times below it. @param {SVGSVGElement} picture */
export function plot(picture) {
  const scale = h("div.plot-scale", { "aria-hidden": "true" });
  const axis = h("div.plot-axis", { "aria-hidden": "true" });
  /** @param {(string | number)[]} values from the top @param {string[]} times */
  function label(values, times) {
    replace(scale, values.map((value) => h("span", value)));
    replace(axis, times.map((time) => h("span", time)));
  }
  return { element: h("div.plot", scale, picture, axis), label };
}

/** A line that is not stretched. @param {string} name @param {string} [d] */
export const line = (name, d) => svg(`path.${name}`, { d, "vector-effect": "non-scaling-stroke" });

/** Stripes tell areas apart without their colours. @param {string} id @param {string} name */
export function stripes(id, name) {
  const turned = { patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
  return svg("pattern", { id, width: 6, height: 6, ...turned },
    svg(`rect.stripe-ground.${name}`, { width: 6, height: 6 }),
    svg(`rect.stripe.${name}`, { width: 2, height: 6 }));
}

/**
 * Stacked areas, the first series at the bottom. The window grows with the data from one minute on.
 * @param {{name: string, label: string}[]} series `name` is its CSS class too
 * @param {string} unit @param {number} maxSeconds
 * @param {(values: number[], age: number) => void} onShow the values below the pointer or, without
 * it, the latest, and how old they are in milliseconds
 */
export function areaChart(series, unit, maxSeconds, onShow) {
  const grid = line("chart-grid");
  const areas = series.map(({ name }) => line(`chart-area.${name}`));
  const lines = series.map(({ name }) => line(`chart-line.${name}`));
  const cursor = line("chart-cursor");
  const picture = svg("svg.chart", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
    onpointermove: point,
    onpointerleave: () => point(null),
  }, svg("defs", series.map(({ name }) => stripes(`stripes-${name}`, name))),
    // Lower layers are drawn last, so that an empty layer does not cover the line below it.
    grid, areas, lines.toReversed(), cursor);
  const { element, label } = plot(picture);
  let labelled = "";
  let pointer = /** @type {number | null} */ (null);
  let shown = /** @type {{points: readonly Point[], xs: number[]} | null} */ (null);

  /** @param {PointerEvent | null} event */
  function point(event) {
    const { left, width } = picture.getBoundingClientRect();
    pointer = event && ((event.clientX - left) / width) * WIDTH;
    show();
  }

  function show() {
    if (!shown) return;
    const { points, xs } = shown;
    const last = xs.length - 1;
    const away = (/** @type {number} */ index) => Math.abs(xs[index] - (pointer ?? WIDTH));
    const nearest = xs.reduce((best, _, index) => away(index) < away(best) ? index : best, last);
    set(cursor, { d: pointer === null ? "" : `M${xs[nearest]} 0V${HEIGHT}` });
    onShow(points[nearest].values, points[last].at - points[nearest].at);
  }

  /** @param {readonly Point[]} points */
  function update(points) {
    const { at: end, values: latest } = points[points.length - 1];
    const seconds = [60, 120].find((each) => end - points[0].at <= each * 1000) ?? maxSeconds;
    const sums = points.map(({ values }) => values.reduce((sum, value) => sum + value, 0));
    const step = Math.max(1, niceCeiling(Math.max(...sums) / ROWS));
    const rows = Math.max(1, Math.ceil(Math.max(...sums) / step));
    const y = (/** @type {number} */ value) => tenth(HEIGHT - (value / step / rows) * HEIGHT);
    if (labelled !== [seconds, step, rows].join()) {
      labelled = [seconds, step, rows].join();
      const values = Array.from({ length: rows + 1 }, (_, row) => (rows - row) * step);
      label(values.map(compact), [1, 0.75, 0.5, 0.25].map((part) =>
        `−${duration(part * seconds * 1000)}`).concat("now"));
      set(grid, { d: values.map((value) => `M0 ${y(value)}H${WIDTH}`).join("") });
    }
    const xs = points.map(({ at }) => tenth(WIDTH - ((end - at) / 1000 / seconds) * WIDTH));
    const runs = /** @type {number[][]} */ ([]);
    points.forEach(({ at }, index) => {
      if (at - (points[index - 1]?.at ?? 0) > GAP_MS) runs.push([]);
      runs[runs.length - 1].push(index);
    });
    const along = (/** @type {number[]} */ run, /** @type {number[]} */ ys) =>
      run.map((index) => `${xs[index]} ${ys[index]}`).join("L");
    const sum = points.map(() => 0);
    let floor = points.map(() => y(0));
    series.forEach((_, layer) => {
      const ceiling = points.map(({ values }, i) => y((sum[i] += values[layer])));
      const isEmpty = points.every(({ values }) => values[layer] === 0);
      set(areas[layer], { d: runs.map((run) =>
        `M${along(run, ceiling)}L${along(run.toReversed(), floor)}Z`).join("") });
      set(lines[layer], { d: isEmpty ? "" : runs.map((run) => `M${along(run, ceiling)}`).join("") });
      floor = ceiling;
    });
    shown = { points, xs };
    show();
    const now = series.map(({ label }, i) => `${compact(latest[i])} ${label.toLowerCase()}`);
    set(picture, { "aria-label": `${unit} over the last ${duration(seconds * 1000)}. `
      + `Now: ${now.reverse().join(", ")}. `
      + `Highest: ${compact(Math.max(...sums))}. Lowest: ${compact(Math.min(...sums))}.` });
  }
  return { element, update };
}

/** Returns the next of 1, 2, 5 or 10 times a power of ten. @param {number} value */
function niceCeiling(value) {
  const power = 10 ** Math.floor(Math.log10(value || 1));
  return power * ([1, 2, 5].find((step) => step * power >= value * (1 - 1e-9)) ?? 10);
}

/** @param {number} value */
const tenth = (value) => Math.round(value * 10) / 10;

/** @param {string} label */
export function sparkline(label) {
  const path = line("spark-line");
  const element = svg("svg.spark", { viewBox: "0 0 100 32", preserveAspectRatio: "none", role: "img" }, path);
  /** @param {(number | null)[]} values `null` is a gap @param {string} text */
  function update(values, text) {
    const top = Math.max(...values.map((value) => value ?? 0), Number.MIN_VALUE);
    const step = 100 / Math.max(values.length - 1, 1);
    set(path, { d: values.map((value, index) => value === null ? "" :
      `${(values[index - 1] ?? null) === null ? "M" : "L"}${tenth(index * step)} `
      + tenth(31 - (value / top) * 29)).join("") });
    set(element, { "aria-label": `${label}: ${text}` });
  }
  return { element, update };
}
