//! Hash slots: that of a key, and the reply of `CLUSTER SLOTS`.

use redis::Value;

use crate::error::Address;

/// The hash slots of a cluster.
pub(super) type HashSlotMap = Vec<PrimaryRange>;

/// A range of hash slots, and the address of their primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PrimaryRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) primary: Address,
}

/// Parses the reply of `CLUSTER SLOTS` from the node at `host`.
pub(super) fn parse_hash_slots(reply: &Value, host: Option<&str>) -> Option<HashSlotMap> {
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
            Value::BulkString(host) if !is_unknown_host(host) => {
                String::from_utf8(host.clone()).ok()?
            }
            // The node does not know its own address.
            _ => host?.to_owned(),
        };
        Some(PrimaryRange {
            first: u16::try_from(*first).ok()?,
            last: u16::try_from(*last).ok()?,
            primary: (host, u16::try_from(*port).ok()?),
        })
    });
    ranges.collect()
}

/// Returns whether a node left a host out or does not know it.
pub(super) fn is_unknown_host(host: &[u8]) -> bool {
    matches!(host, b"" | b"?")
}

/// Returns the hash slot of a key: CRC-16 (XMODEM) of its hash tag, or of the whole key.
pub(crate) fn hash_slot_of(key: &[u8]) -> u16 {
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
    fn hash_slots_match_the_specification() {
        assert_eq!(hash_slot_of(b"123456789"), 0x31c3);
        assert_eq!(hash_slot_of(b"foo"), 12182);
        assert_eq!(
            hash_slot_of(b"{user1000}.following"),
            hash_slot_of(b"user1000")
        );
        assert_eq!(hash_slot_of(b"foo{{bar}}zap"), hash_slot_of(b"{bar"));
        assert_eq!(hash_slot_of(b"foo{}{bar}"), {
            let whole = hash_slot_of(b"foo{}{bar}");
            assert_ne!(whole, hash_slot_of(b"bar"));
            whole
        });
    }

    #[test]
    fn a_malformed_map_is_rejected() {
        let int = Value::Int;
        let host = |host: &str| Value::BulkString(host.into());
        let range = |primary| Value::Array(vec![Value::Array(vec![int(0), int(9), primary])]);
        let good = range(Value::Array(vec![host("10.0.0.1"), int(7000), host("id")]));
        let map = parse_hash_slots(&good, None);
        let expected = |host: &str| PrimaryRange {
            first: 0,
            last: 9,
            primary: (host.into(), 7000),
        };
        assert_eq!(map, Some(vec![expected("10.0.0.1")]));
        let unnamed = range(Value::Array(vec![host(""), int(7000)]));
        let map = parse_hash_slots(&unnamed, Some("here"));
        assert_eq!(map, Some(vec![expected("here")]));
        for bad in [
            Value::Nil,
            Value::Array(vec![Value::Nil]),
            range(Value::Nil),
            range(Value::Array(vec![host("x")])),
            range(Value::Array(vec![host("x"), int(70_000)])),
            unnamed,
        ] {
            assert_eq!(parse_hash_slots(&bad, None), None, "{bad:?}");
        }
    }
}
