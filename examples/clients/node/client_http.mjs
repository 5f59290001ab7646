// Does jobs as fast as FluxGate allows, over HTTP. Needs only Node 18.
//
// node client_http.mjs [URL [USER [JOBS]]]

import { setTimeout as sleep } from "node:timers/promises";

const [url = "http://127.0.0.1:8081", user = "ann", jobs = "5"] = process.argv.slice(2);

/** The longest timer of Node; a longer one fires at once. */
const MAX_DELAY = 2 ** 31 - 1;

/** Posts JSON and returns the JSON of the response. */
async function post(path, body) {
  const response = await fetch(url + path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(1000),
  });
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  return response.json();
}

/** Settles the hold of a job, if it has one: its slots are free, and its charge stays. */
async function settle({ hold }) {
  // A job that takes longer than `hold_ms` must renew its hold: POST /v1/renew.
  if (hold === undefined) return;
  try {
    await post("/v1/settle", { hold });
  } catch (error) {
    console.log(`the slots expire by themselves: ${error.cause ?? error}`);
  }
}

for (let job = 1; job <= Number(jobs); job++) {
  for (;;) {
    let decision;
    try {
      decision = await post("/v1/check", { rule_set: "jobs", user });
    } catch (error) {
      // Fails open: the work matters more than the limit.
      console.log(`job ${job}: done, FluxGate unavailable: ${error.cause ?? error}`);
      break;
    }
    if (decision.allowed) {
      await sleep(Math.min(decision.delay_ms, MAX_DELAY));
      console.log(`job ${job}: done, ${decision.remaining} left`);
      await settle(decision);
      break;
    }
    if (decision.retry_after_ms === null) throw new Error(`job ${job}: denied permanently`);
    console.log(`job ${job}: denied, retrying in ${decision.retry_after_ms} ms`);
    await sleep(Math.min(decision.retry_after_ms, MAX_DELAY));
  }
}
