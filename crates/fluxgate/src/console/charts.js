// Charts that update in place. They measure their box, so that text and lines stay sharp.

import { h, svg } from "./dom.js";
import { compact, duration, time } from "./format.js";

/** A layer of the stack. `name` is its CSS class too. @typedef {{name: string, label: string}} Series */
/** @typedef {{at: number, values: number[]}} Point values in the order of the series */

const MARGIN = { top: 10, right: 10, bottom: 26, left: 46 };
/** A gap in the data that is longer is drawn as a gap. */
const GAP_MS = 3500;

/**
 * Returns the smallest of 1, 2, 5 or 10 times a power of ten that is at least `value`.
 * @param {number} value
 */
export function niceCeiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const factor = [1, 2, 5, 10].find((step) => step * power >= value * (1 - 1e-9)) ?? 10;
  return factor * power;
}

/**
 * Splits points where data is missing.
 * @template {{at: number}} T
 * @param {readonly T[]} points
 * @returns {T[][]}
 */
function runs(points) {
  /** @type {T[][]} */
  const all = [];
  let last = -Infinity;
  for (const point of points) {
    if (point.at - last > GAP_MS) all.push([]);
    all[all.length - 1].push(point);
    last = point.at;
  }
  return all;
}

/**
 * A live chart of stacked areas, the first series at the bottom. The time window grows with the
 * data from one minute to `maxSeconds`.
 * @param {{
 *   series: Series[], unit: string, maxSeconds: number, onHover?: (point: Point | null) => void,
 * }} options
 * @returns {{element: HTMLElement, update: (points: readonly Point[]) => void, dispose: () => void}}
 */
