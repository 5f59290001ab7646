// The time that a request spends in the middleware, as a multiple of one plain HTTP request: the same
// call of the service by Node's own client, with the same body, awaited in the same place. `added`
// is what a client of the application sees of it, which includes the limit headers of the response.
//
// One request at a time, over connections that are reused, in rounds that take turns.

import { subscribe } from "node:diagnostics_channel";
import http from "node:http";

import { Client } from "fluxgate";

import { HOST } from "./support/host.js";
import { AWAITING_SERVERS, SERVERS } from "./support/servers.js";
import { Service } from "./support/service.js";

const ROUNDS = 150;
const REQUESTS = 20;
const CONFIG = `
listen: { api: "\${API}" }
rule_sets:
  api: { rules: [ { id: rate, scope: per_user, bands: [ { capacity: 1000000000, window: 1s } ] } ] }
`;

const agent = new http.Agent({ keepAlive: true });

/** Sends a request by Node's own client and reads the answer. */
function send(host, port, path, body) {
  return new Promise((resolve, reject) => {
    const method = body === undefined ? "GET" : "POST";
    const headers = { "X-User-Id": "ann", "Content-Type": "application/json" };
    const options = { host, port, path, method, agent, headers };
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

/** When the last request arrived, and how long it took until its handler ran. */
let arrived = 0;
let untilHandler = 0;
subscribe("http.server.request.start", () => {
  arrived = performance.now();
});
const onRun = () => {
  untilHandler = performance.now() - arrived;
};

/** Runs the measurements in turns, and returns the times of each, outside and inside the server. */
async function measure(measured) {
  const times = measured.map(() => ({ outside: [], inside: [] }));
  for (let round = -30; round < ROUNDS; round += 1) {
    for (const [at, run] of measured.entries()) {
      for (let request = 0; request < REQUESTS; request += 1) {
        const began = performance.now();
        await run();
        const took = performance.now() - began;
        // The first rounds warm up.
        if (round < 0) continue;
        times[at].outside.push(took);
        times[at].inside.push(untilHandler);
      }
    }
  }
  return times;
}

const service = await Service.start(CONFIG);
const client = new Client(service.url, { deadline: 10_000, onError: "raise" });
const micros = (milliseconds) => `${Math.round(milliseconds * 1_000)} µs`;
let isGood = true;

/** Returns the path and the body of the call that the middleware makes for a request. */
async function recordCall(name) {
  let call;
  const recorder = http.createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    call = { path: request.url, body };
    response.destroy();
  });
  await new Promise((resolve) => recorder.listen(0, HOST, resolve));
  const url = `http://${HOST}:${recorder.address().port}`;
  const client = new Client(url, { deadline: 10_000, onWarning: () => {} });
  const server = await SERVERS[name]({ client, ruleSet: "api" }, () => {});
  await send(HOST, server.port, "/x");
  await Promise.all([server.stop(), client.close()]);
  recorder.close();
  return call;
}

for (const name of ["express", "fastify", "koa", "nest"]) {
  const limited = await SERVERS[name]({ client, ruleSet: "api" }, onRun);
  const free = await SERVERS[name]({ client, ruleSet: "api", exclude: ["/**"] }, onRun);
  const { path, body } = await recordCall(name);
  const call = async () => JSON.parse(await send(HOST, service.port, path, body));
  const awaiting = await AWAITING_SERVERS[name](call, onRun);
  const [awaited, direct, without, within] = await measure([
    () => send(HOST, awaiting.port, "/x"),
    () => client.check("api", { user: "ann", method: "GET", path: "/x" }),
    () => send(HOST, free.port, "/x"),
    () => send(HOST, limited.port, "/x"),
  ]);
  for (const share of [0.5, 0.99]) {
    const of = (times) => percentile(times, share);
    const plain = of(awaited.inside) - of(without.inside);
    const inside = of(within.inside) - of(without.inside);
    const added = of(within.outside) - of(without.outside);
    const ratio = inside / plain;
    console.log(
      `${name} p${share * 100}: plain ${micros(plain)}, ` +
        `check ${micros(of(direct.outside))}, middleware ${micros(inside)}, ` +
        `added ${micros(added)}, ratio ${ratio.toFixed(2)}`,
    );
    if (share === 0.5 && ratio > 1.5) isGood = false;
  }
  await Promise.all([limited.stop(), free.stop(), awaiting.stop()]);
}
await client.close();
agent.destroy();
await service.stop();
if (!isGood) {
  console.error("a request spends more than 1.5 plain requests in the middleware");
  process.exitCode = 1;
}
