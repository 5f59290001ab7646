// The rules: the list, the editor, trials, writing, conflicts and the history.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { until } from "./element.mjs";
import { browserTest, confirm, logIn, open } from "./harness.mjs";

const ANN = { user: "ann", ip: "203.0.113.9", method: "GET", path: "/api/items" };
const STORED = { rules: [
  { id: "per-user", name: "Each user on the API", match: { path: ["/api/**"] }, scope: "per_user",
    bands: [{ id: "hour", capacity: 10, window: "1h" }, "100/d"] },
  { id: "login", match: { path: ["/login"], methods: ["POST"] }, scope: "per_ip", mode: "shadow",
    algorithm: "sliding_log", bands: ["5/10m"] },
  { id: "old", enabled: false, scope: "global", bands: ["5/s"] },
] };

const put = (service, body = STORED, set = "api") => service.call("PUT", `/v1/rule_sets/${set}`, body);
const stored = (service, set = "api") => service.call("GET", `/v1/rule_sets/${set}`);

/** Opens the editor of the stored set `api`, and returns its text field. */
async function edit(page, service) {
  await open(page, service, "#/rules?view=edit&set=api", "Rule set api");
  return page.find("textbox", "Rules of api in YAML");
}

/** Replaces a part of the text in the editor. */
async function change(field, before, after) {
  const text = await field.value();
  assert.ok(text.includes(before), text);
  await field.fill(text.replace(before, after));
}

/** Returns the rule in the list whose heading has this text. */
async function item(page, heading) {
  const items = await page.all("listitem");
  for (const each of items) {
    const [found] = await page.all("heading", heading, each);
    if (found) return each;
  }
  throw new Error(`there is no rule ${heading}`);
}

browserTest("lists the rules in words, with their pressure and their YAML", {}, async (page, service) => {
  await open(page, service, "#/rules", "Rules");
  await page.shows("Rules come from the config file.");
  await page.find("heading", "api");
  await page.shows("4 active rules. If the store fails, each instance decides by itself.");
  await page.shows("10 requests per hour and 100 per day for each user on /api/**.");
  await (await item(page, "login")).shows("enforced sliding log");
  await (await item(page, "everything")).shows("shadow fixed window");
  const rule = await item(page, "Each user on the API");
  await rule.shows("0/s");
  await rule.shows("No identity has used it within the last hour.");
  await service.check(ANN, 10);
  // The number is an average of seconds, so there are denials until it is seen.
  await until("denials are shown", async () => {
    await service.check(ANN);
    return /[1-9][\d.]*\/s .*denied [1-9]\d* requests? denied today 1 identity is at its limit: user=ann\./.test(await rule.text());
  }, { explain: () => page.describe() });
  // It is charged, but never reported.
  const everything = await item(page, "everything");
  // A user who is denied would not be charged in the next minute.
  let user = 0;
  await until("what is charged is shown", async () => {
    await service.check({ ...ANN, user: `user-${user++}` });
    return /[1-9][\d.]*\/s .*0 requests denied today All requests together have used [1-9]/.test(await everything.text());
  }, { explain: () => page.describe() });
  await (await page.find("link", "user=ann", rule)).click();
  await page.find("heading", "Identities");
  await page.evaluate(() => history.back());
  await page.find("heading", "Rules");
  await page.click("button", "YAML of api/per-user");
  const yaml = await page.find("region", "api/per-user in YAML");
  await yaml.shows("- id: per-user");
  assert.doesNotMatch(await yaml.text(), /login/);
  await page.click("button", "YAML of api/per-user");
  await page.gone("region", "api/per-user in YAML");
  assert.equal(await page.has("button", /Switches/), false);
  assert.equal(await page.has("link", "New rule set"), false);
});

browserTest("the first numbers of a rule are complete, also in minutes", {}, async (page, service) => {
  // The last whole minute is old enough to be among the denials that are not read again.
  const minutes = (last) => [...Array(9).fill(0), last, 0];
  let isFirst = true;
  await page.answer("GET", "/v1/history", { body() {
    const [step_s, since, allowed, denied] = isFirst ? [60, 645_000, minutes(60), minutes(540)]
      : [1, 45_000, Array(46).fill(6), Array(46).fill(4)];
    isFirst = false;
    return { step_s, from_ms: Date.now() - since, decisions: [], changes: [],
      series: [{ rule_set: "api", rule: "per-user", outcome: "allowed", values: allowed },
        { rule_set: "api", rule: "per-user", outcome: "denied", values: denied }] };
  } });
  await open(page, service, "#/rules", "Rules");
  await page.find("heading", "Each user on the API");
  const rule = await item(page, "Each user on the API");
  await rule.shows(/\/s requests/);
  // The rates are those of seconds.
  assert.match(await rule.text(), /10\/s requests, 4\/s denied 72\d requests denied today/);
  // What is used may be known later than the requests.
  await (await item(page, "login")).shows("No identity has used it within the last hour.");
  assert.doesNotMatch(await rule.text(), /No identity/);
});

