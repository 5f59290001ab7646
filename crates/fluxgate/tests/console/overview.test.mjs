// The overview and the instances.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

import { until } from "./element.mjs";
import { browserTest, open } from "./harness.mjs";
import { liveEvent, startService } from "./service.mjs";

const ANN = { user: "ann", ip: "203.0.113.9", method: "GET", path: "/api/items" };

/** An event of a busy second; the rules differ in how much of their limits is used. */
function busy(fields = {}) {
  return liveEvent({
    decisions: { allowed: 900, denied: 250, never: 50, shadow_denied: 34 },
    rules: [
      { rule_set: "api", rule: "calm", outcomes: { allowed: 300 }, denied: 0, used: 0.125 },
      { rule_set: "api", rule: "hot", outcomes: { allowed: 600, denied: 300 }, denied: 300, used: 1 },
    ],
    latency_us: { p50: 1.25, p99: 8400 }, waiting: 3, slots: 17, ...fields,
  });
}

browserTest("shows the decisions of the service, and who is denied", {}, async (page, service) => {
  await service.check(ANN, 13);
  await service.check({ ...ANN, user: "bob" }, 2);
  await open(page, service, "#/overview", "Overview");
  await page.shows("Live");
  // What was decided before the page listens is not shown, and each number is that of a second, so
  // there are decisions until it is seen.
  let more = 0;
  const decide = async () => {
    await service.check(ANN);
    more += 1;
  };
  await until("there are decisions", async () => {
    await decide();
    return page.has("region", "Decisions");
  });
  const decisions = await page.find("region", "Decisions");
  await until("the decisions of a second are shown", async () => {
    await decide();
    return /[1-9]\d* decisions\/s .*p50 \d.* p99 \d/.test(await decisions.text());
  });
  const hot = await page.find("meter", "Used share of api / per-user");
  assert.equal(await hot.attribute("aria-valuetext"), "100% used");
  await page.shows("user=ann");
  // The page asks every few seconds.
  await page.shows(`${3 + more} denials in the last minute, counted by rule.`);

  await page.click("button", "Requests");
  assert.equal((await page.find("button", "Requests")).properties.pressed, "true");
  await page.shows("user=bob");
  await page.shows("requests in the last minute, counted by rule.");

  await page.click("link", "user=ann");
  await page.find("heading", "user = ann");
  assert.equal(await (await page.find("textbox", "User")).value(), "ann");
});

browserTest("shows each number of an event", { feed: true }, async (page, service) => {
  await open(page, service, "#/overview", "Overview");
  await until("the page listens", () => service.feed.isOpen);
  service.feed.send(busy());
  const decisions = await page.find("region", "Decisions");
  await decisions.shows("1,234 decisions/s");
  await decisions.shows("24% denied");
  await decisions.shows("p50 1.3 µs p99 8.4 ms");
  await decisions.shows("Allowed 900/s Shadow-denied 34/s Denied 300/s now");
  await page.find("image", /^Decisions per second over the last .*Now: 900 allowed, 34 shadow-denied, 300 denied\. Highest: 1\.2k/);
  const strip = await page.find("region", "Service");
  await strip.shows("Store memory 1,234 keys Breaker closed store in use Waiting 3 requests Slots held 17");
  await strip.shows("Instances 1 only this one Rules a1b2c3d4 from a file Uptime 1 h 2 min version");
  assert.doesNotMatch(await strip.text(), /lease/);
  const links = await page.all("link", /^api \/ /);
  assert.deepEqual(links.map(({ name }) => name), ["api / hot", "api / calm"]);
  await page.shows("600/s allowed, 300/s denied");
  assert.equal(await (await page.find("meter", "Used share of api / calm")).attribute("aria-valuenow"), "0.125");

  service.feed.send(busy({
    at_ms: Date.now() + 1000,
    decisions: { failed_open: 20, fallback: 80 }, denied: 30,
    store: { kind: "redis", breaker: "open", keys: null }, leases: { allowed: 20, denied: 1, units: 555 },
  }));
  await decisions.shows("100 decisions/s 30% denied");
  await strip.shows("Store redis Breaker open 100 decisions/s without the store");
  await strip.shows("Units on lease 555 21/s decided");
});

