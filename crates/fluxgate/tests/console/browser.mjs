// Chromium over the DevTools protocol. The pipe needs no library: messages are JSON, each ends
// with a NUL. Elements are found as assistive technology finds them: by role and name.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Element, plain, result, until } from "./element.mjs";

const DESKTOP = { width: 1280, height: 900 };

const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
  "--disable-extensions", "--disable-sync", "--disable-dev-shm-usage", "--mute-audio",
  "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
  "--disable-backgrounding-occluded-windows", "--disable-features=Translate,OptimizationHints",
  "--force-color-profile=srgb", "--lang=en-US",
];

/** Keys that are not characters: the code, the key code and the text that they enter. */
const KEYS = {
  Tab: ["Tab", 9], Enter: ["Enter", 13, "\r"], Escape: ["Escape", 27], " ": ["Space", 32, " "],
  ArrowLeft: ["ArrowLeft", 37], ArrowUp: ["ArrowUp", 38], ArrowRight: ["ArrowRight", 39],
  ArrowDown: ["ArrowDown", 40], PageUp: ["PageUp", 33], PageDown: ["PageDown", 34],
  End: ["End", 35], Home: ["Home", 36], Delete: ["Delete", 46], Backspace: ["Backspace", 8],
};
const MODIFIERS = { alt: 1, control: 2, meta: 4, shift: 8 };

/** Starts a browser that all tests of a file share. */
export async function launch() {
  const profile = mkdtempSync(join(tmpdir(), "fluxgate-console-"));
  const child = spawn("chromium-headless-shell", [...FLAGS, `--user-data-dir=${profile}`, "about:blank"], {
    stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
    // Chromium keeps other things in the home directory.
    env: { ...process.env, HOME: profile },
  });
  const browser = new Browser(child, profile);
  await browser.send("Browser.getVersion");
  return browser;
}

class Browser {
  #child;
  #profile;
  #exited;
  #next = 1;
  #calls = new Map();
  #sessions = new Map();
  #rest = "";

