// The override that raises a limit for one identity for a while. Pure: no elements, no calls.

/** @import { Band } from "../api.js" */
/** @typedef {{identity: string | string[], until: string, bands: Record<string, unknown>[]}} Override */

const UNITS = /** @type {const} */ ([[86_400_000, "d"], [3_600_000, "h"], [60_000, "m"], [1000, "s"], [1, "ms"]]);

/** Returns `1h` or `90s`, as rules write it. @param {number} milliseconds */
export function durationText(milliseconds) {
  const [size, unit] = UNITS.find(([each]) => milliseconds % each === 0) ?? UNITS[4];
  return `${milliseconds / size}${unit}`;
}

/**
 * Returns the bands of a rule with other capacities. A bucket is refilled faster in proportion, so that
 * the rate is raised as well.
 * @param {Band[]} bands @param {number[]} capacities
 */
export const raisedBands = (bands, capacities) => bands.map((band, index) => {
  const { id, capacity, window_ms: window, refill, period_ms: period, calendar, time_zone } = band;
  const raised = capacities[index];
  if (calendar) return { id, capacity: raised, calendar, ...(time_zone && time_zone !== "UTC" ? { time_zone } : {}) };
  if (window === undefined) return { id, capacity: raised };
  const isPlain = refill === undefined || (refill === capacity && (period === undefined || period === window));
  const rate = isPlain ? {} : {
    refill: Math.max(1, Math.round((/** @type {number} */ (refill) * raised) / capacity)),
    period: durationText(period ?? window),
  };
  return { id, capacity: raised, window: durationText(window), ...rate };
});

/**
 * Returns the overrides of a rule with one more, in place of that of the same identity.
 * @param {Override[] | undefined} overrides @param {Override} added
 */
export function withOverride(overrides = [], added) {
  const same = (/** @type {Override} */ { identity }) =>
    JSON.stringify([identity].flat()) === JSON.stringify([added.identity].flat());
  return [...overrides.filter((each) => !same(each)), added];
}

/** Returns an override as the YAML of a rule. @param {Override} override */
export const yamlOf = (override) => `overrides:\n  - ${flow(override)}\n`;

/** JSON strings are YAML, too. @param {unknown} value @returns {string} */
function flow(value) {
  if (Array.isArray(value)) return `[ ${value.map(flow).join(", ")} ]`;
  if (typeof value === "string") return /^(\d+(ms|[smhd])|hour|day|week|month|year)$/.test(value) ? value : JSON.stringify(value);
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{ ${Object.entries(value).map(([name, each]) => `${name}: ${flow(each)}`).join(", ")} }`;
}
