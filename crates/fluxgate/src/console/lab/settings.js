// The setting of the Lab: its defaults, its bounds and its form in a link.

export const SLOTS = 60;
export const MOST_PER_SLOT = 20;

/** @type {readonly (readonly [Pattern, string])[]} */
export const PATTERNS = [
  ["edge", "Window edge"],
  ["steady", "Steady"],
  ["bursts", "Bursts"],
  ["ramp", "Ramp"],
  ["random", "Random"],
  ["drawn", "Drawn"],
];

/** @typedef {"edge" | "steady" | "bursts" | "ramp" | "random" | "drawn"} Pattern */

/**
 * @typedef {object} Settings
 * @property {Pattern} pattern
 * @property {number[]} drawn requests in each slot, of a drawn pattern
 * @property {number} requests how many requests the other patterns have
 * @property {number} seed of the random pattern
 * @property {number} duration of the pattern, in milliseconds, as are all times here
 * @property {number} capacity
 * @property {number} window
 * @property {number | null} burst the capacity of the buckets, if it is not `capacity`
 * @property {number | null} refill what a bucket regains in a window, if it is not `capacity`
 * @property {boolean} shape whether the leaky bucket queues
 * @property {number} run how long a request runs
 */

export const DURATIONS = [3, 6, 9, 12, 15, 18, 24, 30, 45, 60].map((seconds) => seconds * 1000);
export const WINDOWS = [200, 500, 1000, 1500, 2000, 3000, 5000, 10_000, 15_000, 20_000, 30_000];
export const RUNS = [10, 20, 50, 100, 200, 300, 500, 750, 1000, 1500, 2000, 3000, 5000, 10_000];
export const BOUNDS = {
  requests: { least: 5, most: 400 },
  capacity: { least: 1, most: 60 },
  seed: { least: 1, most: 9999 },
};

/** @returns {Settings} */
export function defaults() {
  return {
    pattern: "edge",
    drawn: new Array(SLOTS).fill(0),
    requests: 60,
    seed: 1,
    duration: 3000,
    capacity: 10,
    window: 1000,
    burst: null,
    refill: null,
    shape: true,
    run: 500,
  };
}

/**
 * Reads a setting from a link. What is missing or unusable has its default.
 * @param {URLSearchParams} params
 * @returns {Settings}
 */
export function readSettings(params) {
  const settings = defaults();
  const { requests, capacity, seed } = BOUNDS;
  const pattern = PATTERNS.find(([name]) => name === params.get("pattern"));
  if (pattern) settings.pattern = pattern[0];
  settings.requests = whole(params, "requests", requests) ?? settings.requests;
  settings.seed = whole(params, "seed", seed) ?? settings.seed;
  settings.capacity = whole(params, "capacity", capacity) ?? settings.capacity;
  settings.burst = whole(params, "burst", capacity);
  settings.refill = whole(params, "refill", capacity);
  settings.duration = step(params, "duration", DURATIONS) ?? settings.duration;
  settings.window = step(params, "window", WINDOWS) ?? settings.window;
  settings.run = step(params, "run", RUNS) ?? settings.run;
  settings.shape = params.get("shape") !== "no";
  const slots = params.get("slots") ?? "";
  settings.drawn = settings.drawn.map((none, index) => {
    const height = Number.parseInt(slots[index] ?? "", 36);
    return height <= MOST_PER_SLOT ? height : none;
  });
  return settings;
}

/**
 * Returns the setting as parameters of a link. Defaults are left out.
 * @param {Settings} settings
 */
export function writeSettings(settings) {
  const params = new URLSearchParams();
  const usual = defaults();
  /** @type {(keyof Settings)[]} */
  const plain = ["pattern", "requests", "duration", "capacity", "window", "burst", "refill", "run"];
  for (const name of plain) {
    if (settings[name] !== usual[name]) params.set(name, String(settings[name]));
  }
  if (settings.pattern === "random") params.set("seed", String(settings.seed));
  if (!settings.shape) params.set("shape", "no");
  if (settings.pattern === "drawn") {
    params.set("slots", settings.drawn.map((height) => height.toString(36)).join(""));
  }
  return params;
}

/**
 * @param {URLSearchParams} params
 * @param {string} name
 * @param {{least: number, most: number}} bounds
 */
function whole(params, name, { least, most }) {
  const text = params.get(name);
  if (text === null || !/^\d{1,6}$/.test(text)) return null;
  return Math.min(most, Math.max(least, Number(text)));
}

/**
 * Returns the step that is nearest to the parameter.
 * @param {URLSearchParams} params
 * @param {string} name
 * @param {number[]} steps
 */
function step(params, name, steps) {
  const given = whole(params, name, { least: 0, most: 999_999 });
  if (given === null) return null;
  return steps.reduce((best, next) => Math.abs(next - given) < Math.abs(best - given) ? next : best);
}
