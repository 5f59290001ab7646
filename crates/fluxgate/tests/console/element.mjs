// Elements of a page, and what waits for them.

import { setTimeout as sleep } from "node:timers/promises";

/** The machine may be busy. */
const DEADLINE_MS = 60_000;
const POLL_MS = 25;

/** Polls until `condition` returns something true, and returns it. */
export async function until(what, condition, { deadline = DEADLINE_MS, explain } = {}) {
  const end = Date.now() + deadline;
  let error;
  for (;;) {
    try {
      error = undefined;
      const value = await condition();
      if (value) return value;
    } catch (caught) {
      error = caught;
    }
    if (Date.now() > end) break;
    await sleep(POLL_MS);
  }
  const more = [error && String(error.stack), await explain?.()].filter(Boolean).join("\n");
  throw new Error(`not within ${deadline} ms: ${what}\n${more}`);
}

/** An element of a page. */
export class Element {
  #again;

  /** `again` finds what has taken its place after the page was drawn again. */
  constructor(page, objectId, node, again) {
    this.page = page;
    this.objectId = objectId;
    this.name = plain(node.name?.value ?? "");
    this.properties = Object.fromEntries((node.properties ?? []).map(({ name, value }) => [name, value.value]));
    this.#again = again;
  }

  /** Returns the element, or the one that has taken its place in the document. */
  async current() {
    const isThere = await this.call((element) => element.isConnected);
    return isThere ? this : (await this.#again()) ?? this;
  }

  /** Calls a function in the page with the element and the arguments. */
  async call(body, ...values) {
    const functionDeclaration = `function (...values) { return (${body})(this, ...values); }`;
    const given = values.map((value) => ({ value }));
    return result(await this.page.send("Runtime.callFunctionOn", {
      objectId: this.objectId, functionDeclaration, arguments: given, awaitPromise: true, returnByValue: true,
    }));
  }

  async text() {
    return plain(await (await this.current()).call((element) => element.innerText));
  }

  async value() {
    return (await this.current()).call((element) => element.value);
  }

  attribute(name) {
    return this.call((element, attribute) => element.getAttribute(attribute), name);
  }

  async shows(text) {
    const found = (shown) => (text instanceof RegExp ? text.test(shown) : shown.includes(text));
    await until(`${this.name} shows ${text}`, async () => found(await this.text()),
      { explain: () => this.page.describe() });
  }

  /** Returns the box of the element in the window and its middle, once it does not move. */
  middle() {
    return until(`${this.name} stays where it is`, () => this.call(async (element) => {
      const frame = () => new Promise((done) => requestAnimationFrame(done));
      element.scrollIntoView({ block: "center", inline: "nearest", behavior: "instant" });
      const first = element.getBoundingClientRect();
      await frame();
      await frame();
      const { left, top, right, bottom, x, y } = element.getBoundingClientRect();
      if (x !== first.x || y !== first.y) return null;
      return { x: (left + right) / 2, y: (top + bottom) / 2, left, top, right, bottom };
    }), { explain: () => this.page.describe() });
  }

  /** Clicks on the middle, as a person does: what is in front gets the click. */
  async click() {
    await until(`${this.name} gets the click`, () => this.tryClick(), { explain: () => this.page.describe() });
  }

  /** Clicks once, and returns whether the element got the click. Nothing else gets it. */
  async tryClick() {
    const { x, y } = await this.middle();
    const inFront = await this.call((element, x, y) => {
      const isIn = (node) => element.contains(node) || Boolean(node?.closest?.("label")?.contains(element));
      window.clicked = { isDone: false, end: new AbortController() };
      const { clicked } = window;
      // The page may draw something else there at the last moment.
      for (const type of ["pointerdown", "mousedown", "pointerup", "mouseup", "click"]) {
        window.addEventListener(type, (event) => {
          if (!event.isTrusted) return;
          if (isIn(event.target)) return void (clicked.isDone ||= type === "click");
          event.preventDefault();
          event.stopImmediatePropagation();
        }, { capture: true, signal: clicked.end.signal });
      }
      return isIn(document.elementFromPoint(x, y));
    }, x, y);
    if (inFront) {
      await this.page.mouse("mouseMoved", x, y);
      await this.page.mouse("mousePressed", x, y, 1);
      await this.page.mouse("mouseReleased", x, y);
    }
    return this.page.evaluate(() => {
      window.clicked?.end.abort();
      return window.clicked?.isDone;
    });
  }

  /** Replaces the text of a field. */
  async fill(text) {
    await until(`${this.name} has the focus`, async () => {
      const field = await this.current();
      const hasFocus = () => field.call((element) => (element.focus(), document.activeElement === element));
      if (!(await hasFocus())) return false;
      await this.page.press("a", "control");
      if (text === "") await this.page.press("Delete");
      else await this.page.type(text);
      return hasFocus();
    }, { explain: () => this.page.describe() });
  }

  /** Puts a file into a file field. */
  async choose(file) {
    await this.page.send("DOM.setFileInputFiles", { objectId: this.objectId, files: [file] });
  }
}

/** Returns a text with each run of spaces, narrow or not, as one. */
export function plain(text) {
  return text.replace(/\s+/g, " ").trim();
}

/** Returns the value of an evaluation. */
export function result({ result: value, exceptionDetails: details }) {
  if (details) throw new Error(details.exception?.description ?? details.text);
  return value.value;
}
