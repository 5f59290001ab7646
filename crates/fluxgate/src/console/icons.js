// Icons as strokes on a grid of 24.

import { svg } from "./dom.js";

/** @type {Record<string, string>} */
const PATHS = {
  overview: "M3 20h18M5 16l5-6 4 3 5-8",
  rules: "M5 6h14M5 12h14M5 18h8",
  identities: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8M4.5 20c.8-3.6 3.8-5 7.5-5s6.7 1.4 7.5 5",
  lab: "M9 4h6M10 4v6l-5 8.5A1 1 0 0 0 6 20h12a1 1 0 0 0 1-1.5L14 10V4M7.5 15h9",
  instances: "M4 5h16v5H4zM4 14h16v5H4zM7.5 7.5h.01M7.5 16.5h.01",
  system: "M4 5h16v11H4zM9 20h6M12 16v4",
  light: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8M12 2v2M12 20v2M2 12h2M20 12h2" +
    "M5 5l1.4 1.4M17.6 17.6 19 19M5 19l1.4-1.4M17.6 6.4 19 5",
  dark: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  logout: "M10 4H5v16h5M15 8l4 4-4 4M19 12H9",
  close: "M6 6l12 12M18 6 6 18",
};

/**
 * Makes an icon, which screen readers skip.
 * @param {string} name
 */
export function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 24 24", width: 20, height: 20, "aria-hidden": "true" },
    svg("path", { d: PATHS[name] ?? "" }));
}
