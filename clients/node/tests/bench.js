// The time that the middleware adds to a request, as a multiple of one plain HTTP request.
//
// One request at a time, over connections that are reused, in rounds that take turns.

import http from "node:http";

import { Client } from "fluxgate";

import { SERVERS } from "./support/servers.js";
import { Service } from "./support/service.js";

const ROUNDS = 30;
const REQUESTS = 200;
const CONFIG = `
listen: { api: "\${API}" }
rule_sets:
  api: { rules: [ { id: rate, scope: per_user, bands: [ { capacity: 1000000000, window: 1s } ] } ] }
`;

const agent = new http.Agent({ keepAlive: true });

/** Sends a request by Node's own client and reads the answer. */
function send(port, path, body) {
  return new Promise((resolve, reject) => {
    const method = body === undefined ? "GET" : "POST";
    const headers = { "X-User-Id": "ann", "Content-Type": "application/json" };
    const options = { host: "127.0.0.1", port, path, method, agent, headers };
    const request = http.request(options, (response) => {
      let text = "";
      response.on("data", (chunk) => (text += chunk));
      response.on("end", () => {
        if (response.statusCode === 200) resolve(text);
        else reject(new Error(`${response.statusCode}: ${text}`));
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}

function percentile(times, share) {
  return times.toSorted((one, other) => one - other)[Math.floor(times.length * share)];
}

/** Runs the measurements in turns, and returns the times of each. */
async function measure(measured) {
  const times = measured.map(() => []);
  for (let round = -3; round < ROUNDS; round += 1) {
    for (const [at, run] of measured.entries()) {
      for (let request = 0; request < REQUESTS; request += 1) {
        const began = performance.now();
        await run();
        const took = performance.now() - began;
        // The first rounds warm up.
        if (round >= 0) times[at].push(took);
      }
    }
  }
  return times;
}

const service = await Service.start(CONFIG);
const client = new Client(service.url, { deadline: 1_000, onError: "raise" });
const check = JSON.stringify({ rule_set: "api", user: "ann", method: "GET", path: "/x" });
const micros = (milliseconds) => `${Math.round(milliseconds * 1_000)} µs`;
let isGood = true;

for (const name of ["express", "fastify", "koa", "nest"]) {
  const limited = await SERVERS[name]({ client, ruleSet: "api" }, () => {});
  const free = await SERVERS[name]({ client, ruleSet: "api", exclude: ["/**"] }, () => {});
  const [plain, direct, without, within] = await measure([
    async () => JSON.parse(await send(service.port, "/v1/check", check)),
    () => client.check("api", { user: "ann", method: "GET", path: "/x" }),
    () => send(free.port, "/x"),
    () => send(limited.port, "/x"),
  ]);
  for (const share of [0.5, 0.99]) {
    const added = percentile(within, share) - percentile(without, share);
    const ratio = added / percentile(plain, share);
    console.log(
      `${name} p${share * 100}: plain ${micros(percentile(plain, share))}, ` +
        `check ${micros(percentile(direct, share))}, added ${micros(added)}, ` +
        `ratio ${ratio.toFixed(2)}`,
    );
    if (share === 0.5 && ratio > 1.5) isGood = false;
  }
  await Promise.all([limited.stop(), free.stop()]);
}
await client.close();
agent.destroy();
await service.stop();
if (!isGood) {
  console.error("the middleware adds more than 1.5 plain requests");
  process.exitCode = 1;
}
