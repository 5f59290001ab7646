// The identities: lists, the page of a customer, refunds, resets, overrides and explanations.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { until } from "./element.mjs";
import { browserTest, confirm, logIn, open } from "./harness.mjs";
import { startService } from "./service.mjs";

const ANN = { user: "ann", ip: "203.0.113.9", method: "GET", path: "/api/items" };
const KEY = "a-secret-key-0123456789";
const BY_KEY = `
  api:
    rules:
      - { id: by-key, scope: per_api_key, on_missing_key: skip, algorithm: fixed_window, bands: [ { id: day, capacity: 5, window: 1d } ] }
      - { id: everything, scope: global, algorithm: fixed_window, bands: [ { id: day, capacity: 1000, window: 1d } ] }
`;

async function lookUp(page, text) {
  await (await page.find("searchbox", "Search")).fill(text);
  await page.click("button", "Look up");
}

const left = async (service, identity, rule = "per-user") =>
  (await service.call("GET", `/v1/state?rule_set=api&rule=${rule}&identity=${identity}`)).bands[0].remaining;

browserTest("lists who is denied, and opens one of them", {}, async (page, service) => {
  await service.check(ANN, 13);
  await open(page, service, "#/identities", "Identities");
  const table = await page.find("table", "Identities that were denied most");
  await table.shows(/user=ann api \/ per-user, limit “hour” .* denied 3 denials/);
  await page.shows("1 to 1 of 1. Those that were denied most within the time above, of all instances.");
  await page.click("link", "user=ann");
  await page.find("heading", "user = ann");
  const card = await page.find("region", "api/per-user");
  await card.shows(/Next request in \d+ min/);
  await card.shows("0 left 10 of 10 requests used all available in");
  await card.shows("90 left 10 of 100 requests used");
  const meters = await page.all("meter", /^Used of /, card);
  assert.deepEqual(meters.map(({ name }) => name), ["Used of hour", "Used of day"]);
  assert.equal(await meters[0].attribute("aria-valuetext"), "100% used");
  await page.shows("Limited now by api/per-user: nothing is left there.");
  await page.shows("Something is used under 1 of 1 rule.");
});

for (const identities of [true, false]) {
  const what = identities ? "is shown by its ends" : "is a pseudonym in the record";
  browserTest(`opens, refunds, resets and explains a customer whose API key ${what}`,
    { rules: BY_KEY, identities }, async (page, service) => {
      await service.check({ api_key: KEY }, 7);
      await open(page, service, "#/identities", "Identities");
      await page.click("link", /^api_key=/);
      await page.find("heading", /^api_key = /);
      const card = await page.find("region", "api/by-key");
      await card.shows("0 left 5 of 5 requests used");
      await page.hides("No units used");
      await page.click("button", "Explain api/by-key", card);
      await card.shows("Denied. By by-key/day. It would pass in");
      await page.click("button", "Refund requests: api/by-key", card);
      await confirm(page, "Refund");
      await card.shows("Refunded 1 request. 1 left in day (5 per day).");
      await page.click("button", "Reset: api/by-key", card);
      await confirm(page, "Reset");
      await card.shows("Reset: 1 counter deleted. 5 left in day (5 per day).");
      await page.click("button", "Explain api/by-key", card);
      await card.shows("Allowed. 4 of 5 left in by-key/day afterwards.");
      await page.click("button", "Reset: api/by-key", card);
      await confirm(page, "Reset");
      await page.says("status", "There was nothing to reset: ", card);
      const done = (await page.all("status", undefined, card)).at(-1);
      assert.doesNotMatch(await done.attribute("class"), /good/);
      // The key itself finds the same counter, and stays out of the link.
      await service.check({ api_key: KEY }, 2);
      await lookUp(page, KEY);
      await (await page.find("region", "api/by-key")).shows("2 of 5 requests used");
      assert.doesNotMatch(await page.evaluate(() => location.href), /secret/);
      await page.hides(KEY);
    });
}

