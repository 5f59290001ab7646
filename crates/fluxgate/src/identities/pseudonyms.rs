//! Pseudonyms for values that must stay hidden. All instances with the same secret give a value the
//! same pseudonym.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sha2::{Digest, Sha256};

/// The pseudonyms that depend on a secret.
#[derive(Clone)]
pub(crate) struct Pseudonyms {
    secret: [u8; 32],
}

/// The hexadecimal digits of a pseudonym.
const DIGITS: usize = 12;

impl Pseudonyms {
    /// Creates the pseudonyms that depend on this secret.
    pub(super) const fn new(secret: [u8; 32]) -> Self {
        Self { secret }
    }

    /// Returns whether a text has the form of a pseudonym.
    pub(crate) fn is_pseudonym(text: &str) -> bool {
        let digits = text.strip_prefix('~').map(str::as_bytes);
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        digits.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(is_digit))
    }

    fn hash(&self, value: &[u8]) -> [u8; 32] {
        let hash = Sha256::new().chain_update(self.secret);
        hash.chain_update(value).finalize().into()
    }

    /// Returns the pseudonym of a value.
    pub(crate) fn of_value(&self, value: &[u8]) -> String {
        let hash = self.hash(value);
        let digits = hash
            .iter()
            .take(DIGITS / 2)
            .map(|byte| format!("{byte:02x}"));
        format!("~{}", digits.collect::<String>())
    }

    /// Returns the pseudonym of an address. It keeps the first 16 bits of an IPv4 address, or the
    /// first 32 bits of an IPv6 address, so that most rules that match networks still match it.
    /// IPv6 addresses with the same first `ipv6_prefix` bits still count as one client.
    pub(crate) fn of_address(&self, address: IpAddr, ipv6_prefix: u8) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                let [a, b, mut left, mut right] = v4.octets();
                // Rounds of a Feistel network: no two addresses get the same pseudonym.
                for round in 0..4 {
                    let mask = self.hash(&[round, a, b, right])[0];
                    (left, right) = (right, left ^ mask);
                }
                IpAddr::V4(Ipv4Addr::new(a, b, left, right))
            }
            IpAddr::V6(v6) => {
                let bits = v6.to_bits();
                let prefix_mask = |count: u32| u128::MAX.checked_shl(128 - count).unwrap_or(0);
                let kept_mask = prefix_mask(32);
                let client_mask = prefix_mask(ipv6_prefix.into()) | kept_mask;
                let hash = |bits: u128| {
                    let hash = self.hash(&bits.to_be_bytes());
                    u128::from_be_bytes(std::array::from_fn(|index| hash[index]))
                };
                let network = hash(bits & client_mask) & client_mask & !kept_mask;
                let host = hash(bits) & !client_mask;
                IpAddr::V6(Ipv6Addr::from_bits(bits & kept_mask | network | host))
            }
        }
    }
}

impl std::fmt::Debug for Pseudonyms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pseudonyms(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Pseudonyms {
        Pseudonyms::new([7; 32])
    }

    #[test]
    fn the_same_value_has_the_same_name() {
        let names = names();
        assert_eq!(names.of_value(b"ann"), names.of_value(b"ann"));
        assert_ne!(names.of_value(b"ann"), names.of_value(b"bob"));
        assert_ne!(
            names.of_value(b"ann"),
            Pseudonyms::new([8; 32]).of_value(b"ann")
        );
        assert!(Pseudonyms::is_pseudonym(&names.of_value(b"ann")));
        for other in [
            "~",
            "ann",
            "~0123456789abc",
            "~0123456789aB",
            "0123456789ab",
        ] {
            assert!(!Pseudonyms::is_pseudonym(other), "{other}");
        }
        let address = |text: &str| names.of_address(text.parse().unwrap(), 64);
        assert_eq!(address("203.0.113.9"), address("203.0.113.9"));
        assert_ne!(address("203.0.113.9"), address("203.0.113.10"));
        assert!(address("203.0.113.9").to_string().starts_with("203.0."));
        assert!(address("2001:db8::1").to_string().starts_with("2001:db8:"));
        assert_eq!(address("::ffff:203.0.113.9"), address("203.0.113.9"));
    }

    #[test]
    fn clients_stay_apart_and_addresses_of_one_client_together() {
        let names = names();
        let all: std::collections::HashSet<_> = (0..=u16::MAX)
            .map(|low| {
                let [c, d] = low.to_be_bytes();
                names.of_address(IpAddr::from([203, 0, c, d]), 64)
            })
            .collect();
        assert_eq!(all.len(), 65_536);
        let client = |text: &str, prefix: u8| {
            let IpAddr::V6(address) = names.of_address(text.parse().unwrap(), prefix) else {
                unreachable!("an IPv6 address")
            };
            address.to_bits() >> (128 - u32::from(prefix))
        };
        assert_eq!(
            client("2001:db8:1:2::1", 64),
            client("2001:db8:1:2:3::9", 64)
        );
        assert_ne!(client("2001:db8:1:2::1", 64), client("2001:db8:1:3::1", 64));
        assert_eq!(client("2001:db8:1:2::1", 48), client("2001:db8:1:3::1", 48));
        assert_ne!(client("2001:db8:1::1", 128), client("2001:db8:1::2", 128));
    }
}
