// What all views share: login, roles, themes, navigation, phones, keyboards, hostile values and
// accessibility.

import assert from "node:assert/strict";

import { until } from "./element.mjs";
import { browserTest, confirm, logIn, open } from "./harness.mjs";
import { liveEvent } from "./service.mjs";

const ANN = { user: "ann", ip: "203.0.113.9", method: "GET", path: "/api/items" };
const VIEWS = ["Overview", "Rules", "Identities", "Events", "Lab", "Instances"];
const WIDTHS = [390, 800, 1001, 1400, 2560];
const STORED = { rules: [
  { id: "per-user", name: "Each user on the API", match: { path: ["/api/**"] }, scope: "per_user", bands: ["10/h", "100/d"] },
  { id: "login", scope: "per_ip", mode: "shadow", algorithm: "sliding_log", bands: ["5/10m"] },
  { id: "old", enabled: false, scope: "global", bands: ["5/s"] },
] };

/** Every page with data, its heading and how it is brought into the state to look at. */
const PAGES = [
  ["#/overview", "Overview", (page) => page.find("link", "user=ann")],
  ["#/rules", "Rules", async (page) => {
    await page.find("button", "Enable… api/old");
    await page.click("button", "YAML of api/per-user");
    await page.click("button", "Switches of api/per-user");
    await page.find("region", "api/per-user in YAML");
  }],
  ["#/rules?view=edit&set=api", "Rule set api", async (page) => {
    const field = await page.find("textbox", "Rules of api in YAML");
    await field.fill((await field.value()).replace("per_user", "per_person").replace("capacity: 5", "capacity: 6"));
    await page.says("status", "1 fault");
    await field.fill((await field.value()).replace("per_person", "per_user").replace("capacity: 10", "capacity: 5"));
    await page.says("status", "No faults");
    await page.click("button", "Try it");
    await page.shows("newly denied");
  }],
  ["#/rules?view=new", "New rule set", (page) => page.says("status", "No faults")],
  ["#/rules?view=history&set=api", "History of api", async (page) => {
    await page.find("region", "Changed lines");
    await page.find("table", "What the change of api did");
  }],
  ["#/identities", "Identities", (page) => page.shows(/1 to \d of \d/)],
  ["#/identities?show=hour", "Identities", (page) => page.find("table", "Identities by what they use")],
  ["#/identities?user=ann", "user = ann", async (page) => {
    await page.click("button", "Explain GET /api/items");
    await page.shows("Denied. By per-user");
  }],
  ["#/events", "Events", (page) => page.shows(/Rule set api was changed/)],
  ["#/events?show=changes", "Events", (page) => page.shows("changed rule set api")],
  ["#/lab", "Lab", async (page) => {
    await (await page.find("region", "Fixed window")).shows("2× the limit");
    for (const summary of await page.all("DisclosureTriangle")) await summary.click();
    await page.find("table", "Totals of each algorithm");
  }],
  ["#/instances", "Instances", (page) => page.shows("this instance")],
];

async function fillService(service) {
  await service.call("PUT", "/v1/rule_sets/api", { rules: STORED.rules.slice(0, 1) });
  await service.call("PUT", "/v1/rule_sets/api", STORED);
  await service.check(ANN, 12);
}

/** Shows a page by its address, from whichever view it is. Drafts of other pages stay. */
async function show(page, service, [hash, heading, prepare]) {
  if (!(await page.evaluate(() => document.querySelector("nav")))) await page.goto(service.url(hash));
  else await page.evaluate((next) => (location.hash = next), hash);
  await page.find("heading", heading);
  await prepare(page);
}

browserTest("asks for a token, and takes only a good one", { tokens: true }, async (page, service) => {
  page.allow(/status of 401/);
  await page.goto(service.url("#/lab"));
  const field = await page.find("textbox", /^Token/);
  assert.equal(await field.call((input) => input.type), "password");
  assert.match((await page.focused()).name, /^Token/);
  await field.fill("wrong");
  await page.click("button", "Log in");
  await page.says("alert", /^401 /);
  assert.equal(await page.has("navigation"), false);
  await logIn(page, "operator");
  await page.find("heading", "Lab");
  await page.shows("the-operator");
  await page.shows("operator");

  // The token is of this tab, and outlives a reload.
  await page.reload();
  await page.find("heading", "Lab");
  assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes("operator")), false);
  await page.click("button", "Log out");
  await page.find("textbox", /^Token/);
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
});