export function areaChart({ series, unit, maxSeconds, onHover }) {
  const grid = svg("g", { class: "chart-grid" });
  const areas = series.map(({ name }) => svg("path", { class: `chart-area ${name}` }));
  const lines = series.map(({ name }) => svg("path", { class: `chart-line ${name}` }));
  const cursor = svg("line", { class: "chart-cursor", visibility: "hidden" });
  const cursorText = svg("text", {
    class: "chart-cursor-text", visibility: "hidden", "text-anchor": "middle",
  });
  const picture = svg("svg", { class: "chart", role: "img", "aria-label": `No ${unit} yet` },
    // Lower layers are drawn last, so that an empty layer does not cover the line below it.
    stripes(series), grid, areas, lines.toReversed(), cursor, cursorText);
  const element = h("div", { class: "chart-box" },
    h("div", { class: "chart-unit", "aria-hidden": "true" }, unit), picture);

  /** @type {readonly Point[]} */
  let points = [];
  let width = 0;
  let height = 0;
  let top = 1;
  /** @type {number | null} */
  let hovered = null;
  const rows = Array.from({ length: 5 }, () => gridLine(grid, "y"));
  const columns = Array.from({ length: 6 }, () => gridLine(grid, "x"));

  function draw() {
    if (width === 0 || points.length === 0) return;
    const end = points[points.length - 1].at;
    const seconds = windowSeconds(end - points[0].at, maxSeconds);
    const start = end - seconds * 1000;
    const sums = points.map(({ values }) => values.reduce((sum, value) => sum + value, 0));
    const highest = Math.max(...sums, 1);
    const step = Math.max(1, niceCeiling(highest / (rows.length - 1)));
    top = step * Math.ceil(highest / step);
    const bottom = height - MARGIN.bottom;
    const x = (/** @type {number} */ at) =>
      MARGIN.left + ((at - start) / (end - start)) * (width - MARGIN.left - MARGIN.right);
    const y = (/** @type {number} */ value) => bottom - (value / top) * (bottom - MARGIN.top);

    drawGrid(step, seconds, x, y, start);
    const parts = runs(points);
    const areaPaths = series.map(() => "");
    const linePaths = series.map(() => "");
    for (const part of parts) {
      const across = part.map(({ at }) => tenth(x(at)));
      const sum = new Array(part.length).fill(0);
      let floor = part.map(() => tenth(y(0)));
      for (let layer = 0; layer < series.length; layer += 1) {
        const ceiling = part.map(({ values }, i) => tenth(y((sum[i] += values[layer]))));
        const back = pairs(across.toReversed(), floor.toReversed());
        areaPaths[layer] += `M${pairs(across, ceiling)}L${back}Z`;
        linePaths[layer] += line(part.map(({ values }) => values[layer]), across, ceiling);
        floor = ceiling;
      }
    }
    areas.forEach((area, layer) => area.setAttribute("d", areaPaths[layer]));
    lines.forEach((line, layer) => line.setAttribute("d", linePaths[layer]));
    drawCursor(x, bottom, start, end);
    picture.setAttribute("aria-label", describe(seconds, sums));
  }

  /**
   * @param {number} rowStep
   * @param {number} seconds
   * @param {(at: number) => number} x
   * @param {(value: number) => number} y
   * @param {number} start
   */
  function drawGrid(rowStep, seconds, x, y, start) {
    rows.forEach((row, index) => {
      const value = rowStep * index;
      row.show(value <= top);
      row.place(MARGIN.left, y(value), width - MARGIN.right, y(value));
      row.label(MARGIN.left - 8, y(value) + 4, compact(value), "end");
    });
    const wide = width > 480;
    const step = seconds > 120 ? (wide ? 60 : 150) : seconds > 60 ? (wide ? 30 : 60) : wide ? 15 : 30;
    const end = start + seconds * 1000;
    columns.forEach((column, index) => {
      const back = index * step;
      const px = x(end - back * 1000);
      column.show(back <= seconds);
      column.place(px, height - MARGIN.bottom, px, height - MARGIN.bottom + 5);
      const text = back === 0 ? "now" : `−${duration(back * 1000)}`;
      column.label(px, height - 5, text, back === 0 ? "end" : back === seconds ? "start" : "middle");
    });
  }

  /**
   * @param {(at: number) => number} x
   * @param {number} bottom
   * @param {number} start
   * @param {number} end
   */
  function drawCursor(x, bottom, start, end) {
    const inside = hovered !== null && hovered >= MARGIN.left && hovered <= width - MARGIN.right;
    const part = ((hovered ?? 0) - MARGIN.left) / (width - MARGIN.left - MARGIN.right);
    const at = start + part * (end - start);
    const point = inside ? nearest(points, at) : null;
    const visibility = point ? "visible" : "hidden";
    cursor.setAttribute("visibility", visibility);
    cursorText.setAttribute("visibility", visibility);
    if (point) {
      const px = x(point.at);
      for (const name of ["x1", "x2"]) cursor.setAttribute(name, px.toFixed(1));
      cursor.setAttribute("y1", String(MARGIN.top));
      cursor.setAttribute("y2", String(bottom));
      cursorText.setAttribute("x", Math.min(Math.max(px, MARGIN.left + 30), width - 40).toFixed(1));
      cursorText.setAttribute("y", String(MARGIN.top + 4));
      cursorText.textContent = time(point.at);
    }
    onHover?.(point);
  }

  /**
   * @param {number} seconds
   * @param {number[]} sums
   */
  function describe(seconds, sums) {
    const { values } = points[points.length - 1];
    const now = series.map(({ label }, layer) => `${compact(values[layer])} ${label.toLowerCase()}`);
    return `${unit} over the last ${duration(seconds * 1000)}. Now: ${now.reverse().join(", ")}. ` +
      `Highest: ${compact(Math.max(...sums))}. Lowest: ${compact(Math.min(...sums))}.`;
  }

  const observer = new ResizeObserver(() => {
    width = picture.clientWidth;
    height = picture.clientHeight;
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    draw();
  });
  observer.observe(picture);
  /** @param {number | null} position */
  const hover = (position) => {
    hovered = position;
    draw();
  };
  picture.addEventListener("pointermove", (event) => {
    hover(event.clientX - picture.getBoundingClientRect().left);
  });
  picture.addEventListener("pointerleave", () => hover(null));

  return {
    element,
    update(next) {
      points = next;
      draw();
    },
    dispose: () => observer.disconnect(),
  };
}

/** @param {number} value */
function tenth(value) {
  return Math.round(value * 10) / 10;
}

