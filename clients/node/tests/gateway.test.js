// The middleware refuses requests as the gateway does.

import assert from "node:assert/strict";
import http from "node:http";
import { after, before, describe, test } from "node:test";

import { Client } from "fluxgate";

import { HOST } from "./support/host.js";
import { start } from "./support/raw_http.js";
import { SERVERS } from "./support/servers.js";
import { Service } from "./support/service.js";

const config = (upstream) => `
listen: { api: "\${API}", gateway: "\${GATEWAY}" }
filters: { main: { rule_set: api } }
gateway:
  routes: [ { id: all, match: { path: ["/**"] }, upstreams: ["${upstream}"], filters: [main] } ]
rule_sets:
  api:
    lists: { blocked: [mallory] }
    rules:
      - { id: legal, action: deny, status: 451, match: { path: ["/legal"] } }
      - { id: tea, action: deny, status: 418, match: { path: ["/tea"] } }
      - { id: blocked, action: deny, match: { user: { in: blocked } } }
      - { id: keyed, match: { path: ["/keyed"] }, scope: per_api_key, on_missing_key: deny, bands: [1/h] }
      - { id: costly, match: { path: ["/costly"] }, scope: per_user, cost: "header:X-Cost", bands: [2/h] }
      - id: per-user
        scope: per_user
        bands: [ { id: burst, capacity: 1, window: 1h }, { id: sustained, capacity: 5, window: 1d } ]
`;

const REQUESTS = [
  { path: "/x", headers: [["X-User-Id", "ann"]] },
  { path: "/x", headers: [["X-User-Id", "ann"]] },
  { path: "/%78;v=1", headers: [["X-User-Id", "ann"]] },
  { path: "/keyed", headers: [["X-User-Id", "bob"]] },
  { path: "/costly", headers: [["X-User-Id", "bob"], ["X-Cost", "3"]] },
  { path: "/legal" },
  { path: "/tea" },
  { path: "/x", headers: [["X-User-Id", "mallory"]] },
  { path: "/x", headers: [["X-User-Id", "a"], ["X-User-Id", "b"]] },
  { path: "/x", headers: [["X-User-Id", "\u00a0a"]] },
  { path: "/x", headers: [["X-User-Id", "=?utf-8?q?ann?="]] },
  { path: "/a/../b" },
  { path: "/a%0a" },
  { path: "/a;x%2fb" },
];

const HEADERS = `content-type retry-after ratelimit ratelimit-policy x-ratelimit-limit
  x-ratelimit-remaining`.split(/\s+/);

/** Returns what must be equal. Times may differ by the time between two requests. */
function comparable({ status, headers, text }) {
  const found = Object.fromEntries(HEADERS.map((name) => [name, headers[name]]));
  if (found["retry-after"] !== undefined) found["retry-after"] = Math.round(found["retry-after"] / 60);
  if (found.ratelimit !== undefined) found.ratelimit = found.ratelimit.replace(/t=\d+/, "t=N");
  if (status === 200) return { status, ...found, "content-type": undefined };
  const body = JSON.parse(text);
  if (body.retry_after_ms > 0) body.retry_after_ms = Math.round(body.retry_after_ms / 60_000);
  // In the same order, too.
  return { status, ...found, body: JSON.stringify(body) };
}

describe("refusals are those of the gateway", () => {
  let upstream;
  before(async () => {
    upstream = http.createServer((_, response) => response.end("ok"));
    await new Promise((resolve) => upstream.listen(0, HOST, resolve));
  });
  after(() => upstream.close());

  for (const [name, startServer] of Object.entries(SERVERS)) {
    test(name, async () => {
      const text = config(`http://${HOST}:${upstream.address().port}`);
      const services = await Promise.all([Service.start(text), Service.start(text)]);
      const client = new Client(services[0].url, { deadline: 10_000, onError: "raise" });
      const server = await startServer({ client, ruleSet: "api" }, () => {});
      try {
        const statuses = new Set();
        for (const request of REQUESTS) {
          const ours = comparable(await start(server.port, request).finish());
          const theirs = comparable(await start(services[1].gatewayPort, request).finish());
          assert.deepEqual(ours, theirs, JSON.stringify(request));
          statuses.add(ours.status);
        }
        assert.deepEqual([...statuses].sort(), [200, 400, 403, 418, 429, 451]);
      } finally {
        await server.stop();
        await client.close();
        await Promise.all(services.map((service) => service.stop()));
      }
    });
  }
});
