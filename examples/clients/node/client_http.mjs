// Does jobs as fast as FluxGate allows, over HTTP. Needs only Node 18.
//
// node client_http.mjs [URL [USER [JOBS]]]

import { setTimeout as sleep } from "node:timers/promises";

const [url = "http://127.0.0.1:8081", user = "ann", jobs = "5"] = process.argv.slice(2);

/** The longest timer of Node; a longer one fires at once. */
const MAX_DELAY = 2 ** 31 - 1;

/** Returns the decision for one job, which is charged if it is allowed. */
async function check() {
  const response = await fetch(`${url}/v1/check`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ rule_set: "jobs", user }),
    signal: AbortSignal.timeout(1000),
  });
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  return response.json();
}

for (let job = 1; job <= Number(jobs); job++) {
  for (;;) {
    let decision;
    try {
      decision = await check();
    } catch (error) {
      // Fails open: the work matters more than the limit.
      console.log(`job ${job}: done, FluxGate unavailable: ${error.cause ?? error}`);
      break;
    }
    if (decision.allowed) {
      await sleep(Math.min(decision.delay_ms, MAX_DELAY));
      console.log(`job ${job}: done, ${decision.remaining} left`);
      break;
    }
    if (decision.retry_after_ms === null) throw new Error(`job ${job}: denied permanently`);
    console.log(`job ${job}: denied, retrying in ${decision.retry_after_ms} ms`);
    await sleep(Math.min(decision.retry_after_ms, MAX_DELAY));
  }
}
