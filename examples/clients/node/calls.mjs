// The calls of the client, one after another.
//
// node calls.mjs [URL]

import { Client, Denied } from "fluxgate";

const [url = "http://127.0.0.1:8081"] = process.argv.slice(2);
const client = new Client(url, { onError: "allow", deadline: 100 });

// Decide and charge. Times are in milliseconds and in seconds; a `retryAfter` of null means never.
const decision = await client.check("pages", { user: "ann", path: "/reports", method: "GET" });
if (!decision.allowed) console.log(decision.outcome, decision.retryAfter, decision.violated);

// Decide without charging, and decide several requests in one call.
const { remaining } = await client.peek("pages", { user: "ann" });
const users = ["bob", "carol"].map((user) => ({ ruleSet: "pages", user }));
const decisions = await client.batch(users);
console.log(remaining, decisions.length);

// A limit that comes with the call.
await client.consume({ ruleId: "mail", identity: "ann", capacity: 5, refillTokensPerSecond: 0.5 });

// Sleep for the delay of a rule with `on_exceed: wait`, for two seconds at most.
await client.wait("jobs", { user: "bob" }, { maxWait: 2_000 });

// Hold a slot, or units whose real number is known later. Throws Denied.
try {
  await client.withHold("jobs", { user: "ann", cost: 3 }, async (hold) => {
    const used = 2; // … the work; the hold is renewed while it runs
    await hold.settle(used); // without it, the hold is released at the end
  });
} catch (error) {
  if (!(error instanceof Denied)) throw error;
  console.log("try again in", error.decision.retryAfter);
}

await client.close();
