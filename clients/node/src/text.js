// Text that Node has read as Latin-1.

const NOT_ASCII = /[\u0080-\u00ff]/;

/**
 * Returns the text of bytes that Node shows as Latin-1. A byte that is not part of UTF-8 becomes
 * a character that nothing else becomes, as in the service: different bytes are different texts.
 */
export function losslessText(latin1) {
  if (!NOT_ASCII.test(latin1)) return latin1;
  let bytes = Buffer.from(latin1, "latin1");
  const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  try {
    return strict.decode(bytes);
  } catch {
    // Some of it is not UTF-8.
  }
  let text = "";
  while (bytes.length > 0) {
    const length = sequenceLength(bytes);
    text +=
      length === 0 ? String.fromCodePoint(0x10ff00 + bytes[0]) : bytes.toString("utf8", 0, length);
    bytes = bytes.subarray(Math.max(length, 1));
  }
  return text;
}

/** Returns the length of the UTF-8 sequence at the start, or 0 if there is none. */
function sequenceLength(bytes) {
  for (let length = 1; length <= Math.min(4, bytes.length); length += 1) {
    const text = bytes.toString("utf8", 0, length);
    if (!text.includes("\ufffd") || isReplacement(bytes, length)) return length;
  }
  return 0;
}

/** Returns whether the bytes are U+FFFD itself. */
function isReplacement(bytes, length) {
  return length === 3 && bytes[0] === 0xef && bytes[1] === 0xbf && bytes[2] === 0xbd;
}

/** Removes ASCII white space at both ends. `trim` also removes U+00A0, which servers may keep. */
export function trimAscii(text) {
  // Nearly all texts have none, and an expression takes longer to find that out.
  if (text.charCodeAt(0) > 0x20 && text.charCodeAt(text.length - 1) > 0x20) return text;
  return text.replace(/^[ \t\n\f\r]+|[ \t\n\f\r]+$/g, "");
}
