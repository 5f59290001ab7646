//! Strings of a JSON text, read without decoding them.

use std::borrow::Cow;

/// A string as it is written between its quotes.
#[derive(Clone, Copy, Debug)]
pub struct JsonStr<'a> {
    raw: &'a [u8],
    /// The number of bytes after decoding. A decoded escape is shorter than its spelling, so
    /// this differs from the length of `raw` exactly if there are escapes.
    len: usize,
}

/// The position of a fault, and what was expected there.
pub(crate) type StringFault = (usize, &'static str);

impl<'a> JsonStr<'a> {
    /// Reads the string whose opening quote stands before `start`. Returns it and the
    /// position after its closing quote.
    ///
    /// Half of a surrogate pair is accepted, as the grammar of JSON has it, and counts as
    /// the replacement character.
    #[inline]
    pub(crate) fn read(text: &'a [u8], start: usize) -> Result<(Self, usize), StringFault> {
        let len = plain_len(&text[start..]);
        let end = start + len;
        match text.get(end) {
            Some(b'"') => {
                let raw = &text[start..end];
                Ok((Self { raw, len }, end + 1))
            }
            _ => Self::read_escaped(text, start),
        }
    }

    #[cold]
    fn read_escaped(text: &'a [u8], start: usize) -> Result<(Self, usize), StringFault> {
        let mut at = start;
        let mut saved = 0;
        loop {
            at += plain_len(&text[at..]);
            match text.get(at) {
                Some(b'"') => break,
                Some(b'\\') => (),
                Some(_) => return Err((at, "an escape instead of a control character")),
                None => return Err((at, "the end of a string")),
            }
            let (_, spelled, decoded) = escape(text, at)?;
            at += spelled;
            saved += spelled - decoded;
        }
        let raw = &text[start..at];
        let len = raw.len() - saved;
        Ok((Self { raw, len }, at + 1))
    }

    /// Returns the number of bytes of the decoded string.
    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    /// Returns whether the decoded string equals `text`.
    pub fn is(&self, text: &str) -> bool {
        self.len == text.len() && *self.decode() == *text.as_bytes()
    }

    /// Returns the decoded string.
    pub fn decode(&self) -> Cow<'a, [u8]> {
        if self.raw.len() == self.len {
            return Cow::Borrowed(self.raw);
        }
        let mut decoded = Vec::with_capacity(self.len);
        decode_into(&mut decoded, self.raw);
        Cow::Owned(decoded)
    }
}

/// Returns whether servers that ignore case may read a name as the known one. Go's decoder also
/// takes two letters outside of ASCII for `s` and `k`.
pub fn reads_as(found: &str, known: &str) -> bool {
    let fold = |letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => char::to_ascii_lowercase(&other),
    };
    found.chars().map(fold).eq(known.chars().map(fold))
}

/// Appends the decoded bytes of `raw`, which has been read before.
fn decode_into(decoded: &mut Vec<u8>, raw: &[u8]) {
    let mut at = 0;
    while at < raw.len() {
        if raw[at] == b'\\'
            && let Ok((character, spelled, _)) = escape(raw, at)
        {
            let mut utf8 = [0; 4];
            decoded.extend_from_slice(character.encode_utf8(&mut utf8).as_bytes());
            at += spelled;
        } else {
            decoded.push(raw[at]);
            at += 1;
        }
    }
}

