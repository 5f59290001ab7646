// Elements, made without markup: text is always text, so nothing that a client has sent can
// become an element or a script.

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {{[name: string]: unknown} | Child | Child[]} Part attributes, or children */

/**
 * The tag of `tag.class.class`.
 * @template {string} T
 * @typedef {T extends `${infer Tag}.${string}` ? Tag : T} TagOf
 */

/**
 * Makes an HTML element: `h("p.hint", { id: "a" }, "text")`. Attributes that are functions, such
 * as `onclick`, become listeners; `true` is an empty attribute, `false` and `null` are left out.
 * @template {string} T
 * @param {T} tag with its classes
 * @param {...Part} parts
 * @returns {TagOf<T> extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[TagOf<T>] : never}
 */
export function h(tag, ...parts) {
  return /** @type {any} */ (make("http://www.w3.org/1999/xhtml", tag, parts));
}

/**
 * Makes an SVG element.
 * @template {string} T
 * @param {T} tag
 * @param {...Part} parts
 * @returns {TagOf<T> extends keyof SVGElementTagNameMap ? SVGElementTagNameMap[TagOf<T>] : never}
 */
export function svg(tag, ...parts) {
  return /** @type {any} */ (make("http://www.w3.org/2000/svg", tag, parts));
}

/** @param {Element} element @param {...Part} parts */
export function replace(element, ...parts) {
  element.replaceChildren();
  add(element, parts);
}

/** @param {Element} element @param {{[name: string]: unknown}} all */
export function set(element, all) {
  for (const [name, value] of Object.entries(all)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") {
      element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    } else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/** The same text again would be read out again. @param {Element} element @param {string} text */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** @param {string} space @param {string} tag @param {Part[]} parts */
function make(space, tag, parts) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElementNS(space, name);
  set(element, { class: classes.join(" ") || null });
  add(element, parts);
  return element;
}

/** @param {Element} element @param {Part[]} parts */
function add(element, parts) {
  for (const part of parts.flat()) {
    if (part === null || part === undefined || part === false) continue;
    if (typeof part === "object" && !(part instanceof Node)) set(element, part);
    else element.append(typeof part === "number" ? String(part) : part);
  }
}
