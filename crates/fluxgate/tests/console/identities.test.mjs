// The identities: look-up, refunds, resets, recorded requests and explanations.

import assert from "node:assert/strict";

import { browserTest, confirm, logIn, open } from "./harness.mjs";

const ANN = { user: "ann", ip: "203.0.113.9", method: "GET", path: "/api/items" };

async function lookUp(page, values) {
  for (const [label, value] of Object.entries(values)) await (await page.find("textbox", label)).fill(value);
  await page.click("button", "Look up");
}

browserTest("lists who is denied, and looks one of them up", {}, async (page, service) => {
  await service.check(ANN, 13);
  await open(page, service, "#/identities", "Identities");
  await page.find("heading", "Most denied in the last minute");
  await page.click("link", /^user=ann api \/ per-user, denied 3 times$/);
  await page.find("heading", "user = ann");
  const card = await page.find("region", "api/per-user");
  await card.shows("0 left 10 of 10 used all available in");
  await card.shows("90 left 10 of 100 used");
  const meters = await page.all("meter", /^Used of /, card);
  assert.deepEqual(meters.map(({ name }) => name), ["Used of hour", "Used of day"]);
  assert.equal(await meters[0].attribute("aria-valuetext"), "100% used");
  await page.shows("Units used under 1 of 1 rule.");
  await page.shows("needs attr:tenant");
});

