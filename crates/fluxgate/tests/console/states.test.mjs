// What every view says in every state: while it loads, if it fails, while Redis, the service or another
// instance is away, with a token that is taken back, and with a wrong clock. It recovers by itself.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

import { until } from "./element.mjs";
import { browserTest, logIn } from "./harness.mjs";
import { startService } from "./service.mjs";

const ANN = { user: "ann", ip: "203.0.113.9", method: "GET", path: "/api/items" };
const STORED = { rules: [
  { id: "per-user", name: "Each user on the API", match: { path: ["/api/**"] }, scope: "per_user", bands: ["10/h"] },
  { id: "login", match: { path: ["/login"] }, scope: "per_ip", bands: ["5/10m"] },
] };

/** Every view, its heading, and what it shows if all is well. */
const VIEWS = [
  ["#/overview", "Overview", /api \/ per-user.*Rule set api was changed/],
  ["#/rules", "Rules", /Each user on the API.*denied today/],
  ["#/rules?view=edit&set=api", "Rule set api", /No changes\./],
  ["#/rules?view=history&set=api", "History of api", /Changes, newest first/],
  ["#/identities", "Identities", /user=ann.*1 to 1 of 1/],
  ["#/identities?user=ann", "Identities", /10 of 10 requests used.*Denials.*GET \/api\/items.*Recent requests.*denied per-user/],
  ["#/events", "Events", /Rule set api was changed/],
  ["#/events?show=changes", "Events", /changed rule set api/],
  ["#/lab", "Lab", /2× the limit/],
  ["#/instances", "Instances", /this instance/],
];
/** What a view may say only once it knows. */
const CLAIMS = /No identity|no identity|There are no rules|No event|Nothing yet|Nothing is known|Not denied|No recorded|No decisions yet|No change was|No history|No other user|Not known|no upstream/;
const LOST = /ERR_(CONNECTION_REFUSED|EMPTY_RESPONSE|INCOMPLETE_CHUNKED_ENCODING|CONNECTION_RESET)/;
/** All calls but those that the frame needs. */
const CALLS = /^\/v1\/(?!session|live)/;

async function fill(service) {
  await service.call("PUT", "/v1/rule_sets/api", { rules: STORED.rules.slice(0, 1) });
  await service.call("PUT", "/v1/rule_sets/api", STORED);
  await service.check(ANN, 12);
}

/** Shows a view, in the page or by loading it. */
async function show(page, service, [hash, heading], { afresh = false } = {}) {
  if (afresh) await page.goto("about:blank");
  if (afresh || !(await page.evaluate(() => document.querySelector("nav")))) await page.goto(service.url(hash));
  else await page.evaluate((next) => (location.hash = next), hash);
  await page.find("heading", heading);
}

const main = async (page) => (await page.evaluate(() => document.querySelector("main").innerText)).replace(/\s+/g, " ");

/** Waits until a view shows its data, and nothing of a problem. */
const isWell = (page, [hash, , data], more = "") => until(`${hash} is well ${more}`, async () => {
  const text = await main(page);
  return data.test(text) && !/Loading|\b503\b|not up to date/i.test(text)
    && !(await page.evaluate(() => document.querySelector("[role=alert]")));
}, { explain: () => page.describe() });

browserTest("every view says that it loads, and claims nothing before it knows", { stored: true }, async (page, service) => {
  await fill(service);
  for (const view of VIEWS) {
    const stop = await page.answer(null, CALLS, "never");
    await show(page, service, view, { afresh: true });
    await page.shows(/Loading/);
    // The first event is there, and what an answer would change in time.
    await page.shows("Live");
    await sleep(300);
    const text = await main(page);
    assert.doesNotMatch(text, CLAIMS, view[0]);
    assert.match(text, /Loading/, view[0]);
    stop();
  }
});

