//! Bytes as text, without loss.

use std::borrow::Cow;

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
        Ok(text) if !bytes.contains(&LEAD) => Cow::Borrowed(text),
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the bytes that a text stands for.
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
}