browserTest("a link leads to a rule", {}, async (page, service) => {
  await open(page, service, "#/rules?set=api&rule=everything", "Rules");
  await page.waitFor("the rule has the focus", () => document.activeElement.textContent.includes("everything"));
});

browserTest("shows why rules or their text cannot be read", {}, async (page, service) => {
  const stop = await page.fail("GET", "/v1/rule_sets", 503, "no rules yet");
  await open(page, service, "#/rules", "Rules");
  await page.says("alert", "503 no rules yet");
  stop();
  // It comes back by itself.
  await page.find("heading", "api");
  await page.gone("alert");
  const written = await page.fail("GET", "/v1/rules_text", 500, "it cannot be written");
  await page.click("button", "YAML of api/login");
  await page.says("alert", "500 it cannot be written");
  written();
  await (await page.find("region", "api/login in YAML")).shows("- id: login");
  await page.gone("alert");
  await page.fail("GET", "/v1/rules_text", 500, "it cannot be written");
  await page.click("link", "Edit and try");
  await page.find("heading", "Rules as text");
  await page.says("alert", "500 it cannot be written");
});

browserTest("rules of a file are edited and tried as a copy", {}, async (page, service) => {
  await service.check(ANN, 9);
  await open(page, service, "#/rules", "Rules");
  await page.click("link", "Edit and try");
  const field = await page.find("textbox", "Rules in YAML");
  assert.equal(await page.has("button", "Apply…"), false);
  await page.says("status", "No faults");
  await change(field, "capacity: 10, window: 1h", "capacity: 4, window: 1h");
  await page.shows("1 line added, 1 line removed.");
  const difference = await page.find("region", "Changed lines");
  await difference.shows(/- .*capacity: 10, window: 1h.*\+ .*capacity: 4, window: 1h/);
  await page.click("button", "Try it");
  await page.shows("5 newly denied 0 newly allowed of 9 requests");
  const changed = await page.find("table", "Identities with the most changes");
  await changed.shows("user=ann api/per-user 5 0");
  await change(field, "capacity: 4, window: 1h", "capacity: 3, window: 1h");
  await page.says("status", "The text has changed since. Try it again.");

  await page.grant(["clipboardReadWrite", "clipboardSanitizedWrite"], service.origin);
  await page.click("button", "Copy");
  await page.shows("Text copied.");
  const text = await field.value();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), text);
  await page.downloads(service.path(""));
  await page.click("button", "Download");
  await until("the file is there", () => readFileSync(service.path("rules.yaml"), "utf8") === text);

  // The draft outlives the view, and the browser asks before it is lost.
  await page.click("link", "Overview");
  await page.find("heading", "Overview");
  await page.click("link", "Rules");
  await page.click("link", "Continue editing");
  assert.equal(await (await page.find("textbox", "Rules in YAML")).value(), text);
  const asked = [];
  page.onDialog((type) => asked.push(type) && false);
  page.send("Page.reload").catch(() => {});
  await until("the browser asks", () => asked.length > 0);
  assert.deepEqual(asked, ["beforeunload"]);
  await page.click("button", "Discard changes");
  await confirm(page, "Discard");
  await page.shows("No changes.");
  assert.match(await (await page.find("textbox", "Rules in YAML")).value(), /capacity: 10, window: 1h/);
});

