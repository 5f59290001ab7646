//! Text: bytes as text without loss, text that is safe to print, values as files write them,
//! hashes.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

/// Words that a YAML reader may take for a boolean or null.
const KEYWORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];

/// Returns a duration in the largest unit that divides it, such as `90s`.
///
/// ```
/// # use std::time::Duration;
/// # use fluxgate_core::text::duration_text;
/// assert_eq!(duration_text(Duration::from_secs(7200)), "2h");
/// assert_eq!(duration_text(Duration::from_millis(1500)), "1500ms");
/// assert_eq!(duration_text(Duration::ZERO), "0s");
/// ```
pub fn duration_text(span: Duration) -> String {
    const UNITS: [(u128, &str); 5] = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
        (1, "ms"),
    ];
    let millis = span.as_millis();
    let mut units = UNITS.into_iter();
    let (size, unit) = units
        .find(|(size, _)| millis > 0 && millis.is_multiple_of(*size))
        .unwrap_or((1, "s"));
    format!("{}{unit}", millis / size)
}

/// Returns a text as YAML: in quotes, unless every reader takes it for a text without them.
///
/// ```
/// # use fluxgate_core::text::yaml_scalar;
/// assert_eq!(yaml_scalar("per-user"), "per-user");
/// assert_eq!(yaml_scalar("no"), "\"no\"");
/// assert_eq!(yaml_scalar("a\"b\n"), r#""a\"b\u000a""#);
/// ```
pub fn yaml_scalar(text: &str) -> String {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(is_word)
        && !KEYWORDS.contains(&&*text.to_ascii_lowercase());
    if is_plain {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            // YAML does not print these as they are.
            '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(char));
            }
            _ => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns whether a terminal shows a character. Control characters move the cursor, ring the
/// bell or start a command; others end the line, or change the order in which text is shown.
pub fn is_printable(char: char) -> bool {
    let is_line_break = matches!(char, '\u{2028}' | '\u{2029}');
    let reorders = matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !char.is_control() && !is_line_break && !reorders
}

/// Returns a text in which every other character is written as `\u001b`, except those in
/// `kept`. JSON and quoted YAML keep their meaning.
pub fn escape_unprintable(text: impl Into<String>, kept: &[char]) -> String {
    let text = text.into();
    let is_kept = |char: char| is_printable(char) || kept.contains(&char);
    if text.chars().all(is_kept) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_kept(char) {
            escaped.push(char);
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(char));
        }
    }
    escaped
}

/// The longest text that [`shorten`] leaves as it is, in bytes.
const MAX_MESSAGE: usize = 1_000;
const ELLIPSIS: &str = " … ";

/// Returns a text of at most [`MAX_MESSAGE`] bytes: a longer one without its middle.
pub(crate) fn shorten(text: String) -> String {
    if text.len() <= MAX_MESSAGE {
        return text;
    }
    // The end often says what was expected.
    let kept = (MAX_MESSAGE - ELLIPSIS.len()) / 2;
    let head = text.floor_char_boundary(kept);
    let tail = text.ceil_char_boundary(text.len() - kept);
    [&text[..head], ELLIPSIS, &text[tail..]].concat()
}

/// A byte `b` that is not part of UTF-8 text becomes the character `FIRST + b`.
const FIRST: u32 = 0x10_FF00;

/// The first UTF-8 byte of every character that may stand for a byte.
const LEAD: u8 = 0xF4;

/// Returns bytes as text, so that different bytes are always different text.
///
/// Valid UTF-8 is returned as it is. A byte that is not part of valid UTF-8 becomes one
/// character of a private-use area: U+10FF00 plus the byte, which is U+10FF80 to
/// U+10FFFF. The bytes of one of these characters itself become four of them.
///
/// ```
/// use fluxgate_core::text::lossless_text;
///
/// assert_eq!(lossless_text("café".as_bytes()), "café");
/// assert_eq!(lossless_text(b"caf\xe9"), "caf\u{10ffe9}");
/// ```
pub fn lossless_text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.is_ascii() || !bytes.contains(&LEAD) => Cow::Borrowed(text),
        _ => Cow::Owned(escaped(bytes)),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let stands_for_byte = |it: char| u32::from(it) >= FIRST + 0x80;
    let mut text = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        for it in chunk.valid().chars() {
            if stands_for_byte(it) {
                text.extend(it.encode_utf8(&mut [0; 4]).bytes().map(stand_in));
            } else {
                text.push(it);
            }
        }
        text.extend(chunk.invalid().iter().copied().map(stand_in));
    }
    text
}

fn stand_in(byte: u8) -> char {
    // Every number in this range is a character.
    char::from_u32(FIRST + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Parses 64 hexadecimal digits, in any case.
pub fn parse_sha256(digits: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if pairs.len() != hash.len() || !rest.is_empty() {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(pairs) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_message_keeps_its_ends() {
        let fits = "x".repeat(MAX_MESSAGE);
        assert_eq!(shorten(fits.clone()), fits);
        let short = shorten(format!("`{}` is no id", "한".repeat(1_000)));
        assert!(short.len() <= MAX_MESSAGE, "{}", short.len());
        assert!(
            short.starts_with("`한한") && short.ends_with("한한` is no id"),
            "{short}"
        );
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        let hostile = "a\u{1b}[31m\u{7}\u{7f}\u{9b}\r\n\t\u{202e}b\u{2028}é한";
        assert_eq!(
            escape_unprintable(hostile, &[]),
            "a\\u001b[31m\\u0007\\u007f\\u009b\\u000d\\u000a\\u0009\\u202eb\\u2028é한"
        );
        assert_eq!(
            escape_unprintable("a\n\tb\r", &['\n', '\t']),
            "a\n\tb\\u000d"
        );
        assert_eq!(escape_unprintable("plain", &[]), "plain");
    }

    /// Decodes a text to the bytes it was made from.
    fn bytes_of(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for it in text.chars() {
            match u32::from(it).checked_sub(FIRST + 0x80) {
                Some(above) => bytes.push(0x80 + u8::try_from(above).unwrap()),
                None => bytes.extend(it.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
        bytes
    }

    #[test]
    fn text_is_unchanged_and_every_other_byte_becomes_one_character() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"ann", "ann"),
            ("josé".as_bytes(), "josé"),
            (b"jos\xe9", "jos\u{10ffe9}"),
            (b"\xc0\xaf/", "\u{10ffc0}\u{10ffaf}/"),
            (
                "\u{10ffe9}".as_bytes(),
                "\u{10fff4}\u{10ff8f}\u{10ffbf}\u{10ffa9}",
            ),
            ("\u{10ff7f}".as_bytes(), "\u{10ff7f}"),
        ] {
            assert_eq!(lossless_text(bytes), text);
        }
    }

    proptest! {
        #[test]
        fn the_bytes_can_be_restored(bytes in proptest::collection::vec(
            prop_oneof![any::<u8>(), Just(0xF4), Just(0x8F), Just(0xBF)], 0..24,
        )) {
            prop_assert_eq!(bytes_of(&lossless_text(&bytes)), &bytes[..]);
        }
    }

    #[test]
    fn a_hash_has_64_hexadecimal_digits() {
        let digits = "0123456789abcdefABCDEF".repeat(3);
        let hash = parse_sha256(&digits[..64]).unwrap();
        assert_eq!((hash[0], hash[7], hash[8]), (0x01, 0xef, 0xab));
        for bad in [
            &digits[..63],
            &digits[..65],
            "",
            &"g".repeat(64),
            &"+1".repeat(32),
        ] {
            assert_eq!(parse_sha256(bad), None, "{bad}");
        }
    }
}
