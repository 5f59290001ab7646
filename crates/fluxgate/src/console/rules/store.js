// Calls for stored rules, which have versions (ETags).

import { get, Problem, send } from "../api.js";

/** @typedef {{text: string, etag: string | null}} Stored `etag` is null if nothing is stored */
/** @typedef {{rule_set: string, rule: string | null, change: string, fields: {field: string, before: string | null, after: string | null}[]}} Change */
/** @typedef {{changes: Change[], warnings: import("./document.js").Position[], delayed: string | null, etag: string | null}} Written */

/** @param {string} set */
export function pathOf(set) {
  return `/v1/rule_sets/${encodeURIComponent(set)}`;
}

/**
 * Returns the stored text of a set; of one that does not exist, an empty text.
 * @param {string} set
 * @param {AbortSignal} signal
 * @returns {Promise<Stored>}
 */
export async function readText(set, signal) {
  try {
    const { text, etag } = await get(`${pathOf(set)}/text`, signal);
    return { text, etag };
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return { text: "", etag: null };
    throw error;
  }
}

/**
 * Writes the text of a set, if the stored one still has this version.
 * @param {string} set
 * @param {string} text
 * @param {string | null} etag
 * @returns {Promise<Written>}
 */
export async function writeText(set, text, etag) {
  const headers = { "Content-Type": "application/yaml", ...condition(etag) };
  return written(await send("PUT", pathOf(set), { body: text, headers }));
}

/**
 * Changes fields of one stored rule, if nobody else changes it meanwhile. A field that is
 * undefined is removed.
 * @param {string} set
 * @param {string} rule
 * @param {Record<string, unknown>} fields
 * @returns {Promise<Written>}
 */
export async function changeRule(set, rule, fields) {
  const path = `${pathOf(set)}/rules/${encodeURIComponent(rule)}`;
  const response = await send("GET", path);
  const body = { ...(await response.json()), ...fields };
  const headers = condition(response.headers.get("ETag"));
  return written(await send("PUT", path, { body, headers }));
}

/**
 * @param {string} set
 * @param {string} rule
 * @param {boolean} enabled
 * @returns {Promise<Written>}
 */
export async function enableRule(set, rule, enabled) {
  const path = `${pathOf(set)}/rules/${encodeURIComponent(rule)}/${enabled ? "enable" : "disable"}`;
  return written(await send("POST", path));
}

/**
 * @param {string | null} etag
 * @returns {Record<string, string>}
 */
function condition(etag) {
  return etag === null ? { "If-None-Match": "*" } : { "If-Match": etag };
}

/**
 * @param {Response} response
 * @returns {Promise<Written>}
 */
async function written(response) {
  const { changes = [], warnings = [], detail } = await response.json();
  // 202: stored, but something prevents that it becomes active here.
  const delayed = response.status === 202 ? detail : null;
  return { changes, warnings, delayed, etag: response.headers.get("ETag") };
}
