// The path of a request in the forms in which servers read it, and patterns that match it.

import { Ambiguous } from "./ambiguous.js";
import { losslessText } from "./text.js";

/** What only some servers read as it stands: escapes, `\`, `;`, control characters, `//`, `/.`. */
const SPECIAL = /[%\\;\u0000-\u001f\u007f]|\/[/.]/;

const SLASH = 0x2f;
const BACKSLASH = 0x5c;
const SEMICOLON = 0x3b;
const PERCENT = 0x25;
const DELETE = 0x7f;

/**
 * Reads the path of a request target. Returns its raw form, its normal form with the slash at the
 * end, and a list of normal forms: that of `//host/x` also holds `/x`. In the normal form every
 * percent escape is decoded once, `\` is `/`, each segment is cut at its first `;`, and repeated
 * slashes are merged. Throws `Ambiguous` if servers could read it in yet other ways.
 */
export function readPath(target) {
  const path = losslessText(pathOf(target));
  if (path === "*") return plainPath("/*");
  if (path === "") return plainPath("/");
  if (!path.startsWith("/")) throw new Ambiguous("the target is not a path");
  // Frameworks cut a target there, and rules would see another path.
  if (path.includes("#")) throw new Ambiguous("the path has a `#` in it");
  if (!SPECIAL.test(path)) return plainPath(path);
  const normal = normalForm(path);
  const behindHost = pathBehindHost(path);
  const normalForms = behindHost === undefined ? [normal] : [normal, normalForm(behindHost)];
  return { raw: path, normal, normalForms };
}

function plainPath(path) {
  return { raw: path, normal: path, normalForms: [path] };
}

/** Returns the target without its query, and without the host of an absolute one. */
function pathOf(target) {
  const end = target.indexOf("?");
  const path = end < 0 ? target : target.slice(0, end);
  if (path.startsWith("/") || path === "*") return path;
  const absolute = /^https?:\/\/[^/?#]*/i.exec(path);
  return absolute === null ? path : path.slice(absolute[0].length);
}

export function withoutSlash(path) {
  return path.length > 1 && path.endsWith("/") ? path.slice(0, -1) : path;
}

/** Returns what servers that parse `//host/x` as a URL take for the path. */
function pathBehindHost(path) {
  const host = /^\/[/\\][^/\\]*/.exec(path);
  return host === null ? undefined : path.slice(host[0].length) || "/";
}

/** Returns the normal form with its slash at the end. */
function normalForm(path) {
  const bytes = Buffer.from(path, "utf8");
  const normal = Buffer.alloc(bytes.length);
  let length = 0;
  // Whether a `;` has ended the segment.
  let isCut = false;
  for (let at = 0; at < bytes.length; at += 1) {
    const escaped = escapedByte(bytes, at);
    const byte = escaped ?? bytes[at];
    if (escaped !== undefined) at += 2;
    if (byte < 0x20 || byte === DELETE) {
      throw new Ambiguous("the path has a control character in it");
    }
    if (byte === SLASH || byte === BACKSLASH) {
      const isPlain = escaped === undefined && byte === SLASH;
      if (isCut && !isPlain) {
        throw new Ambiguous("the path has an escaped slash or a backslash behind a `;`");
      }
      isCut = false;
      if (length === 0 || normal[length - 1] !== SLASH) normal[length++] = SLASH;
    } else if (byte === SEMICOLON) {
      isCut = true;
    } else if (!isCut) {
      normal[length++] = byte;
    }
  }
  const text = decode(normal.subarray(0, length));
  if (text.split("/").some((segment) => segment === "." || segment === "..")) {
    throw new Ambiguous("the path has `.` or `..` in it");
  }
  return text;
}

/** Returns the byte of a percent escape that begins here, if one does. */
function escapedByte(bytes, at) {
  if (bytes[at] !== PERCENT || at + 2 >= bytes.length) return undefined;
  const digits = bytes.toString("latin1", at + 1, at + 3);
  return /^[0-9a-fA-F]{2}$/.test(digits) ? Number.parseInt(digits, 16) : undefined;
}

function decode(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Ambiguous("the path is not UTF-8 when its escapes are decoded");
  }
}

/**
 * Patterns for paths: `?` is one character, `*` any characters of a segment, `{name}` one segment
 * that is not empty, `**` zero or more whole segments.
 */
export class PathSet {
  #patterns;
  #ignoresCase;

  constructor(patterns, ignoresCase) {
    if (!Array.isArray(patterns)) throw new TypeError("path patterns are a list");
    this.#ignoresCase = ignoresCase;
    this.#patterns = patterns.map((text) => parsePattern(ignoresCase ? lowered(text) : text));
  }

  /** Returns whether one of the forms matches, with or without the slash at the end. */
  containsEither({ raw, normalForms }) {
    const matches = (form) => this.#contains(form) || this.#contains(withoutSlash(form));
    return this.#contains(raw) || normalForms.some(matches);
  }

  /** Returns whether all forms match. */
  containsBoth({ raw, normalForms }) {
    return this.#contains(raw) && normalForms.every((form) => this.#contains(form));
  }

  #contains(path) {
    const text = this.#ignoresCase ? lowered(path) : path;
    const segments = text.slice(1).split("/");
    return this.#patterns.some((pattern) => matches(pattern, segments, matchesSegment));
  }
}

/** Lowers ASCII letters only. */
function lowered(text) {
  return text.replace(/[A-Z]+/g, (capitals) => capitals.toLowerCase());
}

/** Any number of segments or characters. */
const MANY = Symbol("many");

function parsePattern(text) {
  if (typeof text !== "string" || !text.startsWith("/")) {
    throw new TypeError(`a path pattern must begin with \`/\`; \`${text}\` does not`);
  }
  return text.slice(1).split("/").map(parseSegment);
}

function parseSegment(text) {
  if (text === "**") return MANY;
  if (text === "*") return () => true;
  if (/^\{[\p{L}\p{N}_.-]+\}$/u.test(text)) return (segment) => segment !== "";
  if (/[{}]/.test(text)) {
    throw new TypeError(`\`{name}\` must be a whole segment; \`${text}\` is not: write \`*\``);
  }
  if (text.includes("**")) {
    throw new TypeError(`\`**\` must be a whole segment; \`${text}\` has more in it`);
  }
  if (!/[*?]/.test(text)) return (segment) => segment === text;
  const glob = Array.from(text, (char) => (char === "*" ? MANY : char));
  const matchesChar = (wanted, char) => wanted === "?" || wanted === char;
  return (segment) => matches(glob, Array.from(segment), matchesChar);
}

function matchesSegment(pattern, segment) {
  return pattern(segment);
}

/**
 * Matches a list with a pattern, in time that grows with the product of their lengths at most: a
 * client chooses the path.
 */
function matches(pattern, list, matchesOne) {
  let at = 0;
  let next = 0;
  let many = -1;
  let resume = 0;
  while (next < list.length) {
    if (at < pattern.length && pattern[at] === MANY) {
      many = at++;
      resume = next;
    } else if (at < pattern.length && matchesOne(pattern[at], list[next])) {
      at += 1;
      next += 1;
    } else if (many >= 0) {
      at = many + 1;
      next = ++resume;
    } else {
      return false;
    }
  }
  while (at < pattern.length && pattern[at] === MANY) at += 1;
  return at === pattern.length;
}
