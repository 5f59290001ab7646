// Rules in words.

import assert from "node:assert/strict";
import test from "node:test";
import { algorithmWords, changeWords, details, duration, sentence } from "../../src/console/rules/words.js";

const bucket = (capacity, window_ms, refill = capacity, period_ms = window_ms) =>
  ({ id: "b0", capacity, window_ms, refill, period_ms });
const rule = (fields) => ({
  id: "a", name: null, mode: "enforce", priority: 100, key: ["user"], group: null, rollout: null,
  algorithm: "token_bucket", bands: [bucket(10, 1000)], lease: null, on_exceed: "reject", ...fields,
});
const says = (fields, expected) => assert.equal(sentence(rule(fields)), expected);

test("actions and lists", () => {
  const action = { bands: [], key: [], algorithm: null };
  says({ ...action, action: "deny", status: 403, match: { user: { in: "blocked" } } },
    "denies with status 403 requests with user in the list blocked");
  says({ ...action, action: "allow", match: { ip: { in: "office" }, api_key: { not_in: "stolen" } } },
    "exempts from every limit requests from the list office with API key not in the list stolen");
  says({ match: { not_ip: { in: "office" }, headers: { "X-A": { in: "l" } } } },
    "10 requests per second for each user not from the list office with header X-A in the list l");
});

test("bands", () => {
  says({}, "10 requests per second for each user");
  says({ bands: [bucket(10, 1000), bucket(100, 60000)], match: { path: ["/api/**"] } },
    "10 requests per second and 100 per minute for each user on /api/**");
  says({ bands: [bucket(50, 1000, 10, 1000)] }, "10 requests per second with bursts of up to 50 for each user");
  says({ bands: [{ id: "b0", capacity: 5, window_ms: 900000 }] }, "5 requests per 15 minutes for each user");
  says({ bands: [{ id: "b0", capacity: 5, window_ms: 1500 }] }, "5 requests per 1,500 milliseconds for each user");
  says({ bands: [{ id: "b0", capacity: 10000, calendar: "month", time_zone: "Asia/Seoul" }] },
    "10,000 requests per calendar month in Asia/Seoul for each user");
  says({ bands: [{ id: "b0", capacity: 1, calendar: "day", time_zone: "UTC" }] },
    "1 request per calendar day for each user");
  says({ bands: [{ id: "b0", capacity: 3, hold_ms: 60000 }] }, "at most 3 requests at the same time for each user");
});

test("keys", () => {
  says({ key: [] }, "10 requests per second for all requests together");
  says({ key: ["ip"] }, "10 requests per second for each address");
  says({ key: ["api_key"] }, "10 requests per second for each API key");
  says({ key: ["header:x-tenant"] }, "10 requests per second for each value of header x-tenant");
  says({ key: ["user", "attr:a:b"] },
    "10 requests per second for each combination of user and value of attribute a:b");
});

test("matches", () => {
  says({ match: { path: ["/login"], methods: ["POST"] } }, "10 requests per second for each user on POST /login");
  says({ match: { methods: ["GET", "POST"] } }, "10 requests per second for each user on GET or POST requests");
  says({ match: { path: "/a", not_path: ["/a/x", "/a/y"], ip: ["10.0.0.0/8"], not_ip: "10.0.0.1" } },
    "10 requests per second for each user on /a except on /a/x and /a/y from 10.0.0.0/8 not from 10.0.0.1");
  says({ match: { headers: { "X-Plan": "free", "X-Debug": { present: false } },
    attributes: { plan: ["free", "trial"], region: { not: "eu" }, n: 3, any: { present: true } } } },
    "10 requests per second for each user with header X-Plan “free”, without header X-Debug, with attribute plan " +
    "“free” or “trial”, with attribute region other than “eu”, with attribute n 3 and with any attribute any");
  says({ match: null }, "10 requests per second for each user");
});

test("details", () => {
  assert.deepEqual(details(rule({ notify: [] })), []);
  assert.deepEqual(details(rule({
    mode: "shadow", rollout: "12.5%", group: "plan", on_exceed: "wait", max_wait_ms: 2000, priority: -1,
    lease: { share: "20%", for_ms: 1000 }, bands: [{ id: "b0", capacity: 3, hold_ms: 60000 }],
  })), [
    "Shadow: counts and reports, but never denies.",
    "Enforced for 12.5% of the identities, shadow for the others.",
    "Group plan: only the first rule of it that matches applies.",
    "Requests over the limit wait for up to 2 seconds before they are denied.",
    "Lease: instances take up to 20% of the limit in advance, for 1 second at most.",
    "A slot expires after 1 minute unless renewed.",
    "Priority -1: rules with a lower number are evaluated first.",
  ]);
});

test("what a rule counts", () => {
  says({ cost: "llm:total_tokens", bands: [bucket(20000, 60000)] }, "20,000 tokens per minute for each user");
  says({ cost: "llm:completion_tokens" }, "10 completion tokens per second for each user");
  says({ cost: "header:X-Cost" }, "10 units per second for each user");
  says({ cost: 5, bands: [bucket(1, 1000)] }, "1 unit per second for each user");
  const costs = (cost) => details(rule({ cost }));
  assert.deepEqual(costs("llm:total_tokens"), []);
  assert.deepEqual(costs("attr:pages"), ["A request takes as many units as its attribute pages says, or 1."]);
  assert.deepEqual(costs(5), ["Each request takes 5 units."]);
});

test("what else a rule does", () => {
  assert.deepEqual(details(rule({
    charge: "always", notify: ["80%", "100%"], shape: true, on_missing_key: "deny",
    overrides: { count: 3, until: ["2027-01-01T00:00:00Z"] },
  }), (at) => new Date(at).toISOString()), [
    "Denied requests are charged as well.",
    "Requests are spread out evenly: each waits for those before it.",
    "3 identities have limits of their own, 1 of them until 2027-01-01T00:00:00.000Z.",
    "Sends an event when an identity has used 80% or 100% of a limit.",
    "Requests that lack it are denied.",
  ]);
  assert.deepEqual(details(rule({ overrides: { count: 1, until: [] } })), ["1 identity has a limit of its own."]);
});

test("a change says what it means", () => {
  const change = (field, before, after) =>
    changeWords({ rule_set: "api", rule: "a", change: "changed", fields: [{ field, before, after }] });
  assert.equal(change("mode", "shadow", null), "Rule a: mode from shadow to enforce: this rule denies from now on.");
  assert.equal(change("mode", null, "shadow"),
    "Rule a: mode from enforce to shadow: this rule no longer denies, it only reports.");
  assert.equal(change("enabled", "false", null), "Rule a: enabled from false to true: this rule applies from now on.");
  assert.equal(change("rollout", "10%", null), "Rule a: rollout from 10% to 100%: more identities are limited from now on.");
  assert.equal(change("cost", null, "5"), "Rule a: cost from 1 to 5.");
  assert.equal(change("match.path", "[/a]", null), "Rule a: match.path from [/a] to nothing.");
  assert.equal(changeWords({ rule_set: "api", rule: null, change: "added", fields: [] }), "Rule set api added.");
});

test("names", () => {
  assert.equal(algorithmWords("sliding_log"), "sliding log");
  assert.equal(duration(500), "500 milliseconds");
  assert.equal(duration(86400000), "1 day");
});
