// Bounds on time that hold on a busy machine.
//
// A bound is on what the client does, not on how long it waits for a processor. A timer measures
// for how long this process did not run when it could have; that time does not count.

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

/** Returns for how many milliseconds each thread of a process has waited for a processor. */
function waits(pid) {
  const waits = new Map();
  try {
    for (const thread of readdirSync(`/proc/${pid}/task`)) {
      const [, wait] = readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8").split(" ");
      waits.set(thread, Number(wait) / 1e6);
    }
  } catch {
    // The process, or one of its threads, has ended.
  }
  return waits;
}

/** What the machine delays from now on: this process, and a service. */
export class Delay {
  #begin = performance.now();
  #pid;
  #waits;

  constructor(service) {
    this.#pid = service.pid;
    this.#waits = waits(this.#pid);
  }

  /** Returns for how many milliseconds this process stood still, or a thread of the service. */
  total() {
    const since = ([thread, wait]) => wait - (this.#waits.get(thread) ?? 0);
    return Math.max(stalled(this.#begin), ...Array.from(waits(this.#pid), since));
  }
}

/**
 * Skips a test in which something must happen every `most` milliseconds, if it fails after the
 * machine kept this process from doing anything for longer than that, at a stretch.
 */
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