browserTest("explains a denied request whose key is hidden by its handle, not by its pseudonym", {
  rules: BY_KEY, identities: false,
}, async (page, service) => {
  await service.check({ api_key: KEY, user: "ann", path: "/x" }, 7);
  await open(page, service, "#/identities", "Identities");
  await page.click("link", /^api_key=/);
  const table = await page.find("table", "Recent requests, newest first");
  await table.shows("denied by-key");
  const [newest] = await page.all("button", /^Explain .*\/x$/, table);
  await newest.click();
  await page.shows(/Denied\. By by-key\/day\. It would pass in .* User and API key of the recorded request are hidden, so only the rule by-key is explained/);
  await page.hides("Allowed.");
  assert.equal(await (await page.find("textbox", "API key")).value(), "");
});

browserTest("a customer's page offers no change of what everyone shares", { rules: BY_KEY }, async (page, service) => {
  await service.check({ api_key: KEY }, 3);
  await open(page, service, "#/identities", "Identities");
  await lookUp(page, `api_key=${KEY}`);
  await page.find("region", "api/by-key");
  await page.shows("1 rule that everyone shares");
  await page.evaluate(() => document.querySelector(".id-shared summary").click());
  await page.click("button", "Show api/everything");
  const shared = await page.find("region", "api/everything");
  await shared.shows("All customers share this counter.");
  assert.deepEqual((await page.all("button", undefined, shared)).map(({ name }) => name), []);
  // Its own page does.
  await page.goto("about:blank");
  await open(page, service, "#/identities?identity=(everyone)&rule=api/everything", "Everyone");
  await page.click("button", "Reset: api/everything");
  await (await page.find("dialog")).shows("Deletes the counter that all requests share under api/everything");
  await confirm(page, "Cancel");
});