browserTest("a stored set is edited, corrected, tried and applied, and a conflict is resolved", { stored: true }, async (page, service) => {
  await put(service);
  await service.check(ANN, 9);
  const field = await edit(page, service);
  await page.says("status", "No faults");
  assert.equal(await (await page.find("button", "Apply…")).call((button) => button.disabled), true);
  const original = await field.value();

  // A fault is shown at its line, and the text cannot be applied.
  await change(field, "scope: per_user", "scope: per_person");
  const line = (await field.value()).split("\n").findIndex((text) => text.includes("per_person")) + 1;
  await page.says("status", "1 fault");
  const link = await page.find("button", new RegExp(`^Line ${line}:\\d+$`));
  await page.shows(/per_person/);
  assert.equal(await field.attribute("aria-invalid"), "true");
  assert.equal(await (await page.find("button", "Apply…")).call((button) => button.disabled), true);
  await link.click();
  assert.equal(await field.call((area) => document.activeElement === area && area.value.slice(area.selectionStart).startsWith("per_person")), true);

  // It is corrected, and tried on what was recorded.
  await field.fill(original.replace("capacity: 10", "capacity: 4"));
  await page.says("status", "1 warning");
  await page.shows("band `b1` has no effect");
  await field.fill(original.replace("capacity: 10", "capacity: 5"));
  await page.says("status", "No faults");
  assert.equal(await field.attribute("aria-invalid"), "false");
  await page.click("button", "Try it");
  await page.shows("4 newly denied 0 newly allowed of 9 requests");
  const totals = await page.find("table", "Totals before and after");
  await totals.shows("Outcome Recorded Active rules This text");
  // What is compared stands side by side.
  assert.equal(await totals.call((table) => getComputedStyle(table.rows[1]).display), "table-row");
  await totals.shows("Requests 9 9 9 Allowed 9 (100%) 9 (100%) 5 (56%) Denied 0 0 4 (44%) Shadow-denied 0 0 0 Delayed – 0 0");
  await (await page.find("table", "Denied by rule")).shows("api/per-user 0 0 of 9 4 of 9");

  // It is applied.
  await page.click("button", "Apply…");
  const dialog = await page.find("dialog", "Apply to api?");
  await dialog.shows("1 line added, 1 line removed. 9 requests tried: 4 newly denied, 0 newly allowed.");
  await confirm(page, "Cancel");
  assert.deepEqual(await stored(service), STORED);
  await page.click("button", "Apply…");
  await confirm(page, "Apply");
  await page.says("status", /Applied\. The new rules are active\. Rule per-user: limits from .*10.* to .*5.*See what it does/);
  await page.shows("No changes.");
  assert.equal((await stored(service)).rules[0].bands[0].capacity, 5);
  assert.equal((await service.check({ ...ANN, user: "bob" }))[0].limit, 5);

  // Somebody else is faster.
  await change(field, "capacity: 5", "capacity: 6");
  await put(service, { rules: STORED.rules.slice(0, 2) });
  page.allow(/status of 412/);
  await page.click("button", "Apply…");
  await confirm(page, "Apply");
  await page.find("heading", "This rule set was changed elsewhere");
  await until("the conflict has the focus", async () => (await page.focused()).role === "alert");
  assert.deepEqual(await stored(service), { rules: STORED.rules.slice(0, 2) });
  await page.click("button", "See the difference");
  const difference = await page.find("region", "From their text to yours");
  await difference.shows(/capacity: 10.*capacity: 6/);
  // It stays as it is when the page hears of other rules, of which the same conflict follows.
  const readings = () => page.requests.filter((url) => url.endsWith("/v1/rule_sets/api/text")).length;
  const before = readings();
  await put(service, { rules: STORED.rules.slice(0, 1) }, "other");
  await until("the text is read again", () => readings() > before);
  await page.evaluate(() => fetch("/v1/rule_sets/api/text").then((response) => response.text()));
  assert.match(await difference.text(), /capacity: 10.*capacity: 6/);
  assert.equal(await page.has("region", "From their text to yours"), true);
  assert.match(await field.value(), /capacity: 6/);
  await page.click("button", "Overwrite theirs with mine");
  await page.says("status", "Applied.");
  assert.equal((await stored(service)).rules[0].bands[0].capacity, 6);
  await page.gone("heading", "This rule set was changed elsewhere");

  // Again, and this time theirs stays.
  await change(field, "capacity: 6", "capacity: 7");
  await put(service);
  await page.click("button", "Apply…");
  await confirm(page, "Apply");
  await page.click("button", "Discard mine");
  await until("their text is shown", async () => (await field.value()).includes("capacity: 10"));
  await page.shows("No changes.");
  assert.deepEqual(await stored(service), STORED);
});

browserTest("a draft that is outdated on return is a conflict", { stored: true }, async (page, service) => {
  await put(service);
  const field = await edit(page, service);
  await change(field, "capacity: 10", "capacity: 8");
  await page.click("link", "← All rules");
  await page.shows("unsaved edits");
  await put(service, { rules: STORED.rules.slice(0, 1) });
  await page.click("link", "Edit of api");
  await page.find("heading", "This rule set was changed elsewhere");
  assert.match(await (await page.find("textbox", "Rules of api in YAML")).value(), /capacity: 8/);
  await service.call("DELETE", "/v1/rule_sets/api");
  page.allow(/status of 404/);
  await page.click("link", "← All rules");
  await page.shows("There are no rules");
  await page.evaluate(() => (location.hash = "#/rules?view=edit&set=api"));
  await page.find("heading", "This rule set was deleted elsewhere");
  await page.click("button", "Discard mine");
  await page.shows("There are no rules");
});