/// Returns how many bytes precede the first quote, backslash or control character.
///
/// It looks at eight bytes at a time: most strings of an event are too short for a search that
/// has to be set up.
#[inline]
fn plain_len(text: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    // Sets the highest bit of the first byte below `limit`, and maybe of later ones.
    let below = |bytes: u64, limit: u8| {
        let limits = ONES * u64::from(limit);
        bytes.wrapping_sub(limits) & !bytes & (ONES << 7)
    };
    let equal = |bytes: u64, byte: u8| below(bytes ^ (ONES * u64::from(byte)), 1);
    let (words, rest) = text.as_chunks();
    for (index, word) in words.iter().enumerate() {
        let bytes = u64::from_le_bytes(*word);
        let special = equal(bytes, b'"') | equal(bytes, b'\\') | below(bytes, 0x20);
        if special != 0 {
            return index * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | ..0x20);
    let plain = rest.iter().position(is_special).unwrap_or(rest.len());
    words.len() * 8 + plain
}

/// Returns the character of the escape at `at`, how many bytes spell it, and its length
/// in UTF-8.
fn escape(text: &[u8], at: usize) -> Result<(char, usize, usize), StringFault> {
    let character = match text.get(at + 1) {
        Some(b'"') => '"',
        Some(b'\\') => '\\',
        Some(b'/') => '/',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode_escape(text, at),
        _ => return Err((at, "a valid escape")),
    };
    Ok((character, 2, 1))
}

fn unicode_escape(text: &[u8], at: usize) -> Result<(char, usize, usize), StringFault> {
    let unit = hex4(text, at + 2).ok_or((at, "four hexadecimal digits after \\u"))?;
    if let 0xD800..=0xDBFF = unit
        && text.get(at + 6..at + 8) == Some(b"\\u")
        && let Some(low @ 0xDC00..=0xDFFF) = hex4(text, at + 8)
        && let Some(character) = char::from_u32(0x1_0000 + ((unit - 0xD800) << 10) + low - 0xDC00)
    {
        return Ok((character, 12, 4));
    }
    let character = char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
    Ok((character, 6, character.len_utf8()))
}

fn hex4(text: &[u8], at: usize) -> Option<u32> {
    let digits = text.get(at..at + 4)?;
    digits.iter().try_fold(0, |value, digit| {
        Some(value << 4 | char::from(*digit).to_digit(16)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(JsonStr<'_>, usize), StringFault> {
        JsonStr::read(text.as_bytes(), 1)
    }

    #[test]
    fn lengths_are_those_of_decoded_strings() {
        for text in [
            r#""""#,
            r#""plain""#,
            r#""\"\\\/\b\f\n\r\t""#,
            r#""\u0041\u00e9\u20AC\ud83d\ude00 x""#,
            r#""日本語\u0000é""#,
        ] {
            let expected: String = serde_json::from_str(text).unwrap();
            let (string, end) = read(text).unwrap();
            assert_eq!(end, text.len());
            assert_eq!(string.len(), expected.len() as u64, "{text}");
            assert_eq!(*string.decode(), *expected.as_bytes(), "{text}");
            assert!(string.is(&expected) && !string.is("other"));
        }
    }

    #[test]
    fn special_bytes_are_found_wherever_they_are() {
        for special in (0..0x20).chain([b'"', b'\\']) {
            for others in [0x20, 0x21, 0x23, 0x5b, 0x5d, 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
                for at in 0..20 {
                    let mut text = [others; 20];
                    assert_eq!(plain_len(&text), 20);
                    text[at] = special;
                    assert_eq!(plain_len(&text), at, "{special} in {others}");
                    text[at..].fill(special);
                    assert_eq!(plain_len(&text), at, "{special} after {others}");
                }
            }
        }
    }

    #[test]
    fn half_a_surrogate_pair_is_the_replacement_character() {
        for text in [r#""\ud83d""#, r#""\ude00""#] {
            let (string, _) = read(text).unwrap();
            assert!(string.is("\u{FFFD}"), "{text}");
        }
        assert!(read(r#""\ud83d\ud83d\ude00""#).unwrap().0.is("\u{FFFD}😀"));
        assert!(read(r#""\ud83d\n""#).unwrap().0.is("\u{FFFD}\n"));
    }

    #[test]
    fn faults_have_positions() {
        for (text, at) in [
            (r#""open"#, 5),
            (r#""a\x""#, 2),
            (r#""a\u12"#, 2),
            (r#""a\u12G4""#, 2),
            (r#""\"#, 1),
            ("\"a\nb\"", 2),
            (r#""\u+123""#, 1),
        ] {
            assert_eq!(read(text).unwrap_err().0, at, "{text}");
        }
    }
}