browserTest("asks again when the token is taken away", { tokens: true }, async (page, service) => {
  page.allow(/status of 401/);
  await page.goto(service.url("#/identities?user=ann"));
  await logIn(page, "viewer");
  await page.find("heading", "user = ann");
  service.setTokens(["admin"]);
  await page.find("textbox", /^Token/);
  await page.says("alert", /^401 /);
  await logIn(page, "admin");
  await page.find("heading", "user = ann");
});

browserTest("needs no token on loopback", {}, async (page, service) => {
  await open(page, service, "", "Overview");
  await page.shows("loopback");
  await page.shows("admin");
  assert.equal(await page.has("button", "Log out"), false);
});

browserTest("each view has an address, a title and the focus on its heading", {}, async (page, service) => {
  await open(page, service, "", "Overview");
  for (const view of [...VIEWS.slice(1), VIEWS[0]]) {
    await page.click("link", view, await page.find("navigation", "Main"));
    await page.waitFor(`the focus is on ${view}`, (text) => document.activeElement.matches("h1") && document.activeElement.textContent === text, view);
    assert.deepEqual(await page.evaluate(() => [document.title, location.hash]), [`${view} · FluxGate`, `#/${view.toLowerCase()}`]);
    const current = await page.evaluate(() => [...document.querySelectorAll("[aria-current=page]")].map((link) => link.textContent));
    assert.deepEqual(current, [view]);
  }
  await page.evaluate(() => history.back());
  await page.find("heading", "Instances");
  await page.evaluate(() => (location.hash = "#/nonsense"));
  await page.find("heading", "Overview");
});

browserTest("the theme follows the system until one is chosen, which stays", {}, async (page, service) => {
  const brightness = () => page.evaluate(() => {
    const [red, green, blue] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
    return (red + green + blue) / 3;
  });
  await open(page, service, "", "Overview");
  assert.ok((await brightness()) > 200);
  await page.media({ scheme: "dark" });
  assert.ok((await brightness()) < 60);
  await page.click("button", "Theme: system. Switch to light.");
  assert.ok((await brightness()) > 200);
  await page.click("button", "Theme: light. Switch to dark.");
  await page.media({ scheme: "light" });
  assert.ok((await brightness()) < 60);
  await page.reload();
  await page.find("button", "Theme: dark. Switch to system.");
  assert.ok((await brightness()) < 60);
});

browserTest("nothing moves for those who want no motion", {}, async (page, service) => {
  await page.media({ motion: "reduce" });
  await service.check(ANN, 12);
  await open(page, service, "#/overview", "Overview");
  const bar = () => page.evaluate(() => document.querySelector("[aria-label='Rules'] [role=meter]")?.getAttribute("aria-valuenow"));
  const first = await until("it is shown", async () => Number(await bar()));
  assert.equal(await page.evaluate(() => document.getAnimations().length), 0);
  await service.check(ANN, 40);
  await until("it has grown", async () => Number(await bar()) > first);
  assert.equal(await page.evaluate(() => document.getAnimations().length), 0);
});

browserTest("no page is wider than a phone, and no control too small for a finger", { stored: true }, async (page, service) => {
  await fillService(service);
  const small = [];
  for (const entry of PAGES) {
    await page.view({ width: 390, phone: true });
    await show(page, service, entry);
    for (const width of [390, 360]) {
      await page.view({ width, phone: true });
      const { wide, past, low } = await page.evaluate(measure, width);
      assert.ok(wide <= width, `${entry[0]} is ${wide} wide at ${width}: ${past.join("\n")}`);
      small.push(...low.map((text) => `${entry[0]} at ${width}: ${text}`));
    }
  }
  assert.deepEqual(small, []);
});

/** Returns how wide the page is, what sticks out, and the controls that are too low, in the page. */
async function measure(width) {
  // Charts follow their box in the next frame.
  for (let frame = 0; frame < 2; frame++) await new Promise((done) => requestAnimationFrame(done));
  const all = [...document.querySelectorAll("body *")];
  const controls = all.filter((element) => element.matches("button, nav a, select, input") && element.checkVisibility());
  const box = (element) => element.getBoundingClientRect();
  return {
    wide: Math.max(document.documentElement.scrollWidth, document.body.scrollWidth),
    past: all.filter((element) => box(element).right > width + 1).slice(0, 5).map(({ outerHTML }) => outerHTML.slice(0, 120)),
    low: controls.filter((element) => !["range", "checkbox"].includes(element.type) && box(element).height < 39.5)
      .map((element) => `${element.textContent || element.type} is ${box(element).height} high`),
  };
}

