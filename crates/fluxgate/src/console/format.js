// Numbers, shares, durations and times as text.

const THIN = "\u202f";

const exact = new Intl.NumberFormat("en-US");
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const dayAndClock = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/**
 * Returns a number with separators and at most `digits` decimals: `12,345.6`.
 * @param {number} value
 * @param {number} [digits]
 */
export function number(value, digits = 0) {
  if (digits === 0) return exact.format(Math.round(value));
  return value.toLocaleString("en-US", { maximumFractionDigits: digits });
}

/**
 * Returns a number in few characters: `987`, `1.2k`, `34k`, `5.6M`.
 * @param {number} value
 */
export function compact(value) {
  const size = Math.abs(value);
  if (size < 999.5) return value.toFixed(size < 10 && !Number.isInteger(value) ? 1 : 0);
  const [divisor, unit] =
    size < 999_500 ? [1e3, "k"] : size < 999_500_000 ? [1e6, "M"] : [1e9, "G"];
  const scaled = value / divisor;
  return Number(scaled.toFixed(Math.abs(scaled) < 9.95 ? 1 : 0)) + unit;
}

/**
 * Returns a share of 0 to 1 in percent. What is not quite 0 or 1 is not shown as 0 or 100%.
 * @param {number} value
 */
export function share(value) {
  const percent = value * 100;
  if (percent > 0 && percent < 0.1) return "<0.1%";
  if (percent < 100 && percent > 99.9) return ">99.9%";
  const isPrecise = percent < 10 || (percent > 99 && percent < 100);
  return `${isPrecise ? Number(percent.toFixed(1)) : Math.round(percent)}%`;
}

/**
 * Returns a duration in the unit that suits its size: `1.2 µs`, `340 ms`, `12 s`.
 * @param {number} value
 */
export function micros(value) {
  const [scaled, unit] =
    value < 1e3 ? [value, "µs"] : value < 1e6 ? [value / 1e3, "ms"] : [value / 1e6, "s"];
  return `${scaled < 10 ? scaled.toFixed(1) : scaled.toFixed(0)}${THIN}${unit}`;
}

/**
 * Returns a duration in its two largest units: `45 s`, `2 min 5 s`, `3 h 20 min`, `4 d 2 h`.
 * @param {number} milliseconds
 */
export function duration(milliseconds) {
  if (milliseconds > 0 && milliseconds < 1000) return `${Math.round(milliseconds)}${THIN}ms`;
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const parts = /** @type {[number, string][]} */ ([
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ]);
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return `0${THIN}s`;
  const shown = parts.slice(first, first + 2).filter(([count]) => count > 0);
  return shown.map(([count, unit]) => `${count}${THIN}${unit}`).join(" ");
}

/**
 * Returns the time of day, `14:03:59`, and the date as well if it is another day.
 * @param {number} milliseconds since the Unix epoch
 */
export function time(milliseconds) {
  const date = new Date(milliseconds);
  const today = date.toDateString() === new Date().toDateString();
  return (today ? clock : dayAndClock).format(date);
}

/**
 * Returns how long ago something was: `just now`, `5 s ago`.
 * @param {number} milliseconds since the Unix epoch
 */
export function ago(milliseconds) {
  const passed = Date.now() - milliseconds;
  return passed < 2000 ? "just now" : `${duration(passed)} ago`;
}

/**
 * Returns a count with its noun: `1 rule`, `2 rules`.
 * @param {number} value
 * @param {string} singular
 * @param {string} [plural]
 */
export function count(value, singular, plural = `${singular}s`) {
  return `${number(value)} ${value === 1 ? singular : plural}`;
}