browserTest("shows why a text was not applied, and keeps it", { stored: true }, async (page, service) => {
  await put(service);
  const field = await edit(page, service);
  await change(field, "capacity: 10", "capacity: 8");
  const stop = await page.fail("PUT", "/v1/rule_sets/api", 503, "Redis is away");
  await page.click("button", "Apply…");
  await confirm(page, "Apply");
  await page.says("alert", "503 Redis is away");
  assert.match(await field.value(), /capacity: 8/);
  stop();
  await page.click("button", "Apply…");
  await confirm(page, "Apply");
  await page.says("status", "Applied.");
  assert.equal((await stored(service)).rules[0].bands[0].capacity, 8);

  const stopCheck = await page.fail("POST", "/v1/validate", 503, "too busy");
  await page.click("button", "Try it");
  await page.says("status", /^No request has been recorded yet/);
  await page.fail("POST", "/v1/simulate", 503, "no room to simulate");
  await change(field, "capacity: 8", "capacity: 9");
  await page.says("status", "Not checked. too busy");
  await page.click("button", "Try it");
  await page.says("alert", "503 no room to simulate");
  stopCheck();
  await change(field, "capacity: 9", "capacity: 9x");
  await page.says("status", "1 fault");
});

browserTest("a text is tried on a log file", { stored: true, record: false }, async (page, service) => {
  await put(service);
  const field = await edit(page, service);
  await page.shows("Requests are not recorded. Set admin: { record: true } in the config and restart, or try a log file.");
  await page.click("button", "A log file");
  await page.click("button", "Try it");
  await page.says("status", "Choose a log file first.");
  await change(field, "capacity: 10", "capacity: 2");
  const lines = Array.from({ length: 6 }, (_, index) => JSON.stringify({ t: index * 1000, ...ANN, user: "<img src=x onerror=alert(1)>" }));
  const file = await page.find("button", /^Log file/);
  await file.choose(service.write("log.ndjson", [...lines, "no <b>event", ""].join("\n")));
  await page.click("button", "Try it");
  await page.shows("4 newly denied 0 newly allowed of 6 requests");
  await page.shows("1 line skipped: unknown format.");
  await (await page.find("table", "Identities with the most changes")).shows("user=<img src=x onerror=alert(1)> api/per-user 4 0");
  const combined = (user) => `192.0.2.1 - ${user} [17/Nov/2025:10:00:00 +0000] "GET /api/x HTTP/1.1" 200 5 "-" "a \\"b\\""\n`;
  await file.choose(service.write("access.log", combined("ann").repeat(5)));
  await page.click("button", "Try it");
  await page.shows("3 newly denied 0 newly allowed of 5 requests");
  await field.fill("rules:\n  - { id: q, scope: global, algorithm: leaky_bucket, shape: true, bands: [{ capacity: 10, window: 10s }] }\n");
  await file.choose(service.write("log.ndjson", lines.join("\n")));
  await page.click("button", "Try it");
  await (await page.find("table", "Totals before and after")).shows("Delayed 0 5 (83%)");
  await file.choose(service.write("other.log", "what is this\n"));
  await page.click("button", "Try it");
  await page.says("status", "No line of the file has a known format.");
});

browserTest("the switches of a rule change it", { stored: true }, async (page, service) => {
  await put(service);
  await open(page, service, "#/rules", "Rules");
  await page.click("button", "Switches of api/per-user");
  await page.click("button", "Switch to shadow…");
  await (await page.find("dialog", "Switch api/per-user to shadow?")).shows("count and report, but deny nothing");
  await confirm(page, "Switch to shadow");
  await page.shows("Rule per-user: mode from enforce to shadow: this rule no longer denies, it only reports.");
  assert.equal((await stored(service)).rules[0].mode, "shadow");
  await page.click("button", "Switches of api/per-user");
  await page.click("button", "Enforce…");
  await confirm(page, "Enforce");
  await page.shows("mode from shadow to enforce: this rule denies from now on.");
  await until("it is enforced", async () => (await stored(service)).rules[0].mode === "enforce");

  await page.gone("button", "Enforce…");
  await page.click("button", "Switches of api/per-user");
  const share = await page.find("spinbutton", "Rollout, % of identities");
  await share.fill("12.5");
  await page.click("button", "Change…");
  await confirm(page, "Change");
  await page.shows("rollout 12.5%");
  assert.equal((await stored(service)).rules[0].rollout, "12.5%");
  await page.click("button", "Switches of api/per-user");
  await (await page.find("spinbutton", "Rollout, % of identities")).fill("101");
  await page.click("button", "Change…");
  assert.equal(await page.has("dialog"), false);

  await page.click("button", "Disable…");
  await confirm(page, "Disable");
  await page.find("button", "Enable… api/per-user");
  assert.equal((await stored(service)).rules[0].enabled, false);
  await page.click("button", "Enable… api/per-user");
  await confirm(page, "Enable");
  await page.shows("api/per-user is enabled.");
  await page.find("button", "Switches of api/per-user");
});

