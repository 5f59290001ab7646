// The latest recorded requests of an identity.

import { get } from "../api.js";
import { button, card, problemNotice, table } from "../components.js";
import { h, replace } from "../dom.js";
import { count, time } from "../format.js";
import { describe } from "./parts.js";

/** @typedef {import("./parts.js").Values} Values */

/**
 * @typedef {object} Recorded a recorded request, in the format of `simulate`
 * @property {number} [t]
 * @property {string} [time]
 * @property {string} [rule_set]
 * @property {string} [user]
 * @property {string} [api_key]
 * @property {string} [ip]
 * @property {string} [method]
 * @property {string} [path]
 * @property {Record<string, unknown>} [headers]
 * @property {Record<string, unknown>} [attributes]
 * @property {number} [cost]
 * @property {string} [settle]
 */

const SHOWN = 50;
const HOW = "Recording is off. Set admin: { record: true } in the config, "
  + "and the service keeps its latest requests.";

/**
 * @param {(event: Recorded) => void} onExplain
 */
export function recentRequests(onExplain) {
  const body = h("div", {});
  const element = card("Recent requests", body);
  let shown = "";

  /**
   * Shows the requests that have all these values, and returns the latest.
   * @param {Values} values
   * @param {AbortSignal} signal
   * @returns {Promise<Recorded | undefined>}
   */
  async function refresh(values, signal) {
    try {
      const { records, events } = await get("/v1/recent?n=10000", signal);
      if (signal.aborted) return;
      const own = /** @type {Recorded[]} */ (events).filter((event) =>
        event.settle === undefined && [...values].every(([part, value]) => valueOf(event, part) === value));
      // The table stays as it is, with its focus, if there is nothing new.
      const next = JSON.stringify([records, own.length, own.at(-1), [...values]]);
      if (next !== shown) show(records, own, values);
      shown = next;
      return own.at(-1);
    } catch (error) {
      if (signal.aborted) return;
      shown = "";
      replace(body, problemNotice(error));
    }
  }

  /**
   * @param {boolean} records
   * @param {Recorded[]} own
   * @param {Values} values
   */
  function show(records, own, values) {
    if (!records) return replace(body, h("p", { class: "quiet" }, HOW));
    if (own.length === 0) {
      return replace(body, h("p", { class: "quiet" }, `No recorded request has ${describe(values)}.`));
    }
    const latest = own.slice(-SHOWN).reverse();
    const rows = latest.map((event) => [
      time(timeOf(event)),
      event.method ?? "–",
      h("span", { class: "mono id-path" }, event.path ?? "–"),
      event.rule_set ?? "–",
      event.ip ?? "–",
      explainButton(event),
    ]);
    const all = own.length > SHOWN
      ? `The latest ${SHOWN} of ${count(own.length, "recorded request")}.`
      : `${count(own.length, "recorded request")}.`;
    const list = table(["Time", "Method", "Path", "Rule set", "IP address", "Decision now"], rows,
      { caption: "Recent requests, newest first" });
    list.classList.add("id-recent");
    replace(body, h("p", { class: "hint" }, all), list);
  }

  /** @param {Recorded} event */
  function explainButton(event) {
    const control = button("Explain", () => onExplain(event));
    control.setAttribute("aria-label", `Explain ${event.method ?? ""} ${event.path ?? ""}`);
    return control;
  }

  return { element, refresh };
}

/** @param {Recorded} event */
function timeOf({ t, time }) {
  return t === undefined ? Date.parse(time ?? "") : t / 1000;
}

/**
 * @param {Recorded} event
 * @param {string} part
 */
function valueOf(event, part) {
  const [kind, name] = part.split(/:(.*)/s);
  if (kind === "attr") return asText(event.attributes?.[name]);
  if (kind === "header") {
    const found = Object.entries(event.headers ?? {}).find(([header]) => header.toLowerCase() === name);
    return asText(found?.[1]);
  }
  return asText(/** @type {Record<string, unknown>} */ (/** @type {unknown} */ (event))[part]);
}

/** @param {unknown} value */
function asText(value) {
  return value === undefined || value === null ? undefined : String(value);
}
