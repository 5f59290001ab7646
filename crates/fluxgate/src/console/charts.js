// Charts that update in place. Pictures are stretched to the page, so their text is beside them.

import { h, replace, set, svg } from "./dom.js";
import { axisTime, compact, duration, sum } from "./format.js";

/** @typedef {{at: number, values: number[]}} Point values in the order of the series */

/** The size of a picture in its own units. */
export const WIDTH = 600;
export const HEIGHT = 200;
const ROWS = 4;

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
 * What a chart shows. `at` and `marks` are times; a gap in the points is not drawn over.
 * @typedef {{name: string, label: string}} Series `name` is its CSS class too
 * @typedef {{
 *   title: string, series: Series[], points: readonly Point[], isStacked: boolean,
 *   from: number, to: number, step: number, marks: number[], highest?: number,
 * }} Shown
 */

/**
 * A chart of values over time: stacked areas, the first series at the bottom, or lines.
 * @param {(at: number | null, values: number[]) => void} onShow the values below the pointer or, without
 * one, the latest, and their time; `null` if there are none
 */
export function timeChart(onShow) {
  const grid = line("chart-grid");
  const layers = svg("g");
  const marks = line("chart-mark");
  const cursor = line("chart-cursor");
  const patterns = svg("defs");
  const picture = svg("svg.chart", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
    onpointermove: point,
    onpointerleave: () => point(null),
  }, patterns, grid, layers, marks, cursor);
  const { element, label } = plot(picture);
  let drawn = "";
  let labelled = "";
  let pointer = /** @type {number | null} */ (null);
  let current = /** @type {{points: readonly Point[], xs: number[]} | null} */ (null);
  /** @type {{area: SVGElement, edge: SVGElement}[]} */
  let paths = [];

  /** @param {PointerEvent | null} event */
  function point(event) {
    const { left, width } = picture.getBoundingClientRect();
    pointer = event && ((event.clientX - left) / width) * WIDTH;
    show();
  }

  function show() {
    if (!current) return;
    const { points, xs } = current;
    const last = xs.length - 1;
    if (last < 0) return onShow(null, []);
    const away = (/** @type {number} */ index) => Math.abs(xs[index] - (pointer ?? WIDTH));
    const nearest = pointer === null ? last
      : xs.reduce((best, _, index) => away(index) < away(best) ? index : best, last);
    set(cursor, { d: pointer === null ? "" : `M${xs[nearest]} 0V${HEIGHT}` });
    onShow(points[nearest].at, points[nearest].values);
  }

  /** @param {Shown} shown */
  function update({ title, series, points, isStacked, from, to, step, marks: times, highest }) {
    const names = series.map(({ name }) => name).join();
    if (drawn !== names) {
      drawn = names;
      paths = series.map(({ name }) => ({ area: line(`chart-area.${name}`), edge: line(`chart-line.${name}`) }));
      replace(patterns, series.map(({ name }) => stripes(`stripes-${name}`, name)));
      // Lower layers are drawn last, so that an empty layer does not cover the line below it.
      replace(layers, isStacked && paths.map(({ area }) => area), paths.map(({ edge }) => edge).toReversed());
    }
    const sums = points.map(({ values }) => isStacked ? sum(values)
      : Math.max(0, ...values));
    const top = Math.max(0, ...sums);
    const unit = Math.max(top < 4 ? 0.5 : 1, niceCeiling(top / ROWS));
    const rows = Math.max(1, Math.ceil(top / unit));
    const y = (/** @type {number} */ value) => tenth(HEIGHT - (value / unit / rows) * HEIGHT);
    const x = (/** @type {number} */ at) => tenth(((at - from) / (to - from)) * WIDTH);
    const isLong = to - from > 2 * 86_400_000;
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => axisTime(from + part * (to - from), isLong));
    if (labelled !== [unit, rows, ...ticks].join()) {
      labelled = [unit, rows, ...ticks].join();
      const values = Array.from({ length: rows + 1 }, (_, row) => (rows - row) * unit);
      label(values.map(compact), ticks);
      set(grid, { d: values.map((value) => `M0 ${y(value)}H${WIDTH}`).join("") });
    }
    set(marks, { d: times.map((at) => `M${x(at)} 0V${HEIGHT}`).join("") });
    const xs = points.map(({ at }) => x(at));
    const runs = /** @type {number[][]} */ ([]);
    points.forEach(({ at }, index) => {
      if (index === 0 || at - points[index - 1].at > 3 * step) runs.push([]);
      runs[runs.length - 1].push(index);
    });
    const along = (/** @type {number[]} */ run, /** @type {number[]} */ ys) =>
      run.map((index) => `${xs[index]} ${ys[index]}`).join("L");
    const below = points.map(() => 0);
    let floor = points.map(() => y(0));
    series.forEach((_, layer) => {
      const ceiling = points.map(({ values }, i) =>
        y(isStacked ? (below[i] += values[layer]) : values[layer]));
      const isEmpty = points.every(({ values }) => values[layer] === 0);
      if (isStacked) {
        set(paths[layer].area, { d: runs.map((run) =>
          `M${along(run, ceiling)}L${along(run.toReversed(), floor)}Z`).join("") });
        floor = ceiling;
      }
      set(paths[layer].edge, { d: isEmpty ? "" : runs.map((run) => `M${along(run, ceiling)}`).join("") });
    });
    current = { points, xs };
    show();
    const latest = points.at(-1)?.values ?? [];
    const now = series.map(({ label: name }, i) => `${compact(latest[i] ?? 0)} ${name.toLowerCase()}`);
    set(picture, { "aria-label": `${title} over the last ${duration(Math.round((to - from) / 60_000) * 60_000)}. `
      + (points.length === 0 ? "No data yet." : `Now: ${now.reverse().join(", ")}. `
      + `Highest: ${compact(highest ?? top)}. Lowest: ${compact(Math.min(...sums))}.`) });
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