browserTest("every view says what failed, and comes back by itself", { stored: true }, async (page, service) => {
  page.allow(/status of 503/);
  await fill(service);
  for (const view of VIEWS) {
    const stop = await page.fail(null, CALLS, 503, "the store is away");
    await show(page, service, view, { afresh: true });
    await page.says("alert", "503 the store is away");
    const text = await main(page);
    assert.doesNotMatch(text, CLAIMS, view[0]);
    assert.doesNotMatch(text, /TypeError|undefined|NaN|\[object/, view[0]);
    if (view[0] === "#/overview") assert.doesNotMatch(text, /Loading/);
    stop();
    await isWell(page, view);
  }
});

browserTest("every view says that Redis does not answer, and comes back by itself", { stored: true, deadline: "200ms" }, async (page, service) => {
  page.allow(/status of (500|502|503)/);
  await fill(service);
  for (const view of VIEWS) await show(page, service, view).then(() => isWell(page, view, "before"));
  service.pauseRedis();
  try {
    await page.says("alert", /^Redis does not answer\. Until it is back, limits are not shared/);
    for (const view of VIEWS) {
      await show(page, service, view);
      await page.says("alert", /^Redis does not answer\./);
      await sleep(1500);
      const text = await main(page);
      assert.doesNotMatch(text, /TypeError|undefined|NaN|\[object/, view[0]);
      assert.doesNotMatch(text, /circuit_open/, view[0]);
      // What it cannot know, it does not say.
      assert.doesNotMatch(text, /Nothing is known|Not denied|No identity was denied|There are no rules|No history/, view[0]);
    }
  } finally {
    service.resumeRedis();
  }
  await page.gone("alert", /Redis does not answer/);
  for (const view of [VIEWS.at(-1), ...VIEWS]) {
    await show(page, service, view);
    await isWell(page, view, "afterwards");
  }
});

browserTest("every view that is shown while the service restarts goes on", { stored: true }, async (page, service) => {
  page.allow(LOST);
  await fill(service);
  for (const view of VIEWS) {
    await show(page, service, view, { afresh: true });
    await isWell(page, view, "before");
    await page.evaluate(() => (window.isSame = true));
    await service.stop();
    await page.says("alert", /^Connection lost\. .* What is shown is of \d\d:\d\d:\d\d/);
    const text = await main(page);
    assert.doesNotMatch(text, /TypeError|Failed to fetch/, view[0]);
    await service.start();
    // What it recorded is gone with the process.
    await service.check(ANN);
    await isWell(page, view, "afterwards");
    assert.equal(await page.evaluate(() => window.isSame), true, `${view[0]} was loaded again`);
  }
});

// Wrong tokens of a minute are counted by address, so each view has a service of its own.
for (const view of VIEWS) {
  browserTest(`${view[0]} asks for a new token when its token is taken back, and then goes on`, { stored: true, tokens: true }, async (page, service) => {
    page.allow(/status of 401/);
    await fill(service);
    await page.goto(service.url(view[0]));
    await logIn(page, "viewer");
    await isWell(page, view, "before");
    service.setTokens(["admin"]);
    await page.says("alert", /^401 /);
    await page.find("textbox", /^Token/);
    service.setTokens(["viewer", "operator", "admin"]);
    await sleep(1000);
    await logIn(page, "viewer");
    await page.find("heading", view[1]);
    await isWell(page, view, "afterwards");
  });
}

browserTest("every view names an instance that is gone, and what is missing without it", { stored: true }, async (page, service) => {
  await fill(service);
  const other = await startService({ rules: null, store: service.store });
  try {
    await until("both are known", async () => (await service.call("GET", "/v1/instances")).instances.length === 2);
    await other.check(ANN, 2);
    await page.goto(service.url("#/instances"));
    await page.shows("2 instances share the store.");
    await other.stop();
    await page.says("status", /^No sign of life from .*\. It has stopped, or cannot reach Redis/);
    for (const view of VIEWS) {
      await show(page, service, view);
      await page.says("status", /^No sign of life from /);
      await isWell(page, view, "without it");
      if (view[0].includes("user=ann")) await page.shows("1 instance did not answer.");
    }
    // It is no longer listed after half a minute.
    await page.gone("status", /No sign of life/);
    for (const view of VIEWS) await show(page, service, view).then(() => isWell(page, view, "alone"));
  } finally {
    await other.end();
  }
});

for (const [words, ahead] of [["fast", 3_600_000], ["slow", -3_600_000]]) {
  browserTest(`every view has the times of the service if the clock of the browser is an hour ${words}`, { stored: true }, async (page, service) => {
    await fill(service);
    await page.prepare(ahead > 0 ? hourFast : hourSlow);
    for (const view of VIEWS) {
      await show(page, service, view, { afresh: true });
      await isWell(page, view);
      await page.says("list", new RegExp(`The clock of this browser is .* ${words}; times here are those of the service`));
      const text = await main(page);
      assert.doesNotMatch(text, /\b(1 h|59 min|60 min)( \d+ \w+)? ago|in the future|-\d+ (s|min|h)\b/, view[0]);
      // The hour of the service, not of the browser.
      const hours = [...text.matchAll(/(\d\d):\d\d:\d\d UTC/g)].map(([, hour]) => Number(hour));
      const [now, before] = [Date.now(), Date.now() - 600_000].map((at) => new Date(at).getUTCHours());
      assert.ok(hours.every((hour) => hour === now || hour === before), `${view[0]}: ${hours}`);
    }
  });
}

function hourFast() {
  const Right = Date;
  window.Date = class extends Right {
    constructor(...values) {
      super(...(values.length > 0 ? values : [Right.now() + 3_600_000]));
    }
    static now() {
      return Right.now() + 3_600_000;
    }
  };
}

function hourSlow() {
  const Right = Date;
  window.Date = class extends Right {
    constructor(...values) {
      super(...(values.length > 0 ? values : [Right.now() - 3_600_000]));
    }
    static now() {
      return Right.now() - 3_600_000;
    }
  };
}