browserTest("every view is reached, and a change applied, with the keyboard alone", { stored: true }, async (page, service) => {
  await fillService(service);
  await open(page, service, "", "Overview");
  await page.press("Tab");
  assert.deepEqual(await page.focused(), { role: "link", name: "Skip to content" });
  await page.press("Enter");
  assert.equal((await page.focused()).role, "main");
  for (const view of VIEWS) {
    await page.evaluate(() => document.activeElement.blur());
    await page.tabTo("link", view);
    await page.press("Enter");
    await page.find("heading", view);
  }
  await page.evaluate(() => document.activeElement.blur());
  await page.tabTo("link", "Rules");
  await page.press("Enter");
  await page.find("link", "Edit of api");
  await page.tabTo("link", "Edit of api");
  await page.press("Enter");
  await page.find("textbox", "Rules of api in YAML");
  await page.tabTo("textbox", "Rules of api in YAML");
  await page.press("End", "control");
  await page.press("Home", "control");
  for (const character of "# x") await page.press(character);
  await page.press("Enter");
  await page.press("Tab");
  await page.press("Backspace");
  await page.press("Backspace");
  const field = await page.find("textbox", "Rules of api in YAML");
  assert.match(await field.value(), /^# x\nrules:/);
  await page.press("a", "control");
  await page.type((await field.value()).replace("capacity: 10", "capacity: 7"));
  await page.says("status", "No faults");
  // Tab indents here, so Escape leaves first.
  await page.press("Escape");
  await page.tabTo("button", "Apply…");
  await page.press("Enter");
  await page.find("dialog", "Apply to api?");
  await page.tabTo("button", "Apply", 5);
  await page.press(" ");
  await page.says("status", "Applied. The new rules are active.");
  assert.equal((await service.call("GET", "/v1/rule_sets/api")).rules[0].bands[0].capacity, 7);
});

browserTest("axe finds nothing, no word is broken and no column cut off, in both themes at any width", { stored: true }, async (page, service) => {
  await fillService(service);
  const found = [];
  for (const entry of PAGES) {
    await page.media({ scheme: "light", motion: "reduce" });
    await page.view({ width: 1280, height: 900 });
    await show(page, service, entry);
    for (const width of WIDTHS) {
      await page.view({ width, height: 900 });
      found.push(...(await page.evaluate(misfits)).map((text) => `${entry[0]} at ${width}: ${text}`));
      for (const scheme of ["light", "dark"]) {
        await page.media({ scheme, motion: "reduce" });
        found.push(...(await page.axe()).map((text) => `${entry[0]}, ${scheme}, ${width}: ${text}`));
      }
    }
  }
  assert.deepEqual(found, []);
  await page.view({ width: 1280, height: 900 });
  await page.click("link", "Rules", await page.find("navigation", "Main"));
  await page.click("button", "Switches of api/per-user");
  await page.click("button", "Disable…");
  await page.find("dialog");
  assert.deepEqual(await page.axe(), []);
  await confirm(page, "Cancel");
});

/** Returns words that are broken, and what is out of sight at the right, in the page. */
async function misfits() {
  // Charts follow their box in the next frame.
  for (let frame = 0; frame < 2; frame++) await new Promise((done) => requestAnimationFrame(done));
  const broken = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    if (!node.parentElement.checkVisibility() || node.parentElement.closest(".visually-hidden, svg, select, script")) continue;
    for (const { 0: word, index } of node.data.matchAll(/(?<![\w~=])[A-Za-z]{3,20}(?!\w)/g)) {
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const lines = new Set([...range.getClientRects()].map(({ top }) => Math.round(top)));
      if (lines.size > 1) broken.push(word);
    }
  }
  const cut = [...document.querySelectorAll(".table-scroll")].filter((each) => each.scrollWidth > each.clientWidth + 1);
  const wide = document.documentElement.scrollWidth - innerWidth;
  return [
    ...broken.map((word) => `${word} is broken`), ...(wide > 0 ? [`${wide} px too wide`] : []),
    ...cut.map((each) => `columns of ${each.getAttribute("aria-label")} are cut off`),
  ];
}

browserTest("the focus is seen on every control of every view, in both themes", { stored: true }, async (page, service) => {
  await fillService(service);
  const found = [];
  for (const entry of PAGES) {
    await show(page, service, entry);
    for (const scheme of ["light", "dark"]) {
      await page.media({ scheme, motion: "reduce" });
      found.push(...(await page.evaluate(unseenFocus)).map((text) => `${entry[0]}, ${scheme}: ${text}`));
    }
  }
  assert.deepEqual(found, []);
});

