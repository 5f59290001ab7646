// Texts that are being edited. They outlive the view, so that one can look at other views.

/**
 * @typedef {{text: string, base: string, etag: string | null, set?: string}} Draft `base` is the
 *   active text, and `etag` its version, null if nothing is stored; `set` is the name of a new set
 */

/** @type {Map<string, Draft>} */
const drafts = new Map();

/** The names of texts that are not a stored rule set. No name of a set begins with a control character. */
export const ALL = "\u0001all";
export const NEW = "\u0001new";

/**
 * Returns the draft of a text, if somebody has changed it.
 * @param {string} name
 */
export function draftOf(name) {
  return drafts.get(name);
}

/**
 * Keeps a draft that differs from what the editor showed at first, and drops one that does not.
 * @param {string} name
 * @param {Draft} draft
 * @param {string} [first]
 */
export function keep(name, draft, first = draft.base) {
  if (draft.text === first) drafts.delete(name);
  else drafts.set(name, draft);
  guard();
}

/** @param {string} name */
export function drop(name) {
  drafts.delete(name);
  guard();
}

function guard() {
  if (drafts.size > 0) addEventListener("beforeunload", ask);
  else removeEventListener("beforeunload", ask);
}

/** @param {BeforeUnloadEvent} event */
function ask(event) {
  event.preventDefault();
}
