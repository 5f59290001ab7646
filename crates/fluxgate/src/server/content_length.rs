//! What `Content-Length` says.

/// The length, if the value is just a number. (Parsing alone would take a sign.)
pub(crate) fn content_length(value: &[u8]) -> Option<u64> {
    let is_number = value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| is_number)?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::content_length;

    #[test]
    fn only_digits_are_a_length() {
        assert_eq!(content_length(b"0"), Some(0));
        assert_eq!(content_length(b"18446744073709551615"), Some(u64::MAX));
        for bad in [
            "",
            "+1",
            "-0",
            " 1",
            "1 ",
            "1, 1",
            "0x1",
            "18446744073709551616",
        ] {
            assert_eq!(content_length(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