/** Returns the controls that look the same with the focus, or are covered when they have it, in the page. */
async function unseenFocus() {
  const look = (element) => {
    const { outline, boxShadow, stroke, borderColor, translate } = getComputedStyle(element);
    return [outline, boxShadow, stroke, borderColor, translate].join();
  };
  // What shows that a child has the focus is one of these.
  const looks = (element) => [element, element.parentElement, element.closest(".editor")].map((each) => each && look(each)).join();
  const unseen = [];
  for (const element of document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")) {
    if (!element.checkVisibility() || element.disabled) continue;
    document.activeElement.blur();
    const before = looks(element);
    element.focus({ focusVisible: true });
    if (document.activeElement !== element) continue;
    const name = `${element.tagName} ${element.className} ${element.textContent.slice(0, 30) || element.getAttribute("aria-label")}`;
    if (looks(element) === before) unseen.push(`${name} looks the same`);
    const { top, bottom, height } = element.getBoundingClientRect();
    if (bottom < 10 || (top > innerHeight - 10 && height < innerHeight)) unseen.push(`${name} is out of sight`);
  }
  return unseen;
}

browserTest("axe finds nothing in the login form", { tokens: true }, async (page, service) => {
  page.allow(/status of 401/);
  for (const scheme of ["light", "dark"]) {
    await page.media({ scheme });
    await page.goto(service.url());
    await (await page.find("textbox", /^Token/)).fill("wrong");
    await page.press("Enter");
    await page.says("alert", /^401 /);
    assert.deepEqual(await page.axe(), [], scheme);
  }
});

const HOSTILE = [
  `<img src=x onerror="alert('img')">`,
  `"><script>alert('script')</script>`,
  `'};alert('quote');//`,
  `javascript:alert('link')`,
  `<svg/onload=alert('svg')>{{constructor.constructor('alert(1)')()}}`,
];

browserTest("hostile values are text in every view", { stored: true }, async (page, service) => {
  const sets = HOSTILE.slice(0, 2);
  for (const set of ["api", ...sets]) {
    const rules = HOSTILE.map((name, index) => ({ id: `r${index}`, name, scope: "per_user", match: { path: [`/${index}/**`] }, bands: ["2/h"] }));
    const path = `/v1/rule_sets/${encodeURIComponent(set)}`;
    await service.call("PUT", path, { rules: rules.slice(1) });
    await service.call("PUT", path, { rules });
    for (const [index, user] of HOSTILE.entries()) {
      await service.check({ rule_set: set, user, ip: "192.0.2.1", method: "GET", path: `/${index}/${user}`, headers: { "x-hostile": user } }, 4);
    }
  }
  const isText = async (where, text) => {
    await page.shows(text.replace(/\s+/g, " "));
    const made = await page.evaluate(() => document.querySelectorAll("img[src=x], main script, svg[onload], [href^=javascript]").length);
    assert.equal(made, 0, where);
  };
  await open(page, service, "#/overview", "Overview");
  for (const set of sets) await isText("overview", set);
  await isText("overview", `user=${HOSTILE[0]}`);

  await show(page, service, ["#/rules", "Rules", (page) => page.find("heading", HOSTILE[4])]);
  for (const text of HOSTILE) await isText("rules", text);
  for (const [index, set] of sets.entries()) {
    await page.evaluate((name) => (location.hash = `#/rules?${new URLSearchParams({ view: "edit", set: name })}`), set);
    await page.find("heading", `Rule set ${set}`);
    const field = await page.find("textbox", `Rules of ${set} in YAML`);
    await field.fill((await field.value()).replace("capacity: 2", "capacity: 1").replace("scope: per_user", index ? "scope: per_user" : `scope: ${JSON.stringify(HOSTILE[0])}`));
    if (index === 0) {
      await page.says("status", /fault/);
      await isText("fault", "onerror=");
      await field.fill((await field.value()).replace(`scope: ${JSON.stringify(HOSTILE[0])}`, "scope: per_user"));
    }
    await page.says("status", "No faults");
    await page.click("button", "Try it");
    await page.shows("newly denied");
    await isText("trial", `user=${HOSTILE[0]}`);
    await page.click("button", "Apply…");
    await confirm(page, "Apply");
    await page.says("status", "Applied.");
    await page.click("link", "History");
    await page.find("heading", `History of ${set}`);
    // The list is drawn again when the change takes effect.
    await until("every change is shown", async () => {
      const changes = await page.all("button", /^See the/);
      for (const see of changes) {
        if (!(await see.call((element) => element.getAttribute("aria-expanded") === "true"))) {
          await see.tryClick();
          return false;
        }
      }
      return changes.length > 0;
    });
    await isText("history", HOSTILE[1]);
  }

  for (const user of HOSTILE) {
    const query = new URLSearchParams({ identity: `user=${user}`, rule: `${sets[0]}/r0` });
    await page.evaluate((next) => (location.hash = `#/identities?${next}`), String(query));
    await page.find("heading", `user = ${user}`);
    await page.find("table", "Recent requests, newest first");
    await isText("identities", user);
  }
  await page.click("button", /^Explain GET \/4/);
  await page.shows("Counts user=");
  await page.evaluate((text) => (location.hash = `#/lab?${new URLSearchParams({ pattern: text, drawn: text })}`), HOSTILE[0]);
  await page.find("heading", "Lab");
  await page.shows("2× the limit");
});

