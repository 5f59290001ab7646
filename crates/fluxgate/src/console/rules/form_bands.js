// The limits of a rule in its form.

import { button, field, textInput } from "../components.js";
import { h } from "../dom.js";
import { addItem, removeItem, setEntry, textOf, valueIn } from "./yaml.js";

/** @import { List, Node, Splice } from "./yaml.js" */
/**
 * A limit as the form shows it. `null`: the form cannot change it.
 * @typedef {{amount: string, per: string | null, more: string}} Shown
 */

const SHORT = /^(\d[\d_]*)\/(.+)$/;
/** What a map may have beside the amount and the window. */
const MORE = ["burst", "refill", "period", "calendar", "time_zone"];

/**
 * @param {List} bands @param {string} algorithm
 * @param {(make: (text: string, bands: List) => Splice | null) => void} edit @param {() => void} redraw
 */
export function bandFields(bands, algorithm, edit, redraw) {
  const isSlots = algorithm === "concurrency";
  const rows = bands.items.map((band, index) => {
    const shown = shownOf(band);
    if (!shown) return h("p.hint", `Limit ${index + 1} can only be edited as text.`);
    const amount = input(`form-amount-${index}`, shown.amount, (value) => edit((text, now) => setAmount(text, now.items[index], value)));
    const per = !isSlots && shown.per !== null
      && input(`form-per-${index}`, shown.per, (value) => edit((text, now) => setPer(text, now.items[index], value)));
    return h("div.row.bottom",
      field(isSlots ? "Slots at the same time" : "Limit", amount),
      per && field("per", per),
      shown.more && h("span.hint", shown.more),
      bands.items.length > 1 && button("Remove", () => {
        edit((text, now) => removeItem(text, now, index));
        redraw();
      }, { of: `limit ${index + 1}` }));
  });
  return h("fieldset.stack-small.bands", h("legend", isSlots ? "Slots" : "Limits"),
    rows,
    !isSlots && h("p.hint", "Such as 100 per 1m; units of time are ms, s, m, h and d. All limits apply."),
    h("div.actions", button("Add a limit", () => {
      edit((text, now) => addItem(text, now, isSlots ? "{ capacity: 10 }" : "1000/h"));
      redraw();
    })));
}

/** @param {string} name @param {string} value @param {(value: string) => void} onChange */
const input = (name, value, onChange) => textInput({ name, value, size: 8, oninput: (/** @type {Event} */ event) =>
  onChange(/** @type {HTMLInputElement} */ (event.target).value.trim()) });

/** @param {Node} band @returns {Shown | null} */
function shownOf(band) {
  const short = SHORT.exec(textOf(band) ?? "");
  if (short) return { amount: short[1], per: full(short[2]), more: "" };
  if (band.kind !== "map") return null;
  const get = (/** @type {string} */ name) => textOf(valueIn(band, name));
  const more = MORE.filter((name) => get(name) !== null).map((name) => `${name.replace("_", " ")} ${get(name)}`).join(", ");
  const rate = SHORT.exec(get("rate") ?? "");
  if (rate) return { amount: rate[1], per: full(rate[2]), more };
  const capacity = get("capacity");
  return capacity === null ? null : { amount: capacity, per: get("window"), more };
}

/** @param {string} text @param {Node} band @param {string} amount @returns {Splice | null} */
function setAmount(text, band, amount) {
  if (band.kind === "map" && valueIn(band, "capacity")) return setEntry(text, band, "capacity", amount);
  return setShort(text, band, (_, per) => `${amount}/${per}`);
}

/** @param {string} text @param {Node} band @param {string} per @returns {Splice | null} */
function setPer(text, band, per) {
  if (band.kind === "map" && valueIn(band, "window")) return setEntry(text, band, "window", per);
  return setShort(text, band, (amount) => `${amount}/${per.replace(/^1(?=[a-z])/, "")}`);
}

/** @param {string} text @param {Node} band @param {(amount: string, per: string) => string} next @returns {Splice | null} */
function setShort(text, band, next) {
  const node = band.kind === "map" ? valueIn(band, "rate") : band;
  const [amount, per] = (textOf(node) ?? "").split(/\/(.*)/s);
  return node && per !== undefined ? { start: node.start, end: node.end, text: next(amount, per) } : null;
}

/** `s` is `1s`. @param {string} per */
const full = (per) => (/^[a-z]/.test(per) ? `1${per}` : per);
