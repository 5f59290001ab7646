// Bounds on time that hold on a busy machine.
//
// A bound is on what the client does, not on how long it waits for a processor. A timer measures
// for how long this process did not run when it could have; that time does not count. A test that
// fails after longer pauses than it can bear is skipped, with the reason.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";

const TICK = 5;
/** When this process should have run and did not, from and to; the latest are last. */
const pauses = [];
let due = performance.now() + TICK;

function tick() {
  const now = performance.now();
  // A timer always fires a little later.
  if (now > due + TICK) pauses.push([due, now]);
  due = now + TICK;
  setTimeout(tick, TICK).unref();
}
tick();

function* pausesBetween(begin, end) {
  const present = [due, performance.now()];
  for (let at = pauses.length; at >= 0; at -= 1) {
    const [since, until] = pauses[at] ?? present;
    if (until > begin) yield Math.max(0, Math.min(end, until) - Math.max(begin, since));
    else if (at < pauses.length) return;
  }
}

/** Returns for how many milliseconds this process stood still within a time. */
export function stalled(begin, end = performance.now()) {
  let sum = 0;
  for (const pause of pausesBetween(begin, end)) sum += pause;
  return sum;
}

/** Returns for how many milliseconds this process ran within a time. */
export function elapsed(begin, end = performance.now()) {
  return end - begin - stalled(begin, end);
}

/** Returns for how many milliseconds the threads of a process have waited for a processor at most. */
export function waited(pid) {
  try {
    const waits = readdirSync(`/proc/${pid}/task`).map((thread) => {
      const [, wait] = readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8").split(" ");
      return Number(wait) / 1e6;
    });
    return Math.max(0, ...waits);
  } catch {
    // The process, or one of its threads, has ended.
    return 0;
  }
}

/** Skips a test that fails after this process stood still for more than `most` milliseconds. */
export function bearing(most, run) {
  return async (context) => {
    const begin = performance.now();
    try {
      await run(context);
    } catch (error) {
      const worst = Math.max(0, ...pausesBetween(begin, performance.now()));
      if (!(error instanceof assert.AssertionError) || worst <= most) throw error;
      context.skip(`the machine paused this test for ${Math.round(worst)} ms: ${error.message}`);
    }
  };
}
