// What is wrong, on every view; the instances; events and changes; many tabs.

import assert from "node:assert/strict";

import { until } from "./element.mjs";
import { browserTest, logIn, open } from "./harness.mjs";
import { liveEvent, startService } from "./service.mjs";

const ANN = { user: "ann", ip: "203.0.113.9", method: "GET", path: "/api/items" };
const STORED = { rules: [{ id: "per-user", scope: "per_user", algorithm: "fixed_window", bands: ["10/h"] }] };
const VIEWS = ["Overview", "Rules", "Identities", "Events", "Lab", "Instances"];
const LOST = /ERR_(CONNECTION_REFUSED|EMPTY_RESPONSE|INCOMPLETE_CHUNKED_ENCODING|CONNECTION_RESET)/;

/** An instance, as of the call, so that a slow page finds none late that is not. */
const instance = ({ seconds = 0, ...fields } = {}) => ({
  id: "one", version: "0.1.0", revision: "aaaaaaaa", started_ms: Date.now() - 90_000, seen_ms: Date.now() - seconds * 1000,
  decisions_per_second: 12.5, denied_per_second: 1, is_self: false, hostname: "host-1", address: "192.0.2.1:8081",
  waiting: 2, slots: 1, leased_units: 40, store: { kind: "redis", breaker: "closed" }, webhooks: [], ...fields,
});

browserTest("says that the connection is lost, and connects again", {}, async (page, service) => {
  page.allow(LOST);
  await open(page, service, "#/overview", "Overview");
  await page.shows("Live");
  // Views are loaded ahead, to open without the service.
  const files = VIEWS.map((view) => service.url(`${view.toLowerCase()}.js`));
  await page.waitFor("the views are loaded", async (urls) => {
    const loaded = performance.getEntriesByType("resource").map(({ name }) => name);
    // With their modules, which come after them.
    return urls.every((url) => loaded.includes(url)) && Promise.all(urls.map((url) => import(url)));
  }, files);
  await service.stop();
  await page.shows("Offline");
  await page.says("alert", /^Connection lost\. .*Reconnecting every second\. What is shown is of \d\d:\d\d:\d\d \S+/);
  // Views open meanwhile.
  for (const view of ["Instances", "Events", "Overview"]) {
    await page.click("link", view, await page.find("navigation", "Main"));
    await page.find("heading", view);
  }
  await service.start();
  await page.shows("Live");
  await page.gone("alert");
  await service.check(ANN, 12);
  await (await page.find("region", "Who is limited now")).shows("user=ann");
});

browserTest("starts when the service is there", {}, async (page, service) => {
  page.allow(/ERR_CONNECTION_REFUSED/);
  const stop = await page.answer("GET", "/v1/session", "lost");
  await page.goto(service.url());
  await page.shows("The console could not start");
  await page.shows("The service does not answer.");
  stop();
  await page.click("button", "Try now");
  await page.find("heading", "Overview");
});

browserTest("says in plain words on every view that Redis is down, and that it is back", { stored: true, deadline: "200ms" }, async (page, service) => {
  page.allow(/status of (503|500|502)/);
  await service.call("PUT", "/v1/rule_sets/api", STORED);
  await open(page, service, "#/overview", "Overview");
  await page.says("list", "Redis answers");
  await service.stopRedis();
  await page.says("alert", /^Redis does not answer\. Until it is back, limits are not shared/);
  for (const view of VIEWS) {
    await page.click("link", view, await page.find("navigation", "Main"));
    await page.find("heading", view);
    await page.says("alert", /^Redis does not answer\./);
  }
  await service.startRedis();
  await page.gone("alert", /Redis/);
  await page.says("list", "Redis answers");
});