browserTest("a switch that fails says why", { stored: true }, async (page, service) => {
  await put(service);
  await open(page, service, "#/rules", "Rules");
  await page.fail("POST", /\/disable$/, 503, "Redis is away");
  await page.click("button", "Switches of api/per-user");
  await page.click("button", "Disable…");
  await confirm(page, "Disable");
  await page.says("alert", "503 Redis is away");
  const stop = await page.fail("PUT", "/v1/rule_sets/api/rules/per-user", 412, "changed");
  await page.click("button", "Switch to shadow…");
  await confirm(page, "Switch to shadow");
  await page.says("alert", "412 Not applied: the rule was changed at the same time.");
  stop();
  await page.fail("POST", /\/enable$/, 503, "Redis is still away");
  await page.click("button", "Enable… api/old");
  await confirm(page, "Enable");
  await page.says("alert", "Redis is still away");
  assert.deepEqual(await stored(service), STORED);
});

browserTest("the history shows changes, and restores a text", { stored: true }, async (page, service) => {
  await put(service);
  await put(service, { rules: STORED.rules.slice(0, 1) });
  await open(page, service, "#/rules", "Rules");
  await page.click("link", "History of api");
  await page.find("heading", "History of api");
  // The newest change is open, and what it did to the rules that it changed.
  await (await page.find("region", "Changed lines")).shows("- id: login");
  await (await page.find("table", "What the change of api did")).shows(/Rule 10 min before .* after login 0 requests, 0 denied 0 requests, 0 denied old 0 /);
  await page.click("button", "See the text");
  await (await page.find("region", "Text after the change")).shows("id: login");
  await page.shows("loopback");
  await page.click("button", "Open in the editor");
  await page.find("heading", "Rule set api");
  await page.shows(/\d+ lines added\./);
  assert.equal((await stored(service)).rules.length, 1);
  await page.click("button", "Apply…");
  await confirm(page, "Apply");
  await page.says("status", "Applied.");
  assert.deepEqual((await stored(service)).rules.map(({ id }) => id), ["per-user", "login", "old"]);

  await page.fail("GET", "/v1/rule_sets/api/history", 503, "the history is away");
  await page.click("link", "History");
  await page.says("alert", "503 the history is away");
});

browserTest("a new set is created, but not over another", { stored: true }, async (page, service) => {
  await open(page, service, "#/rules", "Rules");
  await page.shows("There are no rules");
  await page.click("link", "New rule set");
  const name = await page.find("textbox", /^Name of the rule set/);
  assert.equal(await (await page.find("button", "Apply…")).call((button) => button.disabled), true);
  await name.fill("mail <b>/ä?#");
  await page.says("status", "No faults");
  await page.click("button", "Apply…");
  await confirm(page, "Apply");
  await page.shows("The rule set mail <b>/ä?# is active.");
  await page.find("heading", "mail <b>/ä?#");
  assert.equal((await stored(service, encodeURIComponent("mail <b>/ä?#"))).rules[0].id, "per-user");

  page.allow(/status of 412/);
  await page.click("link", "New rule set");
  await (await page.find("textbox", /^Name of the rule set/)).fill("mail <b>/ä?#");
  await page.click("button", "Apply…");
  await confirm(page, "Apply");
  await page.find("heading", "This rule set was changed elsewhere");
  await page.click("button", "Discard mine");
  await page.find("heading", "Rule set mail <b>/ä?#");
  assert.match(await (await page.find("textbox", "Rules of mail <b>/ä?# in YAML")).value(), /per-user/);
});

browserTest("each role is offered what it may do", { stored: true, tokens: true }, async (page, service) => {
  await put(service);
  page.allow(/status of 401/);
  await page.goto(service.url("#/rules"));
  const offered = async (role) => {
    await logIn(page, role);
    await page.find("button", "YAML of api/old");
    const names = [...(await page.all("button")), ...(await page.all("link"))].map(({ name }) => name);
    return names.filter((name) => /Switches of api\/login|Enable|Edit|Text|New|History/.test(name)).sort();
  };
  assert.deepEqual(await offered("viewer"), ["History of api", "Text of api"]);
  await page.click("link", "Text of api");
  await page.find("textbox", "Rules of api in YAML");
  await page.find("button", "Try it");
  assert.equal(await page.has("button", "Apply…"), false);
  await page.click("link", "← All rules");
  await page.click("button", "Log out");
  assert.deepEqual(await offered("operator"), ["Enable… api/old", "History of api", "Switches of api/login", "Text of api"]);
  await page.click("button", "Switches of api/login");
  await page.find("button", "Disable…");
  assert.equal(await page.has("button", /Enforce|Switch to shadow|Change…/), false);
  await page.click("button", "Disable…");
  await confirm(page, "Disable");
  await until("it is disabled", async () => (await stored(service)).rules[1].enabled === false);
  await page.click("button", "Log out");
  assert.deepEqual(await offered("admin"), ["Edit of api", "Edit of api/login", "Edit of api/old", "Edit of api/per-user", "Enable… api/login",
    "Enable… api/old", "History of api", "New rule set"]);
  await page.find("button", "Delete… the rule set api");
});

