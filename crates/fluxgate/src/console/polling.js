// Calls that are made again and again: while the page is visible, a few a second in all.

import { get, Problem } from "./api.js";

const TICK_MS = 1000;
/** With the stream of live events, this is less than three requests a second. */
const AT_ONCE = 2;
/** After a failure, what is read rarely is tried again sooner. */
const RETRY_MS = 3000;
/** An answer is kept for this long after the last view that shows it. */
const KEEP_MS = 60_000;

/**
 * @typedef {{
 *   every: number, next: number, hasFailed: boolean, isAskedAgain: boolean,
 *   current: AbortController | null,
 *   run: (signal: AbortSignal) => Promise<void | true>,
 * }} Job
 * @typedef {{
 *   every: number, onValue: (value: any) => void, onProblem: (problem: unknown) => void,
 * }} Watcher
 * @typedef {{
 *   job: Job, watchers: Set<Watcher>, value: any, problem: unknown, forget: number,
 * }} Shared
 */

/** @type {Set<Job>} */
const jobs = new Set();
/** By path. @type {Map<string, Shared>} */
const answers = new Map();
let timer = 0;
/** Whether the page is left, and may be shown again from the cache of the browser. */
let isLeft = false;

/**
 * Calls `run` now and again `every` milliseconds after it has ended, until `signal` aborts. It pauses
 * while the page is hidden. A call that fails is repeated. `run` gets a signal for its requests.
 * @param {AbortSignal} signal @param {number} every
 * @param {Job["run"]} run returns `true` to pause until it is run again
 */
export function repeat(signal, every, run) {
  const job = newJob(every, run);
  signal.addEventListener("abort", () => remove(job));
  if (!signal.aborted) add(job);
  return { run: () => start(job) };
}

/**
 * Shows what `GET path` answers: now, and again every `every` milliseconds until `signal` aborts.
 * Views that watch the same path share its calls. After a problem it goes on by itself.
 * @param {AbortSignal} signal @param {string} path @param {number} every
 * @param {(value: any) => void} onValue
 * @param {(problem: unknown) => void} [onProblem] `null`: it is over
 */
export function watch(signal, path, every, onValue, onProblem = () => {}) {
  const shared = answers.get(path) ?? newAnswer(path, every);
  answers.set(path, shared);
  clearTimeout(shared.forget);
  const { job, watchers } = shared;
  const watcher = { every, onValue, onProblem };
  const setPace = () => (job.every = Math.min(...[...watchers].map((each) => each.every)));
  watchers.add(watcher);
  setPace();
  signal.addEventListener("abort", () => {
    watchers.delete(watcher);
    setPace();
    if (watchers.size > 0) return;
    remove(job);
    shared.forget = setTimeout(() => answers.get(path) === shared && answers.delete(path), KEEP_MS);
  });
  // The view is not in the page yet.
  queueMicrotask(() => {
    if (signal.aborted) return;
    if (shared.value !== undefined) onValue(shared.value);
    if (shared.problem) onProblem(shared.problem);
  });
  if (!signal.aborted) add(job);
  return { run: () => start(job) };
}

/** Asks again for what is watched below a path, because it has changed. @param {string} prefix */
export function refresh(prefix) {
  for (const [path, { job, watchers }] of answers) {
    if (!path.startsWith(prefix)) continue;
    if (watchers.size > 0) start(job);
    else answers.delete(path);
  }
}

/** Repeats what has failed, because the service answers again. */
export function retryFailed() {
  for (const job of jobs) if (job.hasFailed) job.next = 0;
  tick();
}

/** Forgets all answers: somebody else may log in. */
export function forgetAnswers() {
  for (const { job } of answers.values()) remove(job);
  answers.clear();
}

/** @param {string} path @param {number} every @returns {Shared} */
function newAnswer(path, every) {
  const shared = /** @type {Shared} */ ({ watchers: new Set(), value: undefined, problem: null, forget: 0 });
  shared.job = newJob(every, async (signal) => {
    try {
      shared.value = await get(path, signal);
      const wasProblem = shared.problem;
      shared.problem = null;
      for (const { onValue, onProblem } of [...shared.watchers]) {
        if (wasProblem) onProblem(null);
        onValue(shared.value);
      }
    } catch (error) {
      if (signal.aborted) return;
      shared.problem = error;
      for (const { onProblem } of [...shared.watchers]) onProblem(error);
      throw error;
    }
  });
  return shared;
}

/** @param {number} every @param {Job["run"]} run @returns {Job} */
const newJob = (every, run) =>
  ({ every, run, next: 0, hasFailed: false, isAskedAgain: false, current: null });

/** @param {Job} job */
function add(job) {
  if (jobs.has(job)) return;
  jobs.add(job);
  if (!timer) timer = setInterval(tick, TICK_MS);
  if (performance.now() >= job.next) start(job);
}

/** @param {Job} job */
function remove(job) {
  jobs.delete(job);
  job.current?.abort();
  if (jobs.size > 0) return;
  clearInterval(timer);
  timer = 0;
}

/** @param {Job} job */
async function start(job) {
  // If it cannot run now, it does when the page is visible again.
  job.next = 0;
  job.isAskedAgain = job.current !== null;
  if (document.hidden || isLeft || job.current || !jobs.has(job)) return;
  const current = (job.current = new AbortController());
  let isDone = false;
  try {
    isDone = (await job.run(current.signal)) === true;
    job.hasFailed = false;
  } catch (error) {
    if (!current.signal.aborted && !(error instanceof Problem)) console.error(error);
    job.hasFailed = true;
  }
  job.current = null;
  if (current.signal.aborted) return;
  if (job.isAskedAgain) return start(job);
  job.next = isDone ? Infinity
    : performance.now() + (job.hasFailed ? Math.min(RETRY_MS, job.every) : job.every);
}

function tick() {
  const isDue = (/** @type {Job} */ job) => !job.current && performance.now() >= job.next;
  const due = [...jobs].filter(isDue).sort((a, b) => a.next - b.next);
  for (const job of due.slice(0, AT_ONCE)) start(job);
}

document.addEventListener("visibilitychange", () => document.hidden || tick());
// A page in the cache of the browser must not hold a connection.
addEventListener("pagehide", () => {
  isLeft = true;
  for (const job of jobs) job.current?.abort();
});
addEventListener("pageshow", () => {
  isLeft = false;
  tick();
});