browserTest("names a silent instance, an upstream that is out and a webhook that fails", {}, async (page, service) => {
  const session = await service.call("GET", "/v1/session");
  await page.answer("GET", "/v1/session", { body: { ...session, version: "0.1.0", routes: true } });
  let isWell = false;
  await page.answer("GET", "/v1/instances", { body: () => ({ failure: null, instances: [
    instance({ is_self: true, webhooks: [{ server: "https://hooks.example.com", queued: isWell ? 0 : 3, is_failing: !isWell }] }),
    instance({ id: "two", hostname: "host-2", address: "192.0.2.2:8081", seconds: isWell ? 0 : 20 }),
  ] }) });
  await page.answer("GET", "/v1/routes", { body: () => ({ routes: [{ id: "shop", upstreams: [
    { url: "http://10.0.0.1:3000", health: "up", reason: null, requests: 5, failures: 0 },
    { url: "http://10.0.0.2:3000", health: isWell ? "up" : "out", reason: isWell ? null : "connection refused", requests: 5, failures: 5 },
  ] }] }) });
  await open(page, service, "#/lab", "Lab");
  await page.says("status", /^No sign of life from host-2 \(192\.0\.2\.2:8081\)\. It has stopped, or cannot reach Redis/);
  await page.says("status", "1 upstream is out: http://10.0.0.2:3000 of route shop (connection refused).");
  await page.says("status", "The webhook https://hooks.example.com does not accept events. 3 events wait for it.");
  await page.says("list", "1 of 2 instances silent 1 of 2 upstreams out Webhook fails");
  isWell = true;
  await page.gone("status", /sign of life|upstream|webhook/);
  await page.says("list", "2 instances 2 upstreams up Webhooks sent");
});

browserTest("shows times of the service if the clock of the browser is wrong", {}, async (page, service) => {
  await service.check(ANN, 13);
  await page.prepare(() => {
    const Right = Date;
    const ahead = 3_600_000;
    window.Date = class extends Right {
      constructor(...values) {
        super(...(values.length > 0 ? values : [Right.now() + ahead]));
      }
      static now() {
        return Right.now() + ahead;
      }
    };
  });
  await open(page, service, "#/overview", "Overview");
  await page.shows(/The clock of this browser is (1 h|59 min \d+ s) fast; times here are those of the service/);
  await page.find("image", /^Decisions per second .* Highest: [1-9]/);
  await (await page.find("region", "Who is limited now")).shows("10 per hour are used up");
  await page.click("link", "Instances", await page.find("navigation", "Main"));
  const row = await until("this instance is listed", async () => (await page.all("row"))[1]);
  await row.shows(/just now|\d s ago/);
  assert.doesNotMatch(await row.text(), /late| 1 h/);
});

browserTest("follows rules that are changed elsewhere", { stored: true }, async (page, service) => {
  await service.call("PUT", "/v1/rule_sets/api", STORED);
  await open(page, service, "#/overview", "Overview");
  await page.shows("Live");
  await page.shows("What happened");
  await service.call("PUT", "/v1/rule_sets/api", { rules: [{ ...STORED.rules[0], bands: ["20/h"] }] }, { "X-FluxGate-Reason": "more for all" });
  await page.shows(/Rule set api was changed by loopback/);
});

browserTest("lists the instances that share a store, and one that has gone", { stored: true }, async (page, service) => {
  await service.call("PUT", "/v1/rule_sets/api", STORED);
  const other = await startService({ rules: null, store: service.store });
  try {
    await open(page, service, "#/instances", "Instances");
    await page.shows("2 instances share the store.");
    const table = await page.find("table", "Instances");
    assert.equal((await page.all("row", undefined, table)).length, 3);
    await page.shows("this instance");
    assert.equal((await table.text()).match(/127\.0\.0\.1:\d+ · \w+/g).length, 2);
    await other.stop();
    await page.says("status", /^No sign of life from .*\. It has stopped, or cannot reach Redis/);
    await page.shows("late");
    // Without a sign of life for 30 seconds, it is no longer listed.
    await page.shows(/No longer there .*last sign of life at \d\d:\d\d:\d\d \S+\./);
    await page.gone("status", /sign of life/);
  } finally {
    await other.end();
  }
});