browserTest("without denials, says what to do", {}, async (page, service) => {
  await open(page, service, "#/identities", "Identities");
  await page.shows("No identity was denied");
  await lookUp(page, { User: "nobody" });
  await page.find("heading", "user = nobody");
  await page.shows("No units used.");
  await page.shows("No recorded request has user = nobody.");
  assert.match(await page.evaluate(() => location.hash), /^#\/identities\?user=nobody$/);
  await page.click("button", "Clear");
  await page.shows("No identity was denied");
});

browserTest("follows the state while it is shown", {}, async (page, service) => {
  await service.check(ANN, 3);
  await open(page, service, "#/identities?user=ann", "user = ann");
  const card = await page.find("region", "api/per-user");
  await card.shows("3 of 10 used");
  await service.check(ANN, 2);
  await card.shows("5 of 10 used");
});

browserTest("refunds and resets, after a question", {}, async (page, service) => {
  await service.check(ANN, 8);
  await open(page, service, "#/identities?user=ann", "user = ann");
  const card = await page.find("region", "api/per-user");
  await card.shows("8 of 10 used");

  const units = await page.find("spinbutton", "Units to refund to api/per-user");
  await units.fill("3");
  await page.click("button", "Refund units: api/per-user");
  await (await page.find("dialog", "Refund units?")).shows("3 units to user = ann, in every band of api/per-user");
  await confirm(page, "Cancel");
  assert.equal((await service.call("GET", "/v1/state?rule_set=api&rule=per-user&identity=ann")).bands[0].remaining, 2);
  await page.click("button", "Refund units: api/per-user");
  await confirm(page, "Refund");
  await card.shows("Refunded. 5 left.");
  await card.shows("5 of 10 used");

  await page.click("button", "Reset: api/per-user");
  await page.find("dialog", "Reset api/per-user?");
  await page.press("Escape");
  await page.gone("dialog");
  await page.click("button", "Reset: api/per-user");
  await confirm(page, "Reset");
  await card.shows(/Reset: \d counters? deleted\./);
  await card.shows("0 of 10 used");
  await page.click("button", "Reset: api/per-user");
  await confirm(page, "Reset");
  await card.shows("There was nothing to reset.");
});

browserTest("shows why a refund or a reset failed", {}, async (page, service) => {
  await service.check(ANN, 8);
  await page.fail("POST", "/v1/refund", 503, "the store is away");
  await page.fail("POST", "/v1/reset", 403, "the role is too low");
  await open(page, service, "#/identities?user=ann", "user = ann");
  const card = await page.find("region", "api/per-user");
  await page.click("button", "Refund units: api/per-user");
  await confirm(page, "Refund");
  await page.says("alert", "503 the store is away", card);
  await page.click("button", "Reset: api/per-user");
  await confirm(page, "Reset");
  await page.says("alert", "403 the role is too low", card);
  await card.shows("8 of 10 used");
  const units = await page.find("spinbutton", "Units to refund to api/per-user");
  await units.fill("0");
  await page.click("button", "Refund units: api/per-user");
  assert.equal(await page.has("dialog"), false);
  assert.equal(await units.call((input) => input.validity.valid), false);
});

browserTest("looks up keys of several parts, and slots", {}, async (page, service) => {
  await service.check({ ...ANN, path: "/export/1", attributes: { tenant: "a, b=c" }, hold: "60s" }, 2);
  await open(page, service, "#/identities", "Identities");
  await lookUp(page, { User: "ann", "Attribute tenant": "a, b=c" });
  const card = await page.find("region", "api/exports");
  await card.shows("counted by user and attribute tenant.");
  await card.shows(/1 free .*2 of 3 slots taken/);
  await page.click("button", "Reset: api/exports");
  await (await page.find("dialog")).shows("user = ann, attr:tenant = a, b=c");
  await confirm(page, "Reset");
  await card.shows("0 of 3 slots taken");
  // The same by its link, as the overview makes it.
  const link = new URLSearchParams({ identity: "user=ann, attr:tenant=a, b=c", rule: "api/exports" });
  await page.goto("about:blank");
  await open(page, service, `#/identities?${link}`, "user = ann, attr:tenant = a, b=c");
});

browserTest("keeps an API key out of the link", {
  rules: "\n  api: { rules: [ { id: by-key, scope: per_api_key, bands: [ 5/h ] } ] }",
}, async (page, service) => {
  await service.check({ api_key: "secret-key-1" }, 2);
  await open(page, service, "#/identities", "Identities");
  await lookUp(page, { "API key Not part of the link.": "secret-key-1" });
  await (await page.find("region", "api/by-key")).shows("2 of 5 used");
  assert.doesNotMatch(await page.evaluate(() => location.href), /secret/);
});

browserTest("lists recorded requests, and explains one", {}, async (page, service) => {
  await service.check(ANN, 10);
  await service.check({ ...ANN, method: "POST", path: "/login", headers: { "x-plan": "free" } });
  await service.check({ ...ANN, user: "bob", path: "/api/of-bob" });
  await open(page, service, "#/identities?user=ann", "user = ann");
  const table = await page.find("table", "Recent requests, newest first");
  assert.equal((await page.all("row", undefined, table)).length, 12);
  assert.doesNotMatch(await table.text(), /of-bob/);
  const [first] = await page.all("button", /^Explain (GET|POST) /, table);
  assert.equal(first.name, "Explain POST /login");
  await page.click("button", "Explain GET /api/items", table);
  await page.shows("Denied. By per-user/hour. It would pass in");
  await page.shows("per-user denies");
  await page.shows(/hour 0 → .*0 of 10 units left/);
  await page.shows("login does not match");
  assert.equal(await (await page.find("textbox", "Path")).value(), "/api/items");
});

browserTest("explains a request that is typed in", {}, async (page, service) => {
  await open(page, service, "#/identities", "Identities");
  const fill = async (label, value) => (await page.all("textbox", label)).at(-1).fill(value);
  await fill("Path", "/api/x");
  await fill("User", "eve");
  await (await page.find("spinbutton", "Cost")).fill("4");
  await fill(/^Headers/, "X-Plan: free\nX-Other: a: b");
  await page.click("button", "Explain");
  await page.shows("Allowed. 6 of 10 left in per-user/hour afterwards.");
  await page.shows("Counts user=eve.");
  await page.shows("everything passes shadow");
  assert.equal((await service.call("GET", "/v1/state?rule_set=api&rule=per-user&identity=eve")).bands[0].remaining, 10);

  await (await page.find("spinbutton", "Cost")).fill("11");
  await page.click("button", "Explain");
  await page.shows("so it never passes.");

  page.allow(/status of 400/);
  await fill("IP address", "not an address");
  await page.click("button", "Explain");
  await page.says("alert", /^400 .*address/);
});

browserTest("says that requests are not recorded", { record: false }, async (page, service) => {
  await service.check(ANN);
  await open(page, service, "#/identities?user=ann", "user = ann");
  await page.shows("Requests are not recorded. Set admin: { record: true } in the config");
});

browserTest("says that recorded requests have pseudonyms", { identities: false }, async (page, service) => {
  await service.check(ANN);
  await open(page, service, "#/identities?user=ann", "user = ann");
  await page.shows("No recorded request has user = ann. Recorded requests have pseudonyms unless telemetry.identities is true");
});

browserTest("shows that the state cannot be read, and reads it again", {}, async (page, service) => {
  const stop = await page.fail("GET", "/v1/state", 503, "the store is away");
  const stopRecent = await page.fail("GET", "/v1/recent", 503, "no memory of it");
  await open(page, service, "#/identities?user=ann", "user = ann");
  await page.shows("503 the store is away");
  await page.shows("503 no memory of it");
  stop();
  stopRecent();
  await page.hides("the store is away");
  await (await page.find("region", "api/per-user")).shows("0 of 10 used");
});

browserTest("shows that the rules cannot be read, and tries again", {}, async (page, service) => {
  const stop = await page.fail("GET", "/v1/rule_sets", 503, "no rules yet");
  await open(page, service, "#/identities?user=ann", "Identities");
  await page.says("alert", "503 no rules yet");
  stop();
  await page.click("button", "Try again");
  await page.find("heading", "user = ann");
});

browserTest("offers a viewer no change, and an operator every change", { tokens: true }, async (page, service) => {
  await service.check(ANN, 3);
  await page.goto(service.url("#/identities?user=ann"));
  page.allow(/status of 401/);
  await logIn(page, "viewer");
  await (await page.find("region", "api/per-user")).shows("3 of 10 used");
  assert.equal(await page.has("button", /Refund|Reset/), false);
  await page.shows("Refunds and resets need the role operator. You have the role viewer.");
  await page.click("button", "Log out");
  await logIn(page, "operator");
  await page.click("button", "Reset: api/per-user");
  await confirm(page, "Reset");
  await (await page.find("region", "api/per-user")).shows("0 of 10 used");
});
