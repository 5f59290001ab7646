// The Lab: one pattern under every algorithm.

import assert from "node:assert/strict";

import { plain, until } from "./element.mjs";
import { browserTest, open } from "./harness.mjs";

const ALGORITHMS = ["Token bucket", "Leaky bucket", "Fixed window", "Sliding log", "Sliding window", "Concurrency"];

/** Returns the numbers of an algorithm, as its picture says them. */
async function numbers(page, algorithm) {
  const picture = await page.find("image", new RegExp(`^${algorithm}: `));
  const [admitted, denied, most] = picture.name.match(/\b\d[\d,]*(?= admitted| denied| in any)/g)
    .map((text) => Number(text.replaceAll(",", "")));
  return { admitted, denied, most };
}

/** Waits until the numbers of an algorithm are as expected. */
async function settles(page, algorithm, isExpected) {
  let shown;
  await until(`the ${algorithm} has other numbers`, async () => isExpected(shown = await numbers(page, algorithm)),
    { explain: () => JSON.stringify(shown) });
  return shown;
}

browserTest("shows what each algorithm makes of a burst at a window edge", {}, async (page, service) => {
  await open(page, service, "#/lab", "Lab");
  for (const algorithm of ALGORITHMS) {
    const { admitted, denied } = await numbers(page, algorithm);
    assert.equal(admitted + denied, 60, algorithm);
  }
  assert.equal((await numbers(page, "Fixed window")).most, 20);
  await (await page.find("region", "Fixed window")).shows("2× the limit");
  await (await page.find("region", "Fixed window")).shows("The count starts again at each window edge, so 20 requests pass within 1 s");
  assert.equal((await numbers(page, "Sliding log")).most, 10);
  await (await page.find("region", "Sliding log")).shows("within the limit");
  assert.equal((await numbers(page, "Leaky bucket")).most, 10);
  await (await page.find("region", "Leaky bucket")).shows("The queue releases one request every 100 ms");
});

browserTest("has patterns, and a seed that repeats", {}, async (page, service) => {
  await open(page, service, "#/lab", "Lab");
  await page.click("button", "Steady");
  await settles(page, "Fixed window", ({ most }) => most < 20);
  assert.equal((await page.find("button", "Steady")).properties.pressed, "true");
  for (const name of ["Bursts", "Ramp"]) {
    await page.click("button", name);
    await page.waitFor("the link has the pattern", (text) => location.hash.includes(`pattern=${text}`), name.toLowerCase());
  }
  assert.equal(await page.has("spinbutton", "Seed"), false);
  await page.click("button", "Random");
  const seed = await page.find("spinbutton", "Seed");
  const shape = () => page.evaluate(() => [...document.querySelectorAll("[role=slider]")].map((column) => column.getAttribute("aria-valuenow")).join());
  const first = await shape();
  await page.click("button", "New seed");
  assert.equal(await seed.value(), "2");
  assert.notEqual(await shape(), first);
  await seed.fill("1");
  await page.press("Enter");
  await until("the pattern is the first again", async () => (await shape()) === first);
});

browserTest("is set by sliders, with the keyboard too", {}, async (page, service) => {
  await open(page, service, "#/lab", "Lab");
  await numbers(page, "Sliding log");
  const capacity = await page.find("slider", "Capacity");
  await capacity.call((slider) => slider.focus());
  await page.press("ArrowRight");
  await page.press("ArrowRight");
  assert.equal(await capacity.attribute("aria-valuetext"), "12 requests");
  await settles(page, "Sliding log", ({ most }) => most === 12);
  const burst = await page.find("slider", "Burst");
  assert.equal(await burst.attribute("aria-valuetext"), "12 requests, as the capacity");
  await burst.call((slider) => slider.focus());
  await page.press("Home");
  await settles(page, "Token bucket", ({ admitted }) => admitted < 20);
  await page.click("checkbox", "The leaky bucket queues requests (shape)");
  await (await page.find("region", "Leaky bucket")).shows("Without a queue it admits exactly what the token bucket admits.");
  for (const [name, key] of [["Requests", "End"], ["Duration", "End"], ["Window", "Home"], ["Refill", "Home"], ["Each request runs", "End"]]) {
    await (await page.find("slider", name)).call((slider) => slider.focus());
    await page.press(key);
  }
  await settles(page, "Sliding log", ({ admitted, denied }) => admitted + denied === 400);
  await page.click("button", "Reset");
  await settles(page, "Fixed window", ({ most }) => most === 20);
  assert.equal(await page.evaluate(() => location.hash), "#/lab");
});