/** Returns sets of fifty rules each. */
function manyRules(count) {
  const rule = (_, number) => (number % 50 === 0 ? `\n  set${number / 50}:\n    rules:\n` : "")
    + `      - { id: r${number}, match: { path: ["/p${number}/**"] }, scope: per_user, bands: [ ${number + 1}/m ] }\n`;
  return Array.from({ length: count }, rule).join("");
}

browserTest("200 rules are searched, filtered and folded, and stay a page", { rules: manyRules(200) }, async (page, service) => {
  for (const [width, phone] of [[390, true], [1280, false], [2560, false]]) {
    await page.view({ width, phone });
    await open(page, service, "#/rules", "Rules");
    await page.shows("200 rules in 4 rule sets.");
    const height = await page.evaluate(() => document.documentElement.scrollHeight);
    assert.ok(height < 6000, `${height} at ${width}`);
  }
  await page.view({ width: 1280 });
  await page.shows("Rules 1 to 20 of 50");
  await page.click("button", "Next of set0");
  await page.find("heading", "r20");
  await page.click("button", "Show rules of set3");
  await page.find("heading", "r150");
  await page.click("button", "Hide rules of set3");
  await page.gone("heading", "r150");
  const search = await page.find("searchbox", "Search");
  await search.fill("/p177/");
  await page.find("heading", "r177");
  await page.shows("1 of 200 rules.");
  await search.fill("");
  await (await page.find("combobox", "Rule set")).call((select) => {
    select.value = "set2";
    select.dispatchEvent(new Event("change"));
  });
  await page.shows("50 of 200 rules.");
  await service.check({ rule_set: "set2", user: "ann", path: "/p100/x" }, 3);
  await (await page.find("combobox", "Pressure")).call((select) => {
    select.value = "high";
    select.dispatchEvent(new Event("change"));
  });
  await page.shows("0 of 200 rules.");
  await page.click("button", "Show all rules");
  await page.shows("200 rules in 4 rule sets.");
});

browserTest("the list follows a change that is made elsewhere", { stored: true }, async (page, service) => {
  await put(service);
  await open(page, service, "#/rules", "Rules");
  await page.find("heading", "Each user on the API");
  await put(service, { rules: [{ id: "new-one", scope: "per_ip", bands: ["7/m"] }] });
  await page.find("heading", "new-one");
  await page.gone("heading", "Each user on the API");
  // So does an editor without edits.
  const field = await edit(page, service);
  await put(service, { rules: [{ id: "newer", scope: "per_ip", bands: ["8/m"] }] });
  await until("the new text is shown", async () => (await field.value()).includes("newer"));
  await page.shows("The rules were changed elsewhere. This is their new text.");
  await change(field, "newer", "newest");
  await put(service, { rules: [{ id: "other", scope: "per_ip", bands: ["8/m"] }] });
  await page.find("heading", "This rule set was changed elsewhere");
  assert.match(await field.value(), /newest/);
});

browserTest("a trial starts from what was used before the recording", { stored: true }, async (page, service) => {
  await put(service);
  await service.check(ANN, 10);
  // The recording ends with the process, and the counters do not.
  await service.stop();
  await service.start();
  const denied = (await service.check(ANN, 6)).filter(({ allowed }) => !allowed).length;
  assert.equal(denied, 6);
  const field = await edit(page, service);
  await change(field, "capacity: 10", "capacity: 20");
  await page.click("button", "Try it");
  const totals = await page.find("table", "Totals before and after");
  await totals.shows("Requests 6 6 6");
  // A larger bucket is used up to the same share, as when the rule changes.
  await totals.shows("Denied 6 (100%) 6 (100%) 6 (100%)");
  await page.shows("6 requests of 1 instance, from");
});

