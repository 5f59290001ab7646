//! SHA-256 hashes that are written in hexadecimal.

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