/**
 * @param {number[]} across
 * @param {number[]} down
 */
function pairs(across, down) {
  return across.map((value, i) => `${value} ${down[i]}`).join("L");
}

/**
 * Returns the line of a layer, without the parts where the layer is empty.
 * @param {number[]} values
 * @param {number[]} across
 * @param {number[]} down
 */
function line(values, across, down) {
  let path = "";
  let drawing = false;
  for (let i = 0; i < values.length; i += 1) {
    const shown = values[i] > 0 || values[i - 1] > 0 || values[i + 1] > 0;
    if (shown) path += `${drawing ? "L" : "M"}${across[i]} ${down[i]}`;
    drawing = shown;
  }
  return path;
}

/**
 * Stripes tell the layers apart without their colours.
 * @param {Series[]} series
 */
function stripes(series) {
  return svg("defs", {}, series.map(({ name }) =>
    svg("pattern", {
      id: `stripes-${name}`, width: 6, height: 6,
      patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)",
    }, svg("rect", { class: `stripe-ground ${name}`, width: 6, height: 6 }),
    svg("rect", { class: `stripe ${name}`, width: 2, height: 6 }))));
}

/**
 * @param {SVGGElement} grid
 * @param {"x" | "y"} axis
 */
function gridLine(grid, axis) {
  const line = svg("line", { class: `chart-grid-${axis}` });
  const text = svg("text", { class: "chart-label" });
  grid.append(line, text);
  return {
    /** @param {boolean} shown */
    show(shown) {
      for (const part of [line, text]) part.setAttribute("visibility", shown ? "visible" : "hidden");
    },
    /** @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 */
    place(x1, y1, x2, y2) {
      for (const [name, value] of Object.entries({ x1, y1, x2, y2 })) {
        line.setAttribute(name, value.toFixed(1));
      }
    },
    /** @param {number} x @param {number} y @param {string} value @param {string} anchor */
    label(x, y, value, anchor) {
      text.setAttribute("x", x.toFixed(1));
      text.setAttribute("y", y.toFixed(1));
      text.setAttribute("text-anchor", anchor);
      if (text.textContent !== value) text.textContent = value;
    },
  };
}

/**
 * @param {number} span in milliseconds
 * @param {number} maxSeconds
 */
function windowSeconds(span, maxSeconds) {
  return Math.min(maxSeconds, [60, 120].find((seconds) => seconds * 1000 >= span) ?? maxSeconds);
}

/**
 * @param {readonly Point[]} points
 * @param {number} at
 */
function nearest(points, at) {
  let best = points[0];
  for (const point of points) if (Math.abs(point.at - at) < Math.abs(best.at - at)) best = point;
  return Math.abs(best.at - at) > GAP_MS ? null : best;
}

/**
 * A small line without axes. `null` is a gap.
 * @param {string} label
 * @returns {{element: SVGSVGElement, update: (values: readonly (number | null)[], text: string) => void}}
 */
export function sparkline(label) {
  const line = svg("path", { class: "spark-line" });
  const area = svg("path", { class: "spark-area" });
  const element = svg("svg", {
    class: "spark", viewBox: "0 0 100 32", preserveAspectRatio: "none", role: "img", "aria-label": label,
  }, area, line);
  return {
    element,
    update(values, text) {
      const top = Math.max(...values.map((value) => value ?? 0), Number.MIN_VALUE);
      const step = 100 / Math.max(values.length - 1, 1);
      let lines = "";
      let areas = "";
      values.forEach((value, index) => {
        if (value === null) return;
        const x = tenth(index * step);
        const y = tenth(31 - (value / top) * 29);
        const isFirst = (values[index - 1] ?? null) === null;
        const isLast = (values[index + 1] ?? null) === null;
        lines += `${isFirst ? "M" : "L"}${x} ${y}`;
        areas += `${isFirst ? `M${x} 32` : ""}L${x} ${y}${isLast ? `L${x} 32Z` : ""}`;
      });
      line.setAttribute("d", lines);
      area.setAttribute("d", areas);
      element.setAttribute("aria-label", `${label}: ${text}`);
    },
  };
}