  constructor(child, profile) {
    this.#child = child;
    this.#profile = profile;
    this.#exited = new Promise((done) => child.once("exit", done));
    child.once("error", (error) => this.#fail(error));
    child.once("exit", () => this.#fail(new Error("chromium-headless-shell has ended (scripts/test installs it)")));
    child.stdio[3].on("error", () => {});
    child.stdio[4].setEncoding("utf8").on("data", (data) => this.#receive(data));
  }

  /** Calls a method, of a page if a session is given. */
  send(method, params = {}, sessionId) {
    const id = this.#next++;
    const { promise, resolve, reject } = withResolvers();
    // Created here, so that a failure shows the caller.
    this.#calls.set(id, { resolve, reject, error: new Error(method) });
    this.#child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return promise;
  }

  /** Opens an empty page in a context of its own: nothing is shared with other pages. */
  async page() {
    const { browserContextId } = await this.send("Target.createBrowserContext", { disposeOnDetach: true });
    return this.tab(browserContextId);
  }

  /** Opens an empty page in a context. */
  async tab(browserContextId) {
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank", browserContextId });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const page = new Page(this, sessionId, browserContextId);
    this.#sessions.set(sessionId, page);
    await page.begin();
    return page;
  }

  async dispose(sessionId, browserContextId) {
    await this.send("Target.disposeBrowserContext", { browserContextId });
    this.#sessions.delete(sessionId);
  }

  async close() {
    this.send("Browser.close").catch(() => {});
    const late = setTimeout(() => this.#child.kill("SIGKILL"), 5000);
    await this.#exited;
    clearTimeout(late);
    // Processes of the browser may write for a moment after it has ended.
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }

  #receive(data) {
    const messages = (this.#rest + data).split("\0");
    this.#rest = messages.pop();
    for (const text of messages) {
      const { id, method, params, sessionId, result, error } = JSON.parse(text);
      const call = this.#calls.get(id);
      if (id === undefined) this.#sessions.get(sessionId)?.receive(method, params);
      else if (error) call?.reject(Object.assign(call.error, { message: `${call.error.message}: ${error.message}` }));
      else call?.resolve(result);
      this.#calls.delete(id);
    }
  }

  #fail(error) {
    for (const { reject } of this.#calls.values()) reject(error);
    this.#calls.clear();
  }
}

/** A tab, and everything that went wrong in it. */
class Page {
  /** Errors, exceptions, violations of the policy and dialogs of scripts. */
  faults = [];
  /** The address of each request. */
  requests = [];
  #browser;
  #session;
  #context;
  #allowed = [];
  #answers = [];
  #fetches = false;
  #dialogs = null;

  constructor(browser, session, context) {
    this.#browser = browser;
    this.#session = session;
    this.#context = context;
  }

  send(method, params) {
    return this.#browser.send(method, params, this.#session);
  }

  async begin() {
    const domains = ["Page", "Runtime", "Network", "Log", "Audits", "DOM"];
    await Promise.all(domains.map((domain) => this.send(`${domain}.enable`)));
    // Time of the processor, so that what else the machine does is not counted.
    await this.send("Performance.enable", { timeDomain: "threadTicks" });
    await this.send("Emulation.setFocusEmulationEnabled", { enabled: true });
    await this.view(DESKTOP);
    await this.media({ scheme: "light" });
  }

  /** Opens another tab of the same browser, which is closed with this one. */
  tab() {
    return this.#browser.tab(this.#context);
  }

  close() {
    return this.#browser.dispose(this.#session, this.#context);
  }

  receive(method, params) {
    if (method === "Network.requestWillBeSent") this.requests.push(params.request.url);
    else if (method === "Runtime.exceptionThrown") {
      const { text, exception } = params.exceptionDetails;
      this.#fault("exception", `${text} ${exception?.description ?? ""}`);
    } else if (method === "Runtime.consoleAPICalled" && ["error", "warning", "assert"].includes(params.type)) {
      this.#fault(`console.${params.type}`, params.args.map((each) => each.description ?? each.value).join(" "));
    } else if (method === "Log.entryAdded" && ["error", "warning"].includes(params.entry.level)) {
      this.#fault(params.entry.source, `${params.entry.text} ${params.entry.url ?? ""}`);
    } else if (method === "Audits.issueAdded" && params.issue.code === "ContentSecurityPolicyIssue") {
      this.#fault("policy", JSON.stringify(params.issue.details));
    } else if (method === "Page.javascriptDialogOpening") this.#dialog(params);
    else if (method === "Fetch.requestPaused") this.#paused(params);
  }

  /** Permits faults that a test provokes, such as the log line of a failed request. */
  allow(pattern) {
    this.#allowed.push(pattern);
  }

  /** Fails if the page has made an error, or has asked another origin for anything. */
  check(origin) {
    const faults = this.faults.filter((fault) => !this.#allowed.some((pattern) => pattern.test(fault)));
    assert.deepEqual(faults, []);
    const foreign = this.requests.filter((url) => url !== "about:blank" && new URL(url).origin !== origin);
    assert.deepEqual(foreign, []);
  }

  #fault(kind, text) {
    this.faults.push(`${kind}: ${text}`);
  }

  #dialog({ type, message }) {
    const accept = this.#dialogs;
    if (accept === null) this.#fault("dialog", `${type} ${message}`);
    this.send("Page.handleJavaScriptDialog", { accept: accept?.(type) ?? true }).catch(() => {});
  }

  /** Handles dialogs of the browser: `decide` gets the type and returns whether to accept. */
  onDialog(decide) {
    this.#dialogs = decide;
  }

  /**
   * Answers calls in place of the service, until `stop` is called. `answer` is the status and the
   * body, which a function may make for each call, "lost" for a connection that fails, or "never" for
   * none. A `method` that is null stands for all.
   */
  async answer(method, path, answer) {
    const entry = { method, path, answer };
    this.#answers.push(entry);
    if (!this.#fetches) await this.send("Fetch.enable", { patterns: [{ urlPattern: "*/v1/*" }] });
    this.#fetches = true;
    return () => this.#answers.splice(this.#answers.indexOf(entry), 1);
  }

  /** Answers with a problem, as the service does. */
  fail(method, path, status, detail) {
    this.allow(new RegExp(`status of ${status}`));
    return this.answer(method, path, { status, type: "application/problem+json", body: { status, detail } });
  }

  #paused({ requestId, request }) {
    const { pathname } = new URL(request.url);
    const matches = ({ method, path }) =>
      (method ?? request.method) === request.method && (path instanceof RegExp ? path.test(pathname) : path === pathname);
    const answer = this.#answers.find(matches)?.answer;
    if (answer === "never") return;
    const done = !answer ? this.send("Fetch.continueRequest", { requestId })
      : answer === "lost" ? this.send("Fetch.failRequest", { requestId, errorReason: "ConnectionRefused" })
      : this.send("Fetch.fulfillRequest", {
        requestId,
        responseCode: answer.status ?? 200,
        responseHeaders: [{ name: "Content-Type", value: answer.type ?? "application/json" }],
        body: Buffer.from(JSON.stringify(typeof answer.body === "function" ? answer.body() : answer.body)).toString("base64"),
      });
    // A request that the page has given up is gone.
    done.catch(() => {});
  }

  async goto(url) {
    const { errorText } = await this.send("Page.navigate", { url });
    assert.equal(errorText, undefined, url);
    await until(`${url} is loaded`, () => this.evaluate(() => document.readyState === "complete"));
  }

  /** Runs a function in each document before its own scripts. */
  async prepare(body) {
    await this.send("Page.addScriptToEvaluateOnNewDocument", { source: `(${body})()` });
  }

  /** Loads the page again. */
  async reload() {
    await this.evaluate(() => (window.isOld = true));
    await this.send("Page.reload");
    await until("the page is loaded again", () => this.evaluate(() => !window.isOld && document.readyState === "complete"));
  }

  /** Runs a function in the page. It sees its arguments, and nothing of the test. */
  async evaluate(body, ...values) {
    const expression = `(${body})(...${JSON.stringify(values)})`;
    return result(await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true }));
  }

  /** Runs a script file, whatever the policy of the page says. */
  async run(source) {
    result(await this.send("Runtime.evaluate", { expression: `${source}\n;0` }));
  }

  view({ width, height = 800, phone = false }) {
    this.send("Emulation.setTouchEmulationEnabled", { enabled: phone });
    return this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: phone });
  }

  media({ scheme = "light", motion = "no-preference" }) {
    return this.send("Emulation.setEmulatedMedia", { features: [
      { name: "prefers-color-scheme", value: scheme }, { name: "prefers-reduced-motion", value: motion },
    ] });
  }

  /** Returns the visible text of the page. */
  text() {
    return this.evaluate(() => document.body.innerText);
  }

  /** Waits until the page shows a text, or no longer shows it. */
  async shows(text, expected = true) {
    const found = (shown) => (text instanceof RegExp ? text.test(shown) : shown.includes(text));
    const what = `the page ${expected ? "shows" : "does not show"} ${text}`;
    await until(what, async () => found(plain(await this.text())) === expected, { explain: () => this.describe() });
  }

  hides(text) {
    return this.shows(text, false);
  }

  /** Waits until a condition in the page is true. */
  waitFor(what, body, ...values) {
    return until(what, () => this.evaluate(body, ...values), { explain: () => this.describe() });
  }

  async describe() {
    const at = await this.evaluate(() => `${location.href} (${document.title})\n${document.body.innerText}`);
    return `the page is ${at}\nfaults: ${JSON.stringify(this.faults)}`;
  }

  /** Returns the elements with a role and a name, in the order of the document. */
  async all(role, name, within) {
    const root = (await within?.current()) ?? (await this.#document());
    const { nodes } = await this.send("Accessibility.queryAXTree", { objectId: root.objectId, role });
    const named = nodes.filter((node) => !node.ignored && matches(plain(node.name?.value ?? ""), name));
    return Promise.all(named.map(async (node, index) => {
      const { object } = await this.send("DOM.resolveNode", { backendNodeId: node.backendDOMNodeId, objectGroup: "test" });
      return new Element(this, object.objectId, node, async () => (await this.all(role, name, within))[index]);
    }));
  }

  /** Waits for an element with a role and a name, and returns the first. */
  async find(role, name, within) {
    const search = async () => (await this.all(role, name, within))[0];
    return until(`there is a ${role} ${name}`, search, { explain: () => this.describe() });
  }

  /** Returns whether there is such an element now. */
  async has(role, name, within) {
    return (await this.all(role, name, within)).length > 0;
  }

  /** Waits until an element with a role shows a text. It may be another element each time. */
  says(role, text, within) {
    const found = (shown) => (text instanceof RegExp ? text.test(shown) : shown.includes(text));
    return until(`a ${role} says ${text}`, async () => {
      const texts = await Promise.all((await this.all(role, undefined, within)).map((element) => element.text()));
      return texts.some(found);
    }, { explain: () => this.describe() });
  }

  /** Waits until there is no such element. */
  gone(role, name, within) {
    return until(`there is no ${role} ${name}`, async () => !(await this.has(role, name, within)),
      { explain: () => this.describe() });
  }

  async click(role, name, within) {
    // It is found again each time: the page may draw it again at the last moment.
    await until(`the ${role} ${name} can be used`, async () => {
      const [found] = await this.all(role, name, within);
      return found && !(await found.call((node) => Boolean(node.disabled))) && found.tryClick();
    }, { explain: () => this.describe() });
  }

  async #document() {
    const { result: object } = await this.send("Runtime.evaluate", { expression: "document", objectGroup: "test" });
    return object;
  }

  async mouse(type, x, y, buttons = 0) {
    const button = type === "mouseMoved" ? "none" : "left";
    await this.send("Input.dispatchMouseEvent", { type, x, y, button, buttons, clickCount: 1 });
  }

  /** Presses and releases a key: a name of `KEYS`, or a character. */
  async press(key, ...modifiers) {
    // The key code of a character that is not a letter depends on the layout; it is not needed.
    const [code, keyCode, text] = KEYS[key] ?? ["", /\w/.test(key) ? key.toUpperCase().charCodeAt(0) : 0, key];
    const bits = modifiers.reduce((sum, name) => sum | MODIFIERS[name], 0);
    const event = { key, code, windowsVirtualKeyCode: keyCode, modifiers: bits };
    const enters = text !== undefined && !(bits & (MODIFIERS.control | MODIFIERS.alt));
    // The keys of the system become commands outside of the page, so they are named here.
    const commands = bits & MODIFIERS.control && key === "a" ? ["selectAll"] : undefined;
    const down = { type: enters ? "keyDown" : "rawKeyDown", text: enters ? text : undefined, commands };
    await this.send("Input.dispatchKeyEvent", { ...event, ...down });
    await this.send("Input.dispatchKeyEvent", { ...event, type: "keyUp" });
  }

  /** Enters a text at the caret. */
  type(text) {
    return this.send("Input.insertText", { text });
  }

  /** Presses Tab until the focus is on an element with this role and name. */
  async tabTo(role, name, most = 150) {
    for (let step = 0; step < most; step++) {
      await this.press("Tab");
      const focused = await this.focused();
      if (focused?.role === role && matches(focused.name, name)) return focused;
    }
    throw new Error(`Tab does not reach the ${role} ${name}\n${await this.describe()}`);
  }

  /** Returns the role and the name of the element that has the focus. */
  async focused() {
    const { result: object } = await this.send("Runtime.evaluate", { expression: "document.activeElement", objectGroup: "test" });
    const { nodes: [node] } = await this.send("Accessibility.getPartialAXTree",
      { objectId: object.objectId, fetchRelatives: false });
    return node && { role: node.role?.value, name: plain(node.name?.value ?? "") };
  }

  async metrics() {
    const { metrics } = await this.send("Performance.getMetrics");
    return Object.fromEntries(metrics.map(({ name, value }) => [name, value]));
  }

  /** Returns counts and sizes of what is alive. Elements that were found before are let go. */
  async memory() {
    await this.send("Runtime.releaseObjectGroup", { objectGroup: "test" });
    // Twice: what the first finalizes is collected by the second.
    for (let time = 0; time < 2; time++) await this.send("HeapProfiler.collectGarbage");
    const { Nodes, JSEventListeners, JSHeapUsedSize } = await this.metrics();
    return { nodes: Nodes, listeners: JSEventListeners, heap: JSHeapUsedSize };
  }

  /** Writes a picture, to look at what a test sees. */
  async screenshot(path) {
    const { data } = await this.send("Page.captureScreenshot", { captureBeyondViewport: true });
    writeFileSync(path, Buffer.from(data, "base64"));
  }

  /** Returns what axe finds in the page as it is. */
  async axe() {
    if (!(await this.evaluate(() => "axe" in window))) await this.run(readFileSync(needed("FLUXGATE_AXE"), "utf8"));
    return this.evaluate(async () => {
      const { violations } = await window.axe.run(document, { resultTypes: ["violations"] });
      return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`).join("\n")}`);
    });
  }

  async grant(permissions, origin) {
    await this.#browser.send("Browser.grantPermissions", { permissions, origin, browserContextId: this.#context });
  }

  async downloads(folder) {
    const params = { behavior: "allow", downloadPath: folder, browserContextId: this.#context };
    await this.#browser.send("Browser.setDownloadBehavior", params);
  }
}

/** Returns the value of a variable of the environment that scripts/test sets. */
export function needed(variable) {
  const value = process.env[variable];
  if (!value) throw new Error(`${variable} is not set (scripts/test sets it)`);
  return value;
}

function matches(text, name) {
  if (name === undefined) return true;
  return name instanceof RegExp ? name.test(text) : text === name;
}

function withResolvers() {
  let resolve, reject;
  const promise = new Promise((yes, no) => ([resolve, reject] = [yes, no]));
  return { promise, resolve, reject };
}