browserTest("hostile values of answers and of problems are text", { feed: true }, async (page, service) => {
  const text = HOSTILE[0];
  const now = Date.now();
  await page.answer("GET", "/v1/instances", { body: { failure: null, instances: [{
    id: text, version: text, revision: text, started_ms: 0, seen_ms: 0, decisions_per_second: 1, denied_per_second: 1, is_self: true,
    hostname: text, address: text, waiting: 1, slots: 1, leased_units: null, store: { kind: text, breaker: text },
    webhooks: [{ server: text, queued: 1, is_failing: true }],
  }] } });
  await page.answer("GET", "/v1/history", { body: {
    step_s: 1, from_ms: now - 60_000, decisions: [{ outcome: "denied", values: Array(61).fill(1) }],
    series: [{ rule_set: text, rule: HOSTILE[1], outcome: "denied", values: Array(61).fill(1) }],
    changes: [{ at_ms: now - 5000, rule_set: text, revision: "a", who: text }],
  } });
  await page.answer("GET", "/v1/usage", { body: { usage: [{
    rule_set: text, rule: HOSTILE[1], band: text, identity: text, handle: text, limit: 5, remaining: 1, used_share: 0.8,
    reset_after_ms: 5000, per_hour: 5, exhausted_in_ms: 5000,
  }] } });
  await page.answer("GET", "/v1/events", { body: { events: [{
    id: "1-1", at_ms: now, kind: text, text, rule_set: text, rule: text, identity: text, handle: text,
  }] } });
  await page.answer("GET", "/v1/audit", { body: { entries: [{
    id: "1", at_ms: now, who: text, what: text, rule_set: text, rule: text, rule_id: null, identity: text, handle: text,
    units: null, reset: 1, etag_before: null, etag_after: text, outcome: "unknown", reason: text,
  }] } });
  await page.fail("GET", "/v1/top", 500, text);
  await open(page, service, "#/overview", "Overview");
  await until("the page listens", () => service.feed.isOpen);
  service.feed.send(liveEvent({ decisions: { allowed: 1 }, revision: text, store: { kind: text, breaker: "open", keys: 1 } }));
  await page.find("link", `${text} / ${HOSTILE[1]}`);
  await page.says("alert", `500 ${text}`);
  await page.shows(`Rules of ${text} changed by ${text}`);
  await (await page.find("region", "Runs out soon")).shows(text);
  await (await page.find("region", "What happened")).shows(text);
  await page.click("link", "Instances", await page.find("navigation", "Main"));
  await page.find("heading", "Instances");
  await page.shows(text);
  await page.click("link", "Events", await page.find("navigation", "Main"));
  await page.find("heading", "Events");
  await page.shows(text);
  await page.click("button", "Changes by people");
  await page.shows(`Reason: “${text}”`);
  assert.equal(await page.evaluate(() => document.querySelectorAll("img[src=x], main script").length), 0);
});

browserTest("other pages cannot frame it, and the policy holds", {}, async (page, service) => {
  const { headers } = await fetch(service.url());
  assert.match(headers.get("content-security-policy"), /^default-src 'none'; .*frame-ancestors 'none'$/);
  await open(page, service, "", "Overview");
  page.allow(/Content.Security.Policy|contentSecurityPolicy|policy/i);
  // The page as it is would block what its code lets through.
  const ran = await page.evaluate(async () => {
    const element = document.createElement("div");
    element.innerHTML = "<img src=x onerror='window.ran = true'>";
    document.body.append(element);
    await new Promise((done) => element.firstChild.addEventListener("error", () => setTimeout(done)));
    return Boolean(window.ran);
  });
  assert.equal(ran, false);
  page.allow(/status of 404/);
});
