// Server-sent events for all tabs of a browser over one connection: browsers open six connections to
// a host over HTTP/1.1. One of the visible tabs reads the stream and passes the events on.

import { listen, Problem } from "./api.js";

/** What a tab passes on. @typedef {{event?: any, id?: string, problem?: string}} Message */

/**
 * Reads a stream until `signal` aborts, while the page is visible.
 * @param {string} path @param {AbortSignal} signal
 * @param {number} stalled after this time without a byte, in milliseconds, the connection is lost
 * @param {(event: any) => void} onEvent @param {(problem: Problem) => void} onProblem
 * @param {string} [last] the id of the last event that is known
 */
export function sharedStream(path, signal, stalled, onEvent, onProblem, last = "") {
  const name = `fluxgate ${path}`;
  const channel = new BroadcastChannel(name);
  let attempt = /** @type {AbortController | null} */ (null);
  let isReader = false;
  let heard = 0;

  /** @param {Message} message */
  function receive({ event, id, problem }) {
    heard = performance.now();
    if (id) last = id;
    if (event !== undefined) onEvent(event);
    if (problem) onProblem(new Problem(0, problem));
  }

  /** @param {Message} message */
  function publish(message) {
    channel.postMessage(message);
    receive(message);
  }

  channel.onmessage = ({ data }) => {
    if (attempt && !isReader) receive(data);
  };

  async function start({ steal = false } = {}) {
    if (attempt || document.hidden || signal.aborted) return;
    const { signal: current } = (attempt = new AbortController());
    heard = performance.now();
    const read = async () => {
      if (current.aborted) return;
      isReader = true;
      await listen(path, current, (event, id) => publish({ event, id }),
        (problem) => publish({ problem: problem.message }), { last: () => last, onChunk: () => publish({}) });
    };
    try {
      // Without TLS, only a page of this machine may hold locks: then every visible tab reads.
      if (!navigator.locks) await read();
      else await navigator.locks.request(name, steal ? { steal } : { signal: current }, read);
    } catch (error) {
      if (current.aborted) return;
      if (/** @type {Error} */ (error).name !== "AbortError") throw error;
      // Another tab reads from now on, because this one was too slow.
      stop();
      start();
    }
  }

  function stop() {
    attempt?.abort();
    attempt = null;
    isReader = false;
  }

  // A connection can be lost without an error, as when the computer slept.
  const watch = setInterval(() => {
    if (!attempt || performance.now() - heard < stalled) return;
    onProblem(new Problem(0, "The service does not answer."));
    const wasReader = isReader;
    stop();
    start({ steal: !wasReader });
  }, 1000);
  const follow = () => (document.hidden ? stop() : start());
  document.addEventListener("visibilitychange", follow, { signal });
  // A page in the cache of the browser must not hold a connection.
  addEventListener("pagehide", stop, { signal });
  addEventListener("pageshow", follow, { signal });
  signal.addEventListener("abort", () => {
    clearInterval(watch);
    stop();
    channel.close();
  });
  start();
}