browserTest("tells the values below the pointer, and joins none over a gap", { feed: true }, async (page, service) => {
  await open(page, service, "#/overview", "Overview");
  await until("the page listens", () => service.feed.isOpen);
  const end = Date.now();
  for (const [before, allowed] of [[60_000, 100], [59_000, 200], [1000, 300], [0, 400]]) {
    service.feed.send(busy({ at_ms: end - before, decisions: { allowed } }));
  }
  const decisions = await page.find("region", "Decisions");
  await decisions.shows("Allowed 400/s Shadow-denied 0/s Denied 0/s now");
  const d = await page.evaluate(() => document.querySelector(".chart-line.allowed").getAttribute("d"));
  assert.equal(d.match(/M/g).length, 2, d);

  const chart = await page.find("image", /^Decisions per second/);
  const { left, y } = await chart.middle();
  await page.mouse("mouseMoved", left + 1, y);
  await decisions.shows("Allowed 100/s Shadow-denied 0/s Denied 0/s 1 min ago");
  await page.mouse("mouseMoved", left - 50, y);
  await decisions.shows("Allowed 400/s Shadow-denied 0/s Denied 0/s now");
});

browserTest("says how to make a first decision, and the command works", {}, async (page, service) => {
  await open(page, service, "#/overview", "Overview");
  await page.shows("No decisions yet");
  await page.shows(/"rule_set":"api"/);
  const command = await page.evaluate(() => document.querySelector("code").textContent);
  await page.grant(["clipboardReadWrite", "clipboardSanitizedWrite"], service.origin);
  await page.click("button", "Copy");
  await page.find("button", "Copied");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), command);

  const { stdout } = await promisify(execFile)("sh", ["-c", command.replace("curl ", "curl -s ")]);
  assert.equal(JSON.parse(stdout).allowed, true);
  await page.hides("No decisions yet");
  await (await page.find("region", "Decisions")).shows("decisions/s");
});

browserTest("the demo sends traffic, and stops it", { demo: true }, async (page, service) => {
  await open(page, service, "#/overview", "Overview");
  await page.shows("Send demo traffic with the button above");
  await page.click("button", "Send demo traffic");
  await (await page.find("region", "Decisions")).shows(/[1-9]\d* decisions\/s/);
  await page.shows(/[1-9]\d* requests sent, stops in \d+ s/);
  await page.click("button", "Stop demo traffic");
  await page.find("button", "Send demo traffic");
  await page.hides("stops in");

  await page.fail("POST", "/v1/check", 503, "the store is away");
  await page.click("button", "Send demo traffic");
  await page.shows("The demo traffic stopped: the store is away");
  await page.find("button", "Send demo traffic");
  await page.click("button", "Close the message");
  await page.hides("The demo traffic stopped");
});