browserTest("the last change of a rule is shown with what it did", { stored: true }, async (page, service) => {
  await put(service);
  await service.check(ANN, 4);
  await put(service, { rules: [{ ...STORED.rules[0], bands: ["2/h"] }, ...STORED.rules.slice(1)] });
  await until("it is denied", async () => (await service.check(ANN))[0].allowed === false);
  await open(page, service, "#/rules", "Rules");
  await page.click("button", "Last change of api/per-user");
  await (await page.find("region", "Last change of api/per-user")).shows(/- .*10.*\+ .*2/s);
  const table = await page.find("table", "What the change of api did");
  await table.shows(/Rule 10 min before .* after per-user \d requests?, 0 denied \d/);
  await page.click("button", "Last change of api/login");
  await page.shows("the rule was added");
});

browserTest("the form and the text edit one document", { stored: true }, async (page, service) => {
  await put(service, { lists: { office: ["192.0.2.0/24"] }, rules: [
    { id: "plain", match: { path: ["/a"] }, scope: "per_user", bands: ["10/s", { capacity: 50, window: "1h" }],
      overrides: [{ identity: "vip", bands: [{ id: "b0", capacity: 99, window: "1s" }] }] },
    { id: "last", scope: "global", bands: ["5/s"] },
  ] });
  const field = await edit(page, service);
  await field.fill(`# Kept\n${await field.value()}`);
  await page.find("textbox", "Paths One a line. * is any text within a segment, ** any number of segments.");
  await page.shows("Only in the text: overrides.");
  // The form is drawn again after changes of the text, but not around the focus.
  const focus = (role, name, index) => until(`the ${role} ${name} has the focus`, async () => {
    const found = (await page.all(role, name))[index];
    return found && (await found.call((element) => (element.focus(), document.activeElement === element))) && found;
  });
  const fill = async (name, value, index = 0) => (await focus("textbox", name, index)).fill(value);
  await fill(/^Paths/, "/a\n/b/**");
  await fill("per", "5s");
  await fill("Limit", "60", 1);
  const select = async (name, value) => (await focus("combobox", name, 0)).call((element, chosen) => {
    element.value = chosen;
    element.dispatchEvent(new Event("change"));
  }, value);
  await select("State", "shadow");
  await select("Counted for", "per_api_key");
  await fill(/^Units of a request/, "llm:total_tokens");
  await select("Rule", "last");
  await select("What it does", "deny");
  await fill(/^Status of the answer/, "451");
  await select("Only for", "ip:office");
  await page.says("status", "No faults");
  const text = await field.value();
  assert.match(text, /^# Kept/);
  assert.match(text, /vip/);
  await page.click("button", "Apply…");
  const dialog = await page.find("dialog", "Apply to api?");
  await (await page.find("textbox", /^Reason/, dialog)).fill("the office is closed");
  await confirm(page, "Apply");
  await page.says("status", /Applied\./);
  const [plain, last] = (await stored(service)).rules;
  assert.deepEqual(plain.match.path, ["/a", "/b/**"]);
  assert.deepEqual([plain.mode, plain.scope, plain.cost, plain.overrides.length], ["shadow", "per_api_key", "llm:total_tokens", 1]);
  assert.deepEqual(last, { id: "last", action: "deny", status: 451, match: { ip: { in: "office" } } });
  const sets = (await service.call("GET", "/v1/rule_sets")).rule_sets;
  const [first, second] = sets[0].rules.find(({ id }) => id === "plain").bands;
  assert.deepEqual([first.capacity, first.window_ms, second.capacity, second.window_ms], [10, 5000, 60, 3_600_000]);

  // Rules and named lists are added and removed.
  await page.click("DisclosureTriangle", /^Named lists/);
  await page.click("button", "Add a rule");
  assert.match(await field.value(), /- id: new-rule\n\s+scope: per_user\n\s+bands: \[100\/m\]/);
  await page.says("status", "No faults");
  await page.click("button", "Remove the rule new-rule");
  await until("the rule is gone", async () => !(await field.value()).includes("new-rule"));
  await fill("Name of the new list", "partners");
  await page.click("button", "Add a list");
  await fill(/^List partners/, "203.0.113.7\n203.0.113.8");
  assert.match(await field.value(), /partners: \["203.0.113.7", "203.0.113.8"\]/);
  await page.click("button", "Remove the list partners");
  await until("the list is gone", async () => !(await field.value()).includes("partners"));
  await field.fill("rules: &x\n  - id: q");
  await page.shows("The form cannot read this text (line 1).");
});

browserTest("the form changes the text as it is, not as it was drawn", { stored: true }, async (page, service) => {
  await put(service);
  const field = await edit(page, service);
  const rule = (id, bands) => `  - id: ${id}\n    scope: global\n    bands: ${bands}\n`;
  const [one, two, three] = [rule("one", "[1/s]"), rule("two", "[2/s, 20/m]"), rule("three", "[3/s]")];
  await field.fill(`rules:\n${one}${two}${three}`);
  await page.find("button", "Remove the rule one");
  // Both in one task, so the form is not drawn again in between.
  const changeAnd = (text, use) => field.call((input, value, body) => {
    input.value = value;
    input.dispatchEvent(new Event("input"));
    new Function(`(${body})()`)();
  }, text, String(use));
  await changeAnd(`# A line above\nrules:\n${one}${two}${three}`, () => {
    [...document.querySelectorAll("button")].find(({ textContent }) => textContent === "Remove the rule one").click();
  });
  assert.equal(await field.value(), `# A line above\nrules:\n${two}${three}`);
  // Limits are told apart by their places.
  const type = () => {
    const input = document.querySelector("[name=form-amount-0]");
    input.focus();
    input.value = "9";
    input.dispatchEvent(new Event("input"));
  };
  await page.find("button", "Remove the rule two");
  await changeAnd(`rules:\n${rule("two", "[20/m, 2/s]")}${three}`, type);
  assert.equal(await field.value(), `rules:\n${rule("two", "[20/m, 2/s]")}${three}`);
  assert.equal(await page.evaluate(() => document.querySelector("[name=form-amount-0]").value), "20");
  // What is as it was can be changed, key by key.
  await page.evaluate(type);
  await page.evaluate(type);
  assert.equal(await field.value(), `rules:\n${rule("two", "[9/m, 2/s]")}${three}`);
  // A rule that is gone is not changed, nor the one that the form shows instead.
  await changeAnd(`rules:\n${three}`, type);
  assert.equal(await field.value(), `rules:\n${three}`);
  assert.notEqual((await page.focused()).role, "textbox");
  await changeAnd("rules: &x\n", type);
  await page.shows("The form cannot read this text (line 1).");
});

browserTest("an answer that is older than what was applied does not take its place", { stored: true }, async (page, service) => {
  await put(service);
  const field = await edit(page, service);
  // Holds the first text that is read from here on.
  await page.evaluate(() => {
    const { fetch } = window;
    window.fetch = async (path, options) => {
      const response = await fetch(path, options);
      if (window.late || options.method !== "GET" || !String(path).endsWith("/text")) return response;
      const body = response.json();
      window.late = new Promise((done) => (window.release = done)).then(() => body);
      response.json = () => window.late;
      return response;
    };
  });
  await put(service, STORED, "other");
  await page.waitFor("a text is read", () => Boolean(window.late));
  await change(field, "capacity: 10", "capacity: 4");
  await page.says("status", "No faults");
  await page.click("button", "Apply…");
  await confirm(page, "Apply");
  await page.says("status", "Applied.");
  await page.shows("No changes.");
  await page.evaluate(async () => {
    window.release();
    await window.late;
    await new Promise((done) => setTimeout(done));
  });
  assert.match(await field.value(), /capacity: 4/);
});

browserTest("a rule set is deleted with a reason", { stored: true }, async (page, service) => {
  await put(service);
  await put(service, STORED, "other");
  await open(page, service, "#/rules", "Rules");
  await page.click("button", "Delete… the rule set other");
  const dialog = await page.find("dialog", "Delete other?");
  await dialog.shows("2 active rules of it will no longer limit anything, on all instances.");
  await (await page.find("textbox", /^Reason/, dialog)).fill("moved");
  await confirm(page, "Delete the rule set");
  await page.shows("The rule set other is deleted.");
  await page.gone("heading", "other");
  await page.find("heading", "api");
  assert.deepEqual((await service.call("GET", "/v1/rule_sets")).rule_sets.map(({ name }) => name), ["api"]);
  page.allow(/status of 404/);
  await page.evaluate(() => (location.hash = "#/rules?view=edit&set=other"));
  await page.says("status", "There is no rule set other. Applying a text creates it.");
});

browserTest("the rules have no findings at any width, in both themes", { stored: true }, async (page, service) => {
  await put(service, { lists: { office: ["192.0.2.0/24"] }, rules: STORED.rules });
  await service.check(ANN, 12);
  for (const hash of ["#/rules", "#/rules?view=edit&set=api", "#/rules?view=history&set=api"]) {
    for (const scheme of ["light", "dark"]) {
      await page.media({ scheme });
      for (const width of [390, 800, 1001, 1400, 2560]) {
        await page.view({ width });
        await open(page, service, hash, /Rules|Rule set api|History of api/);
        await page.find("heading", /^(api|Try it|Changes, newest first)$/);
        assert.deepEqual(await page.axe(), [], `${hash} ${scheme} ${width}`);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(overflow <= 0, `${hash} is ${overflow} px too wide at ${width}`);
      }
    }
  }
});
