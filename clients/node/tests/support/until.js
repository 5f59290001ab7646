// Waiting for conditions.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

/** Waits until a condition holds; for 20 s at most, which is longer than any machine needs. */
export async function until(what, holds, seconds = 20) {
  const end = performance.now() + seconds * 1_000;
  while (!(await holds())) {
    if (performance.now() > end) assert.fail(`never: ${what}`);
    await sleep(10);
  }
}
