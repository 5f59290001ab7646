// Does jobs as fast as FluxGate allows.
//
// node jobs.mjs [URL [USER [JOBS]]]

import { setTimeout as sleep } from "node:timers/promises";

import { Client } from "fluxgate";

const [url = "http://127.0.0.1:8081", user = "ann", jobs = "5"] = process.argv.slice(2);
// Fails open: the work matters more than the limit.
const client = new Client(url, { onError: "allow", deadline: 1000, onWarning: () => {} });

for (let job = 1; job <= Number(jobs); job++) {
  for (;;) {
    // Sleeps if a rule shapes or queues the jobs.
    const decision = await client.wait("jobs", { user });
    if (decision.allowed) {
      // Keeps the slots of the job, if it has any, until it is done.
      const hold = client.keep(decision);
      const left = decision.error
        ? `FluxGate unavailable: ${decision.error.message}`
        : `${decision.remaining} left`;
      console.log(`job ${job}: done, ${left}`);
      await hold.leave();
      break;
    }
    if (decision.retryAfterMs === null) throw new Error(`job ${job}: denied permanently`);
    console.log(`job ${job}: denied, retrying in ${decision.retryAfterMs} ms`);
    await sleep(decision.retryAfterMs);
  }
}
await client.close();
