// Stored rules, which have versions (ETags), and drafts of their texts.

import { get, Problem, send } from "../api.js";
import { refresh } from "../polling.js";

/** @import { Fault } from "../api.js" */
/** @typedef {{text: string, etag: string | null}} Stored `etag` is null if nothing is stored */
/** @typedef {Record<string, any>} Change of a rule or a set, as docs/admin.md has it */
/** @typedef {{changes: Change[], warnings: Fault[], delayed: string | null, etag: string | null}} Written */
/** `base` is the active text. @typedef {Stored & {base: string, set?: string}} Draft */

/** No name of a set begins with a control character. */
export const ALL = "\u0001all";
export const NEW = "\u0001new";

/** @type {Map<string, Draft>} */
export const drafts = new Map();

addEventListener("beforeunload", (event) => {
  if (drafts.size > 0) event.preventDefault();
});

/** @param {string} set @param {string} [rule] */
export function pathOf(set, rule) {
  const path = `/v1/rule_sets/${encodeURIComponent(set)}`;
  return rule === undefined ? path : `${path}/rules/${encodeURIComponent(rule)}`;
}

/**
 * Returns the stored text of a set; of one that does not exist, an empty text.
 * @param {string} set @returns {Promise<Stored>}
 */
export async function readText(set) {
  try {
    return await get(`${pathOf(set)}/text`);
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return { text: "", etag: null };
    throw error;
  }
}

/**
 * @param {string} set @param {string} text @param {string | null} etag
 * @param {string} [reason] why it is written, for the audit log
 */
export async function writeText(set, text, etag, reason) {
  const headers = { "Content-Type": "application/yaml", ...condition(etag) };
  return written(await send("PUT", pathOf(set), { body: text, headers, reason }));
}

/** Deletes a set, unless it has changed since it was read. @param {string} set @param {string} reason */
export async function deleteSet(set, reason) {
  const { etag } = await readText(set);
  await send("DELETE", pathOf(set), { headers: condition(etag), reason });
  drafts.delete(set);
  refresh("/v1/rule_sets");
}

/**
 * Changes fields of one stored rule; removes those that are undefined.
 * @param {string} set @param {string} rule @param {Record<string, unknown>} fields
 * @param {string} reason
 */
export async function changeRule(set, rule, fields, reason) {
  const path = pathOf(set, rule);
  const response = await send("GET", path);
  const body = { ...(await response.json()), ...fields };
  const headers = condition(response.headers.get("ETag"));
  return written(await send("PUT", path, { body, headers, reason }));
}

/** @param {string} set @param {string} rule @param {"enable" | "disable"} action @param {string} reason */
export const switchRule = async (set, rule, action, reason) =>
  written(await send("POST", `${pathOf(set, rule)}/${action}`, { reason }));

/** @param {string | null} etag @returns {Record<string, string>} */
const condition = (etag) => etag === null ? { "If-None-Match": "*" } : { "If-Match": etag };

/** @param {Response} response @returns {Promise<Written>} */
async function written(response) {
  const { changes = [], warnings = [], detail } = await response.json();
  // 202: stored, but something prevents that it becomes active here.
  const delayed = response.status === 202 ? detail : null;
  refresh("/v1/rule_sets");
  return { changes, warnings, delayed, etag: response.headers.get("ETag") };
}