browserTest("is drawn with the mouse and with the keyboard, and its link repeats it", {}, async (page, service) => {
  await open(page, service, "#/lab", "Lab");
  await numbers(page, "Sliding log");
  await page.click("button", "Drawn");
  const surface = await page.find("group", "Requests in each column");
  const { left, top, right, bottom, y } = await surface.middle();
  await page.mouse("mouseMoved", left + 2, y);
  await page.mouse("mousePressed", left + 2, top + 2, 1);
  await page.mouse("mouseMoved", right - 2, top + 2, 1);
  await page.mouse("mouseReleased", right - 2, top + 2);
  await settles(page, "Sliding log", ({ admitted, denied }) => admitted + denied === 60 * 20);
  await page.mouse("mousePressed", left + 2, bottom - 1, 1);
  await page.mouse("mouseMoved", right - 2, bottom - 1, 1);
  await page.mouse("mouseReleased", right - 2, bottom - 1);
  await (await page.find("region", "Sliding log")).shows("No request arrives.");

  const last = await page.find("slider", /^Column 60, /);
  await last.call((column) => column.focus());
  for (const key of ["ArrowUp", "PageUp", "ArrowDown", "ArrowLeft", "End", "ArrowRight"]) await page.press(key);
  assert.equal((await page.focused()).name, last.name);
  assert.equal(await last.attribute("aria-valuetext"), "5 requests");
  await settles(page, "Sliding log", ({ admitted, denied }) => admitted === 10 && denied === 15);

  const link = await page.evaluate(() => location.href);
  await page.goto("about:blank");
  await page.goto(link);
  await settles(page, "Sliding log", ({ admitted, denied }) => admitted === 10 && denied === 15);
  await (await page.find("slider", /^Column 60, /)).call((column) => column.focus());
  await page.press("Delete");
  await settles(page, "Sliding log", ({ admitted, denied }) => admitted === 10 && denied === 10);
});

browserTest("takes nothing unusable from a link", {}, async (page, service) => {
  await open(page, service, "#/lab?pattern=%3Cimg%3E&capacity=1e9&window=x&requests=-5&drawn=zz&seed=1.5&run=0", "Lab");
  assert.equal((await numbers(page, "Sliding log")).admitted > 0, true);
});

browserTest("has the numbers as a table, and the rules as YAML", {}, async (page, service) => {
  await open(page, service, "#/lab", "Lab");
  await numbers(page, "Sliding log");
  await page.evaluate(() => document.querySelector("summary").scrollIntoView());
  for (const text of ["The numbers as a table", "The rules as YAML"]) {
    const [summary] = await page.all("DisclosureTriangle", text);
    await summary.click();
  }
  const table = await page.find("table", "Totals of each algorithm");
  const rows = await Promise.all((await page.all("row", undefined, table)).map((row) => row.text()));
  assert.deepEqual(rows.slice(1).map((row) => row.replace(/ \d.*/, "")), ALGORITHMS);
  assert.match(rows[3], /^Fixed window 20 40 20 none$/);
  const slots = await page.find("table", "Requests and admitted requests in each column");
  assert.equal((await page.all("row", undefined, slots)).length, 61);
  const rules = await (await page.find("region", "Rules as YAML")).call((pre) => pre.textContent);
  assert.deepEqual((await service.call("POST", "/v1/validate", { rules })).faults, []);
  assert.match(plain(rules), /algorithm: sliding_log bands: \[ \{ capacity: 10, window: 1s \} \]/);
});

browserTest("copies its link, or says that it cannot", {}, async (page, service) => {
  await open(page, service, "#/lab?pattern=ramp", "Lab");
  await page.grant(["clipboardReadWrite", "clipboardSanitizedWrite"], service.origin);
  await page.click("button", "Copy link");
  await page.shows("Link copied. It contains all settings.");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), service.url("#/lab?pattern=ramp"));
  await page.evaluate(() => (navigator.clipboard.writeText = () => Promise.reject(new Error("denied"))));
  await page.click("button", "Copy link");
  await page.says("alert", "The browser does not allow copying here.");
});

browserTest("says that the engine did not answer, and tries again by itself", {}, async (page, service) => {
  const stop = await page.fail("POST", "/v1/simulate", 503, "too many simulations");
  await open(page, service, "#/lab", "Lab");
  await page.says("alert", "503 too many simulations");
  await page.find("button", "Try again");
  stop();
  await settles(page, "Fixed window", ({ most }) => most === 20);
  await page.gone("alert");
});

browserTest("without the service, says so in plain words, and follows when it is back", {}, async (page, service) => {
  page.allow(/ERR_|Failed to load resource/);
  await open(page, service, "#/lab", "Lab");
  await settles(page, "Sliding log", ({ most }) => most === 10);
  await service.stop();
  const capacity = await page.find("slider", "Capacity");
  await capacity.call((slider) => slider.focus());
  await page.press("ArrowRight");
  await page.says("status", "The service does not answer, so the results below are those of the settings before.");
  assert.doesNotMatch(await page.text(), /TypeError|Failed to fetch/);
  await service.start();
  await settles(page, "Sliding log", ({ most }) => most === 11);
  await page.hides("so the results below");
});