browserTest("without denials, says what to do", {}, async (page, service) => {
  await open(page, service, "#/identities", "Identities");
  await page.shows("No identity was denied");
  await lookUp(page, "user=nobody");
  await page.find("heading", "user = nobody");
  await page.shows("Nothing is known of user = nobody");
  await page.shows("No recorded request has user = nobody.");
  await page.shows("Not denied within the last 24 hours.");
  await page.hides("Loading…");
  assert.match(await page.evaluate(() => location.hash), /^#\/identities\?user=nobody$/);
  await page.click("button", "Clear");
  await page.shows("No identity was denied");
});

browserTest("follows the state while it is shown", {}, async (page, service) => {
  await service.check(ANN, 3);
  await open(page, service, "#/identities?user=ann", "user = ann");
  const card = await page.find("region", "api/per-user");
  await card.shows("3 of 10 requests used");
  await service.check(ANN, 2);
  await card.shows("5 of 10 requests used");
});

browserTest("a search finds out which part a value is, and what it may be else", {}, async (page, service) => {
  await service.check({ ...ANN, method: "POST", path: "/login", user: "bob", ip: "198.51.100.7" }, 2);
  await service.check({ ...ANN, path: "/export/1", attributes: { tenant: "acme" }, hold: "60s" });
  await open(page, service, "#/identities", "Identities");
  await lookUp(page, "198.51.100.7");
  await page.find("heading", "ip = 198.51.100.7");
  await (await page.find("region", "api/login")).shows("2 of 5 requests used");
  await lookUp(page, "acme");
  await page.find("heading", "attr:tenant = acme");
  await (await page.find("region", "api/exports")).shows("1 of 3 slots taken");
  await page.shows("Taken for the attribute tenant. It may also be another part:");
  await page.click("button", "user");
  await page.find("heading", "user = acme");
  await page.evaluate(() => history.back());
  await page.find("heading", "attr:tenant = acme");
});

browserTest("filters and pages the lists on the server", {}, async (page, service) => {
  const users = Array.from({ length: 60 }, (_, index) => `user-${String(index).padStart(2, "0")}`);
  for (const user of users) await service.check({ ...ANN, user }, user < "user-30" ? 2 : 1);
  await open(page, service, "#/identities?show=hour&of=api/per-user", "Identities");
  await page.shows("1 to 25 of 120. Those that used most within the last hour");
  await page.click("button", "Next");
  await page.shows("26 to 50 of 120.");
  await (await page.find("searchbox", "Search")).fill("user-59");
  await page.shows("1 to 2 of 2.");
  const table = await page.find("table", "Identities by what they use");
  await table.shows(/user=user-59 api \/ per-user, limit “hour” 1 of 10 requests no 1 request 9 left/);
  await (await page.find("searchbox", "Search")).fill("nobody");
  await page.shows("No listed identity contains “nobody”.");
  await (await page.find("searchbox", "Search")).fill("");
  await page.click("button", "Running out");
  await page.shows("No identity runs out");
  assert.match(await page.evaluate(() => location.hash), /show=soon/);
});

browserTest("lists who holds slots, and who runs out", { rules: `
  api:
    rules:
      - { id: exports, match: { path: ["/export/**"] }, key: [user, "attr:tenant"], algorithm: concurrency, bands: [ { capacity: 3 } ] }
      - { id: daily, match: { path: ["/api/**"] }, scope: per_user, algorithm: fixed_window, bands: [ { id: day, capacity: 10, window: 1d } ] }
` }, async (page, service) => {
  await service.check({ ...ANN, path: "/export/1", attributes: { tenant: "acme" }, hold: "60s" }, 2);
  await service.check(ANN, 9);
  await open(page, service, "#/identities?show=slots", "Identities");
  await page.says("table", /user=ann attr:tenant=acme api \/ exports 2 of 3 slots [12] slots? in .* 2 slots 1 free/);
  await page.click("button", "Running out");
  await page.says("table", /user=ann api \/ daily, limit “day” 9 of 10 requests in .* 1 left/);
});

browserTest("refunds and resets after a question, with a reason, and says what each band has left", {}, async (page, service) => {
  await service.check(ANN, 8);
  await open(page, service, "#/identities?user=ann", "user = ann");
  const card = await page.find("region", "api/per-user");
  await card.shows("8 of 10 requests used");

  const units = await page.find("spinbutton", "Requests to refund: api/per-user");
  await units.fill("3");
  await page.click("button", "Refund requests: api/per-user");
  await (await page.find("dialog", "Refund requests?")).shows("Gives 3 requests back to user=ann, in every band (limit) of api/per-user");
  await confirm(page, "Cancel");
  assert.equal(await left(service, "ann"), 2);
  await page.click("button", "Refund requests: api/per-user");
  await (await page.find("textbox", /^Reason/)).fill("asked by phone");
  await confirm(page, "Refund");
  await card.shows("Refunded 3 requests. 5 left in hour (10 per hour). 95 left in day (100 per day).");
  await card.shows("5 of 10 requests used");

  await page.click("button", "Reset: api/per-user");
  await page.find("dialog", "Reset api/per-user?");
  await page.press("Escape");
  await page.gone("dialog");
  await page.click("button", "Reset: api/per-user");
  await confirm(page, "Reset");
  await card.shows(/Reset: \d counters? deleted\. 10 left in hour/);
  await page.click("button", "Refund requests: api/per-user");
  await confirm(page, "Refund");
  await card.shows("Nothing was used, so nothing was given back. 10 left in hour");
});

browserTest("shows why a refund or a reset failed", {}, async (page, service) => {
  await service.check(ANN, 8);
  await page.fail("POST", "/v1/refund", 503, "the store is away");
  await page.fail("POST", "/v1/reset", 403, "the role is too low");
  await open(page, service, "#/identities?user=ann", "user = ann");
  const card = await page.find("region", "api/per-user");
  await page.click("button", "Refund requests: api/per-user");
  await confirm(page, "Refund");
  await page.says("alert", "503 the store is away", card);
  await card.shows("Whether it was done is not known");
  await page.click("button", "Reset: api/per-user");
  await confirm(page, "Reset");
  await page.says("alert", "403 the role is too low", card);
  await card.shows("8 of 10 requests used");
  const units = await page.find("spinbutton", "Requests to refund: api/per-user");
  await units.fill("0");
  await page.click("button", "Refund requests: api/per-user");
  assert.equal(await page.has("dialog"), false);
  assert.equal(await units.call((input) => input.validity.valid), false);
});

browserTest("raises a limit until a time, in the stored rule", { stored: true }, async (page, service) => {
  await service.call("PUT", "/v1/rule_sets/api", { rules: [
    { id: "per-user", scope: "per_user", bands: [{ id: "hour", capacity: 10, window: "1h" }],
      overrides: [{ identity: "bob", bands: [{ id: "hour", capacity: 3, window: "1h" }] }] },
  ] });
  await service.check(ANN, 4);
  await open(page, service, "#/identities?user=ann", "user = ann");
  await page.click("button", "Raise until…: api/per-user");
  const dialog = await page.find("dialog", /^Raise the limit of api\/per-user/);
  const limit = await page.find("spinbutton", /^New limit of hour, in requests/, dialog);
  assert.equal(await limit.value(), "20");
  await limit.fill("25");
  await dialog.shows(/Until \d.* From then on, the limit of the rule applies again\./);
  await page.click("button", "Raise the limit", dialog);
  await page.gone("dialog");
  await page.shows(/user=ann may use 25 requests in place of 10 per hour of api\/per-user until /);
  await (await page.find("region", "api/per-user")).shows("override: 25 requests");
  await (await page.find("region", "api/per-user")).shows("10 of 25 requests used");
  const { overrides } = await service.call("GET", "/v1/rule_sets/api/rules/per-user");
  assert.deepEqual(overrides.map(({ identity, bands }) => [identity, bands[0].capacity]), [["bob", 3], ["ann", 25]]);
  const hours = (Date.parse(overrides[1].until) - Date.now()) / 3_600_000;
  assert.ok(hours > 23.9 && hours < 24.1, overrides[1].until);
});

browserTest("where rules cannot be written, shows the override to add", {}, async (page, service) => {
  await service.check(ANN, 4);
  await open(page, service, "#/identities?user=ann", "user = ann");
  await page.click("button", "Raise until…: api/per-user");
  const dialog = await page.find("dialog");
  await dialog.shows("Rules of this service come from its configuration file");
  await dialog.shows(/overrides: - \{ identity: "ann", until: "20\d\d-.*Z", bands: \[ \{ id: hour, capacity: 20, window: 1h \}, \{ id: day, capacity: 200, window: 1d \} \] \}/);
  assert.equal(await page.has("button", "Raise the limit", dialog), false);
  await page.click("button", "Close", dialog);
});

browserTest("says tokens, and the dates of a calendar window", { rules: `
  llm: { rules: [ { id: budget, scope: per_user, cost: "llm:total_tokens", algorithm: fixed_window,
    bands: [ { id: month, capacity: 10000, calendar: month, time_zone: Asia/Seoul } ] } ] }
` }, async (page, service) => {
  await service.check({ rule_set: "llm", user: "ann", cost: 1200 });
  await open(page, service, "#/identities?user=ann", "user = ann");
  const card = await page.find("region", "llm/budget");
  await card.shows("8,800 left 1,200 of 10,000 tokens used");
  await card.shows(/starts afresh 1 \w+ 20\d\d, 00:00 GMT\+9/);
  await card.shows(/1 to \d\d \w+ 20\d\d \(Asia\/Seoul\)/);
  await page.find("spinbutton", "Tokens to refund: llm/budget");
});

browserTest("lists denials of a customer, filters and exports them", {}, async (page, service) => {
  const folder = mkdtempSync(join(tmpdir(), "fluxgate-export-"));
  try {
    await page.downloads(folder);
    await service.check(ANN, 12);
    await service.check({ ...ANN, user: "bob" }, 11);
    await open(page, service, "#/identities?user=ann", "user = ann");
    const table = await page.find("table", "Denials, newest first");
    await table.shows(/api \/ per-user, limit “hour” 2 denied GET \/api\/items/);
    assert.equal((await page.all("row", undefined, table)).length, 2);
    await page.shows("2 denials on this page");
    await page.click("button", /^Explain the denial by per-user/);
    await page.shows("Denied. By per-user/hour. It would pass in");
    assert.match(await (await page.find("link", "NDJSON")).attribute("href"), /format=ndjson/);
    await page.click("link", "CSV");
    const text = await until("the file is there", () => readFileSync(join(folder, "denials.csv"), "utf8"));
    assert.match(text, /^rule_set,rule,band,.*\r\napi,per-user,hour,denied,user=ann,/);
    assert.doesNotMatch(text, /bob/);
    const rule = (await page.all("combobox", "Rule")).at(-1);
    await rule.call((select) => {
      select.value = "api/login";
      select.dispatchEvent(new Event("change"));
    });
    await page.shows("Not denied within the last 24 hours.");
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

browserTest("shows what was seen together with a customer", {}, async (page, service) => {
  await service.check({ ...ANN, api_key: KEY }, 3);
  await service.check({ ...ANN, ip: "198.51.100.7" });
  await service.check({ ...ANN, user: "bob" });
  await open(page, service, "#/identities?user=ann", "user = ann");
  await page.shows("IP address 203.0.113.9 3 requests");
  await page.shows("IP address 198.51.100.7 1 request");
  await page.shows(/API key ~[0-9a-f]{12} 3 requests/);
  await page.shows("From 4 recorded requests.");
  await page.click("link", "203.0.113.9");
  await page.find("heading", "ip = 203.0.113.9");
  await page.shows(/User bob 1 request/);
});

browserTest("requests of a customer are those of all instances", { stored: true }, async (page, service) => {
  await service.call("PUT", "/v1/rule_sets/api", { rules: [
    { id: "per-user", scope: "per_user", bands: ["10/h"] },
    { id: "by-key", scope: "per_api_key", on_missing_key: "skip", algorithm: "fixed_window", bands: ["5/d"] },
  ] });
  const other = await startService({ rules: null, store: service.store });
  try {
    await until("both are known", async () => (await service.call("GET", "/v1/instances")).instances.length === 2);
    await service.check({ ...ANN, path: "/here", api_key: KEY }, 2);
    await other.check({ ...ANN, path: "/there", ip: "198.51.100.7" });
    await open(page, service, "#/identities?user=ann", "user = ann");
    const table = await page.find("table", "Recent requests, newest first");
    await table.shows("/here");
    await table.shows("/there");
    await page.shows("IP address 198.51.100.7 1 request");
    await page.shows("From 3 recorded requests.");
    // A key that Redis has as a hash is found by what is shown of it.
    await page.click("link", /^~[0-9a-f]{12}$/);
    await page.find("heading", /^api_key = ~/);
    await (await page.find("region", /^api\/by-key/)).shows("2 of 5 requests used");
    await page.shows("From 2 recorded requests.");
    await page.evaluate(() => history.back());
    await page.find("heading", "user = ann");
    await other.stop();
    await page.shows("From 2 recorded requests. 1 instance did not answer.");
  } finally {
    await other.end();
  }
});

browserTest("looks up keys of several parts, and slots", {}, async (page, service) => {
  await service.check({ ...ANN, path: "/export/1", attributes: { tenant: "a, b=c" }, hold: "60s" }, 2);
  await open(page, service, "#/identities", "Identities");
  await lookUp(page, "user=ann attr:tenant=a, b=c");
  const card = await page.find("region", "api/exports");
  await card.shows("counted by user and attribute tenant.");
  await card.shows(/1 free .*2 of 3 slots taken Unless released or renewed, they expire: .*[1-5]\d s\./);
  assert.equal(await page.has("button", /^Refund/, card), false);
  await page.click("button", "Reset: api/exports");
  await (await page.find("dialog")).shows("user=ann attr:tenant=a, b=c");
  await confirm(page, "Reset");
  await card.shows("0 of 3 slots taken");
  // The same by its link, as the overview makes it.
  const link = new URLSearchParams({ identity: "user=ann attr:tenant=a, b=c", rule: "api/exports" });
  await page.goto("about:blank");
  await open(page, service, `#/identities?${link}`, "user = ann, attr:tenant = a, b=c");
});

browserTest("lists recorded requests, how they were decided, and explains one", {}, async (page, service) => {
  await service.check(ANN, 11);
  await service.check({ ...ANN, method: "POST", path: "/login", headers: { "x-plan": "free" } });
  await service.check({ ...ANN, user: "bob", path: "/api/of-bob" });
  await open(page, service, "#/identities?user=ann", "user = ann");
  const table = await page.find("table", "Recent requests, newest first");
  assert.equal((await page.all("row", undefined, table)).length, 13);
  assert.doesNotMatch(await table.text(), /of-bob/);
  await table.shows("denied per-user");
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
  assert.equal(await left(service, "eve"), 10);

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

browserTest("without a record of denials, lists those of the last minute", { config: "history: false" }, async (page, service) => {
  await service.check(ANN, 12);
  await open(page, service, "#/identities", "Identities");
  await (await page.find("table", "Identities that were denied most")).shows(/user=ann .* 2 denials/);
  await page.shows("Within the last minute: history is false in the config.");
  assert.equal(await page.has("button", "At the limit"), false);
  await page.click("link", "user=ann");
  await page.shows("What happened is not recorded: history is false in the config.");
});

browserTest("a link that finds nothing any more says so", {}, async (page, service) => {
  await service.check(ANN, 2);
  page.allow(/status of 40/);
  await open(page, service, "#/identities?handle=AQAAAA&identity=user=ann&rule=api/per-user", "user = ann");
  await page.shows("This link no longer finds the identity of its rule");
  await (await page.find("region", "api/per-user")).shows("2 of 10 requests used");
});

browserTest("shows that the state cannot be read, and reads it again", {}, async (page, service) => {
  const stop = await page.fail("POST", "/v1/state/batch", 503, "the store is away");
  const stopRecent = await page.fail("GET", "/v1/recent", 503, "no memory of it");
  await open(page, service, "#/identities?user=ann", "user = ann");
  await page.shows("503 the store is away");
  await page.shows("503 no memory of it");
  stop();
  stopRecent();
  await page.hides("the store is away");
  await page.hides("no memory of it");
  await page.shows("1 rule that everyone shares");
});

browserTest("keeps what was known while the store of one rule is away", {}, async (page, service) => {
  await service.check(ANN, 4);
  await open(page, service, "#/identities?user=ann", "user = ann");
  const card = await page.find("region", "api/per-user");
  await card.shows("4 of 10 requests used");
  const error = { status: 503, detail: "the store failed: timeout" };
  const stop = await page.answer("POST", "/v1/state/batch", { body: { states: [{ error }, { error }] } });
  await card.shows("Not up to date: the store failed: timeout");
  await card.shows("4 of 10 requests used");
  stop();
  await until("it is up to date again", async () => !(await card.text()).includes("Not up to date"));
});

browserTest("shows that the rules cannot be read, and tries again by itself", {}, async (page, service) => {
  const stop = await page.fail("GET", "/v1/rule_sets", 503, "no rules yet");
  await open(page, service, "#/identities?user=ann", "Identities");
  await page.says("alert", "503 no rules yet");
  stop();
  await page.find("heading", "user = ann");
});

browserTest("offers a viewer no change, and an operator every change of state", { tokens: true }, async (page, service) => {
  await service.check(ANN, 3);
  await page.goto(service.url("#/identities?user=ann"));
  page.allow(/status of 401/);
  await logIn(page, "viewer");
  await (await page.find("region", "api/per-user")).shows("3 of 10 requests used");
  assert.equal(await page.has("button", /Refund|Reset/), false);
  await page.shows("Refunds and resets need the role operator. You have the role viewer.");
  await page.click("button", "Log out");
  await logIn(page, "operator");
  await page.click("button", "Reset: api/per-user");
  await confirm(page, "Reset");
  await page.shows(/Reset: \d counters? deleted/);
});

browserTest("has no accessibility findings in either theme at any width", {}, async (page, service) => {
  await service.check({ ...ANN, api_key: KEY }, 12);
  for (const scheme of ["light", "dark"]) {
    await page.media({ scheme });
    for (const [width, hash, text] of [[390, "#/identities", "1 to 1 of 1"], [390, "#/identities?user=ann", "Recent requests"],
      [800, "#/identities?user=ann", "Recent requests"], [1001, "#/identities?show=share", "1 to"],
      [1400, "#/identities?user=ann", "Recent requests"], [2560, "#/identities?user=ann", "Recent requests"]]) {
      await page.view({ width, height: 900, phone: width === 390 });
      await page.goto("about:blank");
      await page.goto(service.url(hash));
      await page.shows(text);
      await page.shows(hash.includes("user=ann") ? "user = ann" : "user=ann");
      assert.deepEqual(await page.axe(), [], `${scheme} ${width} ${hash}`);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${hash} is ${wide} px too wide at ${width}`);
    }
  }
});
