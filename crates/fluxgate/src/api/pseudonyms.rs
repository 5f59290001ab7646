//! Names for values that are not to be shown. The same value has the same name while the
//! process runs.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use sha2::{Digest, Sha256};

#[derive(Debug)]
pub(super) struct Pseudonyms {
    secret: [u8; 32],
}

impl Pseudonyms {
    /// Returns the names of this process.
    pub(super) fn of_process() -> &'static Self {
        static PROCESS: LazyLock<Pseudonyms> = LazyLock::new(|| {
            let random = || RandomState::new().hash_one(0).to_le_bytes();
            let secret = [random(), random(), random(), random()].concat();
            let mut pseudonyms = Pseudonyms { secret: [0; 32] };
            pseudonyms.secret.copy_from_slice(&secret);
            pseudonyms
        });
        &PROCESS
    }

    fn hash(&self, value: &[u8]) -> [u8; 32] {
        let hash = Sha256::new().chain_update(self.secret);
        hash.chain_update(value).finalize().into()
    }

    /// Returns the name of a value.
    pub(super) fn name(&self, value: &[u8]) -> String {
        let hash = self.hash(value);
        let digits = hash.iter().take(6).map(|byte| format!("{byte:02x}"));
        format!("~{}", digits.collect::<String>())
    }

    /// Returns an address for an address. It keeps the first 16 bits, or 32 of IPv6, so that
    /// most rules that match networks still match it.
    pub(super) fn address(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(v4) => {
                let hash = self.hash(&v4.octets());
                let [a, b, _, _] = v4.octets();
                IpAddr::V4(Ipv4Addr::new(a, b, hash[0], hash[1]))
            }
            IpAddr::V6(v6) => {
                let mut octets = v6.octets();
                octets[4..].copy_from_slice(&self.hash(&v6.octets())[..12]);
                IpAddr::V6(Ipv6Addr::from(octets))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_value_has_the_same_name() {
        let names = Pseudonyms::of_process();
        assert_eq!(names.name(b"ann"), names.name(b"ann"));
        assert_ne!(names.name(b"ann"), names.name(b"bob"));
        let address = |text: &str| names.address(text.parse().unwrap());
        assert_eq!(address("203.0.113.9"), address("203.0.113.9"));
        assert_ne!(address("203.0.113.9"), address("203.0.113.10"));
        assert!(address("203.0.113.9").to_string().starts_with("203.0."));
        assert!(address("2001:db8::1").to_string().starts_with("2001:db8:"));
    }
}