browserTest("marks instances that are late or have different rules", {}, async (page, service) => {
  const stop = await page.answer("GET", "/v1/instances", { body: () => ({ failure: null, instances: [
    instance({ is_self: true }), instance({ id: "two", hostname: "host-2", revision: "bbbbbbbb" }),
    instance({ id: "three", hostname: "", address: null, seconds: 20, waiting: null, store: null }),
  ] }) });
  await open(page, service, "#/instances", "Instances");
  await page.shows("3 instances share the store.");
  const rows = await page.all("row");
  const texts = await Promise.all(rows.slice(1).map((row) => row.text()));
  assert.match(texts[0], /^host-1 this instance 192\.0\.2\.1:8081 · one 0\.1\.0 aaaaaaaa 1 min 3\d s .* 2 requests waiting 1 slot held 40 units on lease answers 13\/s 1\/s$/);
  assert.match(texts[1], /^host-2 .* bbbbbbbb different rules /);
  assert.match(texts[2], /^three .* late – waiting 1 slot held 40 units on lease not known 13\/s 1\/s$/);
  await page.shows("1 instance has different rules from this one.");
  await page.shows("1 instance has not been seen for 12 seconds");
  stop();
  const stopFailure = await page.answer("GET", "/v1/instances", {
    body: () => ({ instances: [instance({ is_self: true })], failure: "Redis did not answer" }),
  });
  await page.shows("Other instances are unknown, because Redis does not answer: Redis did not answer.");
  stopFailure();
  const stopProblem = await page.fail("GET", "/v1/instances", 503, "the store is away");
  await page.reload();
  await page.says("alert", "503 the store is away");
  stopProblem();
  await page.shows("this instance");
  await page.gone("alert", /the store is away/);
});

browserTest("lists events as they happen, and who changed what and why", { stored: true, tokens: true }, async (page, service) => {
  page.allow(/status of 401/);
  const headers = { Authorization: "Bearer admin" };
  await service.call("PUT", "/v1/rule_sets/api", { rules: [{ ...STORED.rules[0], notify: ["50%", "100%"] }] }, headers);
  await page.goto(service.url("#/events"));
  await logIn(page, "viewer");
  await page.find("heading", "Events");
  await page.shows("Rule set api was changed by the-admin");
  await service.check({ user: "ann" }, 6);
  await page.shows(/Limit user=ann has used 50% of the limit of 10 of rule api\/per-user/);
  await service.call("POST", "/v1/refund", { rule_set: "api", rule: "per-user", identity: "ann", units: 2 },
    { ...headers, "X-FluxGate-Reason": encodeURIComponent("ticket 7: über die Maßen") });
  await service.call("POST", "/v1/reset", { rule_set: "api", rule: "per-user", identity: "ann" }, headers);

  // What happens to one identity again and again is one entry.
  await service.check({ user: "ann" }, 6);
  await page.shows(/has used 50% of the limit of 10 [^.]*\. 2 times since \d\d:\d\d:\d\d /);
  assert.equal((await page.all("link", "Open the identity")).length, 1);

  await page.click("button", "Limit");
  await page.hides("Rule set api was changed");
  await page.click("button", "All");
  await page.click("button", "Changes by people");
  const list = await page.find("list", "Changes, newest first");
  await list.shows(/the-admin refunded 2 units to user=ann, rule api \/ per-user\. Reason: “ticket 7: über die Maßen”/);
  await list.shows(/the-admin reset user=ann, rule api \/ per-user \(1 counter deleted\)\. No reason was given\./);
  await list.shows(/the-admin created rule set api\./);
  await (await page.find("searchbox", "Search")).fill("ticket");
  await page.shows("1 of 1 entry, newest first.");
  await list.shows("refunded");
  assert.doesNotMatch(await list.text(), /created/);
  await page.reload();
  await page.shows("1 of 1 entry, newest first.");
  await page.click("link", "Open the identity");
  await page.find("heading", "Identities");
});

browserTest("ten tabs share one connection, and all of them are live", {}, async (page, service) => {
  await service.check(ANN, 12);
  const tabs = [page];
  while (tabs.length < 10) tabs.push(await page.tab());
  for (const [index, tab] of tabs.entries()) {
    await tab.goto(service.url(index % 2 ? "#/events" : "#/overview"));
    await tab.find("heading", index % 2 ? "Events" : "Overview");
    await tab.shows("Live");
  }
  // Every tab still gets answers.
  for (const [index, tab] of tabs.entries()) if (index % 2 === 0) await tab.shows("user=ann");
  const streams = tabs.flatMap((tab) => tab.requests.filter((url) => url.endsWith("/v1/live")));
  // One that is late on a busy machine is replaced.
  assert.ok(streams.length < 4, streams.join("\n"));
  for (const tab of tabs.slice(1)) tab.check(service.origin);
  // The one that reads goes away, and another one goes on.
  await page.goto("about:blank");
  await until("another tab reads", () => tabs.slice(1).some((tab) => tab.requests.some((url) => url.endsWith("/v1/live"))));
  await tabs[1].shows("Live");
});

