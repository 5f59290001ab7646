// Timers.

/** The longest timer of Node; a longer one fires at once. */
const MAX_TIMER = 2 ** 31 - 1;

/**
 * Resolves after this many milliseconds, never earlier. If the signal is aborted first, rejects
 * with its reason.
 */
export async function sleep(milliseconds, signal) {
  const end = performance.now() + milliseconds;
  signal?.throwIfAborted();
  // A timer may fire slightly early.
  for (let left = milliseconds; left > 0; left = end - performance.now()) {
    await timer(Math.min(Math.ceil(left), MAX_TIMER), signal);
  }
}

function timer(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(id);
      reject(signal.reason);
    };
    const id = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", abort, { once: true });
  });
}
