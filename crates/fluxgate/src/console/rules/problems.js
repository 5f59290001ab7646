// Faults and warnings of the text: asks the service as one types, and lists them.

import { post, Problem } from "../api.js";
import { h, replace } from "../dom.js";
import { count } from "../format.js";

/** @typedef {import("./editor.js").Mark} Mark */
/** @typedef {import("./document.js").Position} Position */
/** @typedef {{rules: () => string, unwrap: (position: Position) => Position, signal: AbortSignal, onMarks: (marks: Mark[]) => void, moveTo: (line: number, column: number) => void}} Options */

const PAUSE_MS = 300;
/** More are of no help, and a list of thousands is slow. */
const MOST_SHOWN = 100;

export class Problems {
  #options;
  #status = h("p", { id: "editor-status", class: "editor-status", role: "status" });
  #list = h("ul", { class: "problems" });
  #timer = 0;
  #call = new AbortController();
  /** @type {"checking" | "good" | "faulty" | "unknown"} */
  state = "unknown";

  /** @param {Options} options */
  constructor(options) {
    this.#options = options;
    this.element = h("div", { class: "stack-small" }, this.#status, this.#list);
    options.signal.addEventListener("abort", () => this.#stop());
  }

  /** Checks the text once it has been quiet for a moment. */
  check(pause = PAUSE_MS) {
    this.#stop();
    this.state = "checking";
    this.#timer = setTimeout(() => this.#ask(), pause);
  }

  /**
   * Shows what the service says about the text.
   * @param {Position[]} faults
   * @param {Position[]} warnings
   */
  show(faults, warnings) {
    this.#stop();
    this.state = faults.length > 0 ? "faulty" : "good";
    const marks = [...marked("fault", faults), ...marked("warning", warnings)];
    this.#status.dataset.state = faults.length > 0 ? "fault" : warnings.length > 0 ? "warning" : "good";
    this.#say([faults.length > 0 && count(faults.length, "fault"),
      warnings.length > 0 && count(warnings.length, "warning")].filter(Boolean).join(", ") || "No faults");
    replace(this.#list, marks.slice(0, MOST_SHOWN).map((mark) => this.#item(mark)),
      marks.length > MOST_SHOWN && h("li", {}, `and ${marks.length - MOST_SHOWN} more`));
    this.#options.onMarks(marks);
  }

  #stop() {
    clearTimeout(this.#timer);
    this.#call.abort();
  }

  async #ask() {
    this.#call = new AbortController();
    const { signal } = this.#call;
    try {
      const answer = await post("/v1/validate", { rules: this.#options.rules() }, signal);
      this.show(answer.faults.map(this.#options.unwrap), answer.warnings.map(this.#options.unwrap));
    } catch (error) {
      if (signal.aborted) return;
      this.state = "unknown";
      this.#status.dataset.state = "warning";
      const why = error instanceof Problem && error.status === 413
        ? "The text is longer than 64 KiB. Check it with fluxgate validate."
        : /** @type {Error} */ (error).message;
      this.#say(`Not checked. ${why}`);
      replace(this.#list);
      this.#options.onMarks([]);
    }
  }

  /**
   * The same words again would be read out again.
   * @param {string} text
   */
  #say(text) {
    if (this.#status.textContent !== text) this.#status.textContent = text;
  }

  /** @param {Mark} mark */
  #item({ kind, line, column, message }) {
    const go = h("button", {
      type: "button",
      class: "link",
      onclick: () => this.#options.moveTo(line, column),
    }, `Line ${line}:${column}`);
    return h("li", { "data-mark": kind },
      h("span", { class: "problem-kind" }, kind === "fault" ? "Fault" : "Warning"), go, h("span", {}, message));
  }
}

/**
 * @param {"fault" | "warning"} kind
 * @param {Position[]} positions
 * @returns {Mark[]}
 */
function marked(kind, positions) {
  return positions.map((position) => ({ kind, ...position }));
}