browserTest("ten visits in one tab leave no connection behind", {}, async (page, service) => {
  for (let visit = 0; visit < 10; visit++) {
    await open(page, service, `?visit=${visit}#/overview`, "Overview");
    await page.shows("Live");
  }
  for (let visit = 8; visit > 3; visit--) {
    // By the browser: a call in the page may end with the page.
    const { currentIndex, entries } = await page.send("Page.getNavigationHistory");
    await page.send("Page.navigateToHistoryEntry", { entryId: entries[currentIndex - 1].id });
    await page.waitFor("the visit before is shown", (search) => location.search === search, `?visit=${visit}`);
  }
  await page.find("heading", "Overview");
  await page.shows("Live");
});

browserTest("a page that comes back from the background goes on", { feed: true }, async (page, service) => {
  const hide = (hidden) => page.evaluate((is) => {
    Object.defineProperty(document, "hidden", { get: () => is, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  await open(page, service, "#/overview", "Overview");
  await until("the page listens", () => service.feed.isOpen);
  service.feed.send(liveEvent({ decisions: { allowed: 5 } }));
  await page.shows("5 decisions/s");
  await hide(true);
  await until("the connection is let go", () => !service.feed.isOpen);
  service.feed.send(liveEvent({ decisions: { allowed: 7 } }));
  await hide(false);
  await page.shows("7 decisions/s");
  await page.shows("Live");
});

browserTest("no word of the navigation is broken, at any width", {}, async (page, service) => {
  for (const width of [390, 700, 761, 800, 840, 900, 1001, 1100, 1181, 1400, 2560]) {
    await page.view({ width, height: 900 });
    await open(page, service, "#/overview", "Overview");
    const broken = await page.evaluate(() => [...document.querySelectorAll(".nav a span, .badge, .button, .segmented button, .figure-unit, h1, h2")]
      .filter((element) => element.checkVisibility() && !/\s/.test(element.textContent.trim()))
      .filter((element) => {
        const range = document.createRange();
        range.selectNodeContents(element);
        return new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size > 1;
      }).map((element) => element.textContent));
    assert.deepEqual(broken, [], `${width}`);
    const past = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(past <= 0, `${past} px too wide at ${width}`);
  }
  // A wide screen is used.
  const used = await page.evaluate(() => document.querySelector("main").getBoundingClientRect().width / innerWidth);
  assert.ok(used > 0.9, `${used}`);
});

browserTest("the focus is seen, also on pressed buttons", {}, async (page, service) => {
  await open(page, service, "#/overview", "Overview");
  const outline = () => page.evaluate(() => {
    const { outlineStyle, outlineWidth, outlineColor } = getComputedStyle(document.activeElement);
    return { outlineStyle, outlineWidth, outlineColor };
  });
  const link = (await page.tabTo("link", "Rules"), await outline());
  assert.deepEqual([link.outlineStyle, link.outlineWidth], ["solid", "2px"]);
  await page.tabTo("button", "15 min");
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-pressed")), "true");
  assert.deepEqual(await outline(), link);
});

browserTest("rows of tables are stacked on a phone, with the names of the columns", {}, async (page, service) => {
  await page.view({ width: 390, phone: true });
  await open(page, service, "#/instances", "Instances");
  const row = await until("this instance is listed", async () => (await page.all("row"))[1]);
  await row.shows("this instance");
  const cells = await page.evaluate(() => [...document.querySelectorAll("tbody td")].map((cell) => {
    const { left, right } = cell.getBoundingClientRect();
    return { label: getComputedStyle(cell, "::before").content, isSeen: left >= 0 && right <= innerWidth };
  }));
  assert.ok(cells.length > 5 && cells.every(({ label, isSeen }) => isSeen && label.length > 2), JSON.stringify(cells));
});