browserTest("says that the connection is lost, and connects again", {}, async (page, service) => {
  page.allow(/ERR_(CONNECTION_REFUSED|EMPTY_RESPONSE|INCOMPLETE_CHUNKED_ENCODING|CONNECTION_RESET)/);
  await open(page, service, "#/overview", "Overview");
  await page.shows("Live");
  await service.stop();
  await page.shows("Offline");
  await page.says("alert", /^Connection lost\. .*Reconnecting every second\. Data as of \d\d:\d\d:\d\d/);
  await service.start();
  await page.shows("Live");
  await page.gone("alert");
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

browserTest("shows why the identities cannot be read", {}, async (page, service) => {
  await page.fail("GET", "/v1/top", 503, "the sketch is busy");
  await open(page, service, "#/overview", "Overview");
  await page.says("alert", "503 the sketch is busy");
});

browserTest("does not show identities that the service hides", { config: "keys: { hash_keys: all }" }, async (page, service) => {
  await open(page, service, "#/overview", "Overview");
  await page.shows("Identities are hidden (keys.hash_keys: all).");
});

browserTest("lists the instances that share a store", { stored: true }, async (page, service) => {
  await service.call("PUT", "/v1/rule_sets/api", { rules: [{ id: "r", scope: "per_user", bands: ["5/s"] }] });
  const other = await startService({ rules: null, store: service.store });
  try {
    await open(page, service, "#/instances", "Instances");
    await page.shows("2 instances share the store.");
    const table = await page.find("table", "Instances");
    assert.equal((await page.all("row", undefined, table)).length, 3);
    await page.shows("this instance");
  } finally {
    await other.end();
  }
});

browserTest("marks instances that are late or have different rules", {}, async (page, service) => {
  // As of each call, so that a slow page finds none of them late that is not.
  const instance = ({ seconds = 0, ...fields } = {}) => ({
    id: "one", version: "0.1.0", revision: "aaaaaaaa", started_ms: Date.now() - 90_000, seen_ms: Date.now() - seconds * 1000,
    decisions_per_second: 12.5, denied_per_second: 1, is_self: false, hostname: "host-1", ...fields,
  });
  const stop = await page.answer("GET", "/v1/instances", { body: () => ({ instances: [
    instance({ is_self: true }), instance({ id: "two", hostname: "host-2", revision: "bbbbbbbb" }),
    instance({ id: "three", hostname: "", seconds: 20 }),
  ] }) });
  await open(page, service, "#/instances", "Instances");
  await page.shows("3 instances share the store.");
  const rows = await page.all("row");
  const texts = await Promise.all(rows.slice(1).map((row) => row.text()));
  assert.match(texts[0], /^host-1 this instance one 0\.1\.0 aaaaaaaa 1 min 3\d s .* 12\.5 1$/);
  assert.match(texts[1], /^host-2 two .* bbbbbbbb different rules /);
  assert.match(texts[2], /^three .* late /);
  await page.shows("1 instance has different rules from this one.");
  await page.shows("1 instance has not been seen for 10 seconds");
  stop();
  const stopFailure = await page.answer("GET", "/v1/instances", {
    body: () => ({ instances: [instance({ is_self: true })], failure: "Redis did not answer" }),
  });
  await page.shows("Other instances are unknown: Redis did not answer.");
  stopFailure();
  await page.fail("GET", "/v1/instances", 503, "the store is away");
  await page.reload();
  await page.says("alert", "503 the store is away");
});

browserTest("the first view is complete in a second", {}, async (page, service, context) => {
  await service.check(ANN, 14);
  await page.send("Network.setCacheDisabled", { cacheDisabled: true });
  await page.goto(service.url());
  // The fastest of some loads, because the machine may be busy.
  let shown = Infinity;
  for (let load = 0; load < 4; load++) {
    if (load > 0) await page.reload();
    await page.waitFor("numbers are shown", () => document.querySelector("meter, [role=meter]") && document.body.innerText.includes("Live"));
    shown = Math.min(shown, await page.evaluate(() => {
      const calls = performance.getEntriesByType("resource").filter(({ name }) => /\/v1\/(session|top|instances)/.test(name));
      return Math.max(...calls.map(({ responseEnd }) => responseEnd));
    }));
  }
  const loaded = await page.evaluate(() => performance.getEntriesByType("resource").reduce((sum, { decodedBodySize }) => sum + decodedBodySize, 0));
  context.diagnostic(`the first view has its data after ${shown.toFixed(0)} ms (${(loaded / 1024).toFixed(0)} KiB)`);
  assert.ok(shown < 3000, `${shown} ms`);
});

browserTest("an event takes little time, and an hour of events no more memory", { feed: true }, async (page, service, context) => {
  const rules = Array.from({ length: 20 }, (_, index) => ({
    rule_set: "api", rule: `rule-${index}`, outcomes: { allowed: 10 * index, denied: index }, denied: index, used: index / 20,
  }));
  let clock = Date.now() - 3 * 3600 * 1000;
  const next = () => {
    clock += 1000;
    const wave = Math.round(500 + 400 * Math.sin(clock / 60_000));
    return busy({ at_ms: clock, decisions: { allowed: wave, denied: wave >> 2 }, rules, latency_us: { p50: 2, p99: wave } });
  };
  await page.prepare(timeEvents);
  await open(page, service, "#/overview", "Overview");
  await until("the page listens", () => service.feed.isOpen);

  let sent = 0;
  /** Sends events, and waits until they are handled. */
  const send = async (count) => {
    for (const end = sent + count; sent < end;) {
      const some = Math.min(200, end - sent);
      service.feed.send(...Array.from({ length: some }, next));
      sent += some;
      await page.waitFor("the events are handled", (total) => window.times.length >= total, sent);
    }
  };
  const visit = async (view) => {
    await page.click("link", view, await page.find("navigation", "Main"));
    await page.find("heading", view);
  };

  // Without motion, only what an event changes is drawn.
  await page.media({ motion: "reduce" });
  await send(400);
  const before = await page.metrics();
  const events = 30;
  for (let event = 0; event < events; event++) {
    await send(1);
    await sleep(50); // Several frames, so that each event is drawn on its own.
  }
  const after = await page.metrics();
  const each = (name) => ((after[name] - before[name]) / events) * 1000;
  const scripts = (await page.evaluate(() => window.times)).slice(-events).sort((a, b) => a - b);
  // The scripts are timed by the clock, which counts what else the machine does: the quarter
  // that was disturbed least is typical.
  const parts = [scripts[Math.floor(events / 4)], each("RecalcStyleDuration"), each("LayoutDuration")];
  const redraw = parts.reduce((sum, time) => sum + time);
  context.diagnostic(`an event takes ${redraw.toFixed(1)} ms (script, style, layout: ${parts.map((time) => time.toFixed(1)).join(", ")})`);
  assert.ok(redraw < 24, `${redraw} ms`);

  // An hour, of which the overview draws twenty minutes.
  await visit("Instances");
  await visit("Overview");
  const start = await page.memory();
  await send(1200);
  await visit("Instances");
  await send(2400);
  await visit("Overview");
  await send(10);
  // What is on its way takes some memory until it has arrived; what is kept stays.
  let end, grown;
  await until("nodes, listeners and memory are as before", async () => {
    end = await page.memory();
    grown = (end.heap - start.heap) / 1024;
    return end.nodes <= start.nodes + 50 && end.listeners <= start.listeners + 5 && grown < 256;
  }, { explain: () => JSON.stringify({ start, end }) });
  context.diagnostic(`an hour of events: ${start.nodes} → ${end.nodes} nodes, ${start.listeners} → ${end.listeners} listeners, ${grown.toFixed(0)} KiB`);
});

browserTest("views that are left leave nothing behind", {}, async (page, service, context) => {
  await service.check(ANN, 12);
  await open(page, service, "#/overview", "Overview");
  const round = async () => {
    for (const view of ["Rules", "Identities", "Lab", "Instances", "Overview"]) {
      await page.click("link", view, await page.find("navigation", "Main"));
      await page.find("heading", view);
    }
    // What is on its way when a view is left still arrives.
    await page.waitFor("the overview is complete", () => document.querySelectorAll("[role=meter]").length > 0 && !document.body.innerText.includes("Loading"));
  };
  await round();
  await round();
  const start = await page.memory();
  for (let turn = 0; turn < 4; turn++) await round();
  let end;
  await until("nodes and listeners are as few as before", async () => {
    end = await page.memory();
    return end.nodes < start.nodes * 1.1 + 100 && end.listeners < start.listeners * 1.1 + 20;
  }, { explain: () => JSON.stringify({ start, end }) });
  context.diagnostic(`20 views: ${start.nodes} → ${end.nodes} nodes, ${start.listeners} → ${end.listeners} listeners, ${((end.heap - start.heap) / 1024).toFixed(0)} KiB`);
});

/** Measures from the text of a live event to the end of what handles it, in the page. */
function timeEvents() {
  const parse = JSON.parse;
  window.times = [];
  JSON.parse = (text, ...more) => {
    const start = performance.now();
    // It runs when what called `parse` is done.
    if (text.includes('"latency_us"')) queueMicrotask(() => window.times.push(performance.now() - start));
    return parse(text, ...more);
  };
}
