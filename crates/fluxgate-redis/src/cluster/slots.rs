//! Slots: the slot of a key, and the reply of `CLUSTER SLOTS`.

use redis::Value;

use crate::error::Address;

/// Ranges of slots, first and last, with the address of the primary of each.
pub(super) type SlotMap = Vec<(u16, u16, Address)>;

/// Parses the reply of `CLUSTER SLOTS` from the node at `host`.
pub(super) fn parse_slots(reply: &Value, host: Option<&str>) -> Option<SlotMap> {
    let Value::Array(ranges) = reply else {
        return None;
    };
    let ranges = ranges.iter().map(|range| {
        let Value::Array(range) = range else {
            return None;
        };
        let [
            Value::Int(first),
            Value::Int(last),
            Value::Array(primary),
            ..,
        ] = &range[..]
        else {
            return None;
        };
        let [primary_host, Value::Int(port), ..] = &primary[..] else {
            return None;
        };
        let host = match primary_host {
            Value::BulkString(host) if !is_unknown(host) => String::from_utf8(host.clone()).ok()?,
            // The node does not know its own address.
            _ => host?.to_owned(),
        };
        let slot = |number: &i64| u16::try_from(*number).ok();
        Some((
            slot(first)?,
            slot(last)?,
            (host, u16::try_from(*port).ok()?),
        ))
    });
    ranges.collect()
}

/// Returns whether a node left out a host, or does not know it.
pub(super) fn is_unknown(host: &[u8]) -> bool {
    matches!(host, b"" | b"?")
}

/// Returns the slot of a key: CRC-16 (XMODEM) of its hash tag, or of the whole key.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let tagged = hash_tag(key).unwrap_or(key);
    let crc = tagged.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            let carry = crc >> 15;
            (crc << 1) ^ (0x1021 * carry)
        })
    });
    crc % 16384
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let rest = &key[open + 1..];
    let close = rest.iter().position(|byte| *byte == b'}')?;
    (close > 0).then(|| &rest[..close])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_match_the_specification() {
        assert_eq!(slot_of(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"foo"), 12182);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_eq!(slot_of(b"foo{}{bar}"), {
            let whole = slot_of(b"foo{}{bar}");
            assert_ne!(whole, slot_of(b"bar"));
            whole
        });
    }

    #[test]
    fn a_malformed_slot_map_is_rejected() {
        let int = Value::Int;
        let host = |host: &str| Value::BulkString(host.into());
        let range = |primary| Value::Array(vec![Value::Array(vec![int(0), int(9), primary])]);
        let good = range(Value::Array(vec![host("10.0.0.1"), int(7000), host("id")]));
        let map = parse_slots(&good, None);
        assert_eq!(map, Some(vec![(0, 9, ("10.0.0.1".into(), 7000))]));
        let unnamed = range(Value::Array(vec![host(""), int(7000)]));
        let map = parse_slots(&unnamed, Some("here"));
        assert_eq!(map, Some(vec![(0, 9, ("here".into(), 7000))]));
        for bad in [
            Value::Nil,
            Value::Array(vec![Value::Nil]),
            range(Value::Nil),
            range(Value::Array(vec![host("x")])),
            range(Value::Array(vec![host("x"), int(70_000)])),
            unnamed,
        ] {
            assert_eq!(parse_slots(&bad, None), None, "{bad:?}");
        }
    }
}
