// The setting of the Lab: defaults, bounds, link and pattern.

export const SLOTS = 60;
export const MOST_PER_SLOT = 20;
export const PATTERNS = /** @type {const} */ ([
  ["edge", "Window edge"], ["steady", "Steady"], ["bursts", "Bursts"],
  ["ramp", "Ramp"], ["random", "Random"], ["drawn", "Drawn"],
]);
const BURSTS = 6;

/**
 * Times are in milliseconds. `burst` is the capacity of the buckets and `refill` what they regain
 * in a window, if not `capacity`; with `shape` the leaky bucket queues.
 * @typedef {{
 *   pattern: typeof PATTERNS[number][0], drawn: number[], requests: number, seed: number,
 *   duration: number, capacity: number, window: number, burst: number | null,
 *   refill: number | null, shape: boolean, run: number,
 * }} Settings
 */

/** The values that a number can have. */
export const STEPS = {
  requests: range(5, 400),
  seed: range(1, 9999),
  duration: [3, 6, 9, 12, 15, 18, 24, 30, 45, 60].map((seconds) => seconds * 1000),
  capacity: range(1, 60),
  window: [200, 500, 1000, 1500, 2000, 3000, 5000, 10_000, 15_000, 20_000, 30_000],
  burst: range(1, 60),
  refill: range(1, 60),
  run: [10, 20, 50, 100, 200, 300, 500, 750, 1000, 1500, 2000, 3000, 5000, 10_000],
};
/** @typedef {keyof typeof STEPS} Name */
const NAMES = /** @type {Name[]} */ (Object.keys(STEPS));

/** @returns {Settings} */
export function defaults() {
  return {
    pattern: "edge", drawn: new Array(SLOTS).fill(0), requests: 60, seed: 1, duration: 3000,
    capacity: 10, window: 1000, burst: null, refill: null, shape: true, run: 500,
  };
}

/** Reads a link. What is missing or unusable has its default. @param {URLSearchParams} params */
export function readSettings(params) {
  const settings = defaults();
  settings.pattern = PATTERNS.find(([name]) => name === params.get("pattern"))?.[0] ?? "edge";
  for (const name of NAMES) {
    const text = params.get(name) ?? "";
    if (/^\d{1,6}$/.test(text)) settings[name] = closest(STEPS[name], Number(text));
  }
  settings.shape = params.get("shape") !== "no";
  const slots = params.get("slots") ?? "";
  settings.drawn = settings.drawn.map((none, index) => {
    const height = Number.parseInt(slots[index] ?? "", 36);
    return height <= MOST_PER_SLOT ? height : none;
  });
  return settings;
}

/** @param {Settings} settings */
export function linkOf(settings) {
  const params = new URLSearchParams();
  const usual = defaults();
  for (const name of /** @type {const} */ (["pattern", ...NAMES])) {
    const isUsed = name !== "seed" || settings.pattern === "random";
    if (isUsed && settings[name] !== usual[name]) params.set(name, String(settings[name]));
  }
  if (!settings.shape) params.set("shape", "no");
  if (settings.pattern === "drawn") {
    params.set("slots", settings.drawn.map((height) => height.toString(36)).join(""));
  }
  return params.size > 0 ? `#/lab?${params}` : "#/lab";
}

/** @param {number[]} values @param {number} given */
export const closest = (values, given) =>
  values.reduce((best, next) => Math.abs(next - given) < Math.abs(best - given) ? next : best);

/** @param {number} least @param {number} most */
function range(least, most) {
  return Array.from({ length: most - least + 1 }, (_, index) => least + index);
}

/** @param {Settings} settings */
export function countsOf({ pattern, requests, drawn, duration, window, seed }) {
  const half = Math.max(3, Math.ceil(requests / 2 / MOST_PER_SLOT));
  const burst = Math.max(2, Math.ceil(requests / BURSTS / MOST_PER_SLOT));
  // The window edge in the middle, or the middle.
  const edges = edgesOf({ duration, window });
  const edge = (closest(edges.length > 0 ? edges : [duration / 2], duration / 2) / duration) * SLOTS;
  const fromEdge = (/** @type {number} */ slot) => slot - Math.round(edge);
  switch (pattern) {
    case "drawn": return drawn;
    case "random": return randomCounts(requests, seed);
    case "ramp": return spread(requests, (slot) => slot + 0.5);
    case "bursts": return spread(requests, (slot) => Number(slot % (SLOTS / BURSTS) < burst));
    case "edge": return spread(requests, (slot) =>
      Number(fromEdge(slot) >= -half && fromEdge(slot) < half));
    default: return spread(requests, () => 1);
  }
}

/** @param {{duration: number, window: number}} settings */
export const edgesOf = ({ duration, window }) =>
  range(1, Math.ceil(duration / window) - 1).map((index) => index * window);

/**
 * Spreads requests over the slots by weight. Rounding the running sum keeps the total exact.
 * @param {number} requests @param {(slot: number) => number} weight
 */
function spread(requests, weight) {
  const weights = range(0, SLOTS - 1).map(weight);
  const total = weights.reduce((sum, each) => sum + each, 0);
  let sum = 0;
  let given = 0;
  return weights.map((each) => {
    sum += each;
    const due = Math.round((requests * sum) / total);
    const count = Math.min(MOST_PER_SLOT, due - given);
    given = due;
    return count;
  });
}

/** @param {number} requests @param {number} seed */
function randomCounts(requests, seed) {
  let state = seed;
  /** Returns the next number from 0 to 1 (mulberry32). */
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const none = Math.exp(-requests / SLOTS);
  // The counts have a Poisson distribution.
  return range(1, SLOTS).map(() => {
    let count = 0;
    for (let product = next(); product > none && count < MOST_PER_SLOT; product *= next()) count++;
    return count;
  });
}
