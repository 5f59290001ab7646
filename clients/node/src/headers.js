// The header lines of a request: those that rules may read, and those that servers may mistake.

import { Ambiguous } from "./ambiguous.js";
import { losslessText, trimAscii } from "./text.js";

/** Hop-by-hop headers, and secrets that no rule should read. They are sent only if named. */
const WITHHELD = new Set(
  `authorization connection cookie keep-alive proxy-authenticate proxy-authorization
  proxy-connection te trailer transfer-encoding upgrade`.split(/\s+/),
);

/** Headers whose lines form one list, so clients and proxies may repeat them with other values. */
const LISTS = new Set(
  `accept accept-charset accept-encoding accept-language access-control-request-headers baggage
  cache-control cdn-loop content-encoding content-language expect forwarded grpc-accept-encoding
  if-match if-none-match link pragma prefer sec-websocket-extensions sec-websocket-protocol
  tracestate vary via warning x-forwarded-for x-forwarded-host x-forwarded-port
  x-forwarded-proto`.split(/\s+/),
);

/** The header in which proxies report the client's address. */
export const FORWARDED = "x-forwarded-for";

/** Names that no server takes for others. */
const PLAIN_NAME = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/;

/** How many names are remembered: a client chooses them. */
const MAX_NAMES = 1_000;

/** Reads the headers of requests. */
export class HeaderReader {
  /** The names that are sent; undefined for all that are not withheld. */
  #selected;
  /** The names that are counted, and their folded forms. */
  #counted;
  #folded;
  /** How names are treated, by the spelling of the request. */
  #names = new Map();

  /** `counted` are the headers that identify a client, `selected` those that rules read. */
  constructor(counted, selected) {
    this.#selected = selected && new Set(selected.map((name) => name.toLowerCase()));
    this.#counted = new Set([...counted, ...(this.#selected ?? [])]);
    this.#folded = new Set(Array.from(this.#counted, fold));
  }

  /**
   * Returns the value of each header that rules may read or that is counted, and the lines of
   * `X-Forwarded-For`. Throws `Ambiguous` if one of them has two values, or if servers may take
   * another for one that is counted.
   */
  read(rawHeaders) {
    const sent = new Values();
    const counted = new Values();
    const forwarded = [];
    for (let at = 0; at < rawHeaders.length; at += 2) {
      const header = this.#nameOf(rawHeaders[at]);
      if (header.isAlike) {
        throw new Ambiguous(
          "servers may take the name of a header for one that requests are counted by, or for " +
            "one that proxies set",
        );
      }
      if (!header.isSent && !header.isCounted) continue;
      const value = trimAscii(rawHeaders[at + 1]);
      checkValue(header.name, value);
      if (header.name === FORWARDED) forwarded.push(value);
      const text = losslessText(value);
      if (header.isSent) add(sent, header, text);
      if (header.isCounted) add(counted, header, text);
    }
    return { sent, counted, forwarded };
  }

  #nameOf(rawName) {
    const known = this.#names.get(rawName);
    if (known !== undefined) return known;
    const name = rawName.toLowerCase();
    const isCounted = this.#counted.has(name);
    const isPlain = PLAIN_NAME.test(name);
    const isSent = this.#selected?.has(name) ?? ((isPlain || isCounted) && !WITHHELD.has(name));
    const found = {
      name,
      isCounted,
      isSent,
      isAlike: !isCounted && this.#folded.has(fold(name)),
      // Cookies may be split into several lines. Lists that are named have one value.
      isList: name === "cookie" || name === FORWARDED || this.#isOpenList(name),
    };
    if (this.#names.size < MAX_NAMES) this.#names.set(rawName, found);
    return found;
  }

  #isOpenList(name) {
    return LISTS.has(name) && !this.#selected?.has(name);
  }
}

/** Values by name, without the names that every object has: a client chooses these. */
function Values() {}
// Objects that are created without a prototype are slow.
Values.prototype = Object.create(null);

function add(values, { name, isList }, text) {
  const known = values[name];
  if (known === undefined) {
    values[name] = text;
  } else if (known !== text && !isList) {
    throw new Ambiguous(
      "a header, query parameter or cookie that requests are counted by is repeated with " +
        "different values",
    );
  }
}

/** Returns a name as servers that fold names compare it. */
function fold(name) {
  const core = name.replace(/^[^a-z0-9]+|[^a-z0-9]+$/g, "");
  return core.replace(/[^a-z0-9]/g, "_");
}

/** Rejects a value that servers clean in different ways. */
function checkValue(name, value) {
  const hasEncodedWord = value.includes("=?") && value.includes("?=");
  const isAuthorization = name === "authorization";
  if (
    hasEncodedWord ||
    hasSpaceAtEnds(value) ||
    (isAuthorization && /[^\u0000-\u007f]/.test(value))
  ) {
    throw new Ambiguous(
      "a value that requests are counted by contains control characters, encoded words or bytes " +
        "that are not UTF-8, or begins or ends with white space",
    );
  }
  if (isAuthorization && /^bearer\b/i.test(value) && !/^bearer +[^\s]+$/i.test(value)) {
    throw new Ambiguous("`Authorization: Bearer` must have exactly one token");
  }
}

/**
 * Returns whether white space is at an end that HTTP does not remove, such as U+00A0. Some servers
 * read bytes that are not UTF-8 as Latin-1.
 */
function hasSpaceAtEnds(value) {
  if (isGraphic(value.charCodeAt(0)) && isGraphic(value.charCodeAt(value.length - 1))) return false;
  const text = losslessText(value);
  return /^[\s\u0085\ufeff\u{10ff85}\u{10ffa0}]|[\s\u0085\ufeff\u{10ff85}\u{10ffa0}]$/u.test(text);
}

function isGraphic(code) {
  return code > 0x20 && code < 0x7f;
}
