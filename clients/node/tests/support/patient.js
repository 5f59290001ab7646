// Tests that measure time.

const TRIES = 3;

/** Runs a test again if it fails: a machine that stalls breaks bounds on time, but not each time. */
export function patiently(run) {
  return async (...args) => {
    for (let tries = 1; ; tries += 1) {
      try {
        return await run(...args);
      } catch (error) {
        if (tries === TRIES) throw error;
      }
    }
  };
}
