// The time of the service. The clock of a browser may be wrong, so views use this one.

/** Smaller differences are delays of the network. */
const JITTER_MS = 1500;

let offset = 0;
let isPrecise = false;

/** Returns the time of the service, in milliseconds since 1970. */
export const now = () => Date.now() + offset;

/** Returns how far the clock of the browser is ahead of the service, in milliseconds. */
export const browserAhead = () => -offset;

/** Takes the time over from a live event. @param {number} milliseconds */
export function setTime(milliseconds) {
  const next = milliseconds - Date.now();
  isPrecise = true;
  if (Math.abs(next - offset) > JITTER_MS) offset = Math.abs(next) > JITTER_MS ? next : 0;
}

/** Takes the time over from the header of an answer, which has whole seconds. @param {string | null} date */
export function setDate(date) {
  const at = Date.parse(date ?? "");
  if (isPrecise || Number.isNaN(at)) return;
  const next = at + 500 - Date.now();
  offset = Math.abs(next) > 2 * JITTER_MS ? next : 0;
}
