//! The hash slot of a key, independent of the code under test.

/// The number of hash slots of a cluster.
pub const HASH_SLOTS: u16 = 16_384;

/// Returns the hash slot of a key: CRC16 of its hash tag `{…}`, or of the whole key.
pub fn hash_slot_of(key: impl AsRef<[u8]>) -> u16 {
    crc16(hash_tag(key.as_ref())) % HASH_SLOTS
}

fn hash_tag(key: &[u8]) -> &[u8] {
    let at = |bytes: &[u8], wanted: u8| bytes.iter().position(|byte| *byte == wanted);
    let Some(open) = at(key, b'{') else {
        return key;
    };
    let inside = &key[open + 1..];
    match at(inside, b'}') {
        // An empty tag is ignored.
        None | Some(0) => key,
        Some(end) => &inside[..end],
    }
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let carry = if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            (crc << 1) ^ carry
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(hash_slot_of(""), 0);
        assert_eq!(hash_slot_of("foo"), 12_182);
        assert_eq!(hash_slot_of("{foo}bar"), hash_slot_of("foo"));
        assert_eq!(hash_slot_of("a{foo}{bar}"), hash_slot_of("foo"));
        assert_eq!(hash_slot_of("{{foo}}"), crc16(b"{foo") % HASH_SLOTS);
        assert_eq!(hash_slot_of("{}foo"), crc16(b"{}foo") % HASH_SLOTS);
        assert_eq!(hash_slot_of("{foo"), crc16(b"{foo") % HASH_SLOTS);
    }
}
