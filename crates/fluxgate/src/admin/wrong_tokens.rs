//! Refuses addresses that try out tokens.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;

/// This number of wrong tokens from one address within [`WINDOW`] blocks it.
const MAX_WRONG: usize = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// How long an address is blocked.
const BLOCK: Duration = Duration::from_secs(60);
/// The maximum number of addresses to remember. An attacker with more addresses has as many
/// attempts from each, so it gains little when some are forgotten.
const MAX_ADDRESSES: usize = 4096;
/// How many addresses are compared to find one to forget.
const CANDIDATES: usize = 16;

/// The wrong tokens of the last minute, by address. Times count from the start of the service.
#[derive(Debug, Default)]
pub(super) struct WrongTokens(Mutex<HashMap<IpAddr, Attempts>>);

#[derive(Debug, Default)]
struct Attempts {
    /// When wrong tokens arrived, the oldest first.
    times: SmallVec<[Duration; MAX_WRONG]>,
    blocked_until: Option<Duration>,
}

impl WrongTokens {
    /// Returns for how long the address is still blocked, if it is.
    pub(super) fn blocked_for(&self, peer: IpAddr, now: Duration) -> Option<Duration> {
        let addresses = self.lock();
        let until = addresses.get(&network_of(peer))?.blocked_until?;
        until.checked_sub(now).filter(|left| !left.is_zero())
    }

    /// Records a wrong token. Returns the address, or its network, if this blocks it.
    pub(super) fn record(&self, peer: IpAddr, now: Duration) -> Option<IpAddr> {
        let network = network_of(peer);
        let mut addresses = self.lock();
        if addresses.len() >= MAX_ADDRESSES && !addresses.contains_key(&network) {
            forget_one(&mut addresses, now);
        }
        let attempts = addresses.entry(network).or_default();
        // Requests that passed before the block began may still arrive.
        if attempts.is_blocked(now) {
            return None;
        }
        attempts.times.retain(|time| *time + WINDOW > now);
        attempts.times.push(now);
        attempts.blocked_until = None;
        if attempts.times.len() < MAX_WRONG {
            return None;
        }
        attempts.times.clear();
        attempts.blocked_until = Some(now + BLOCK);
        Some(network)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Attempts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempts {
    fn is_blocked(&self, now: Duration) -> bool {
        self.blocked_until.is_some_and(|until| until > now)
    }

    /// Returns when the attempts expire.
    fn last_until(&self) -> Duration {
        let window = self.times.last().map(|last| *last + WINDOW);
        window.max(self.blocked_until).unwrap_or_default()
    }
}

/// Forgets one of a few addresses: the one whose attempts expire first, a blocked one only if all
/// are blocked.
fn forget_one(addresses: &mut HashMap<IpAddr, Attempts>, now: Duration) {
    let candidates = addresses.iter().take(CANDIDATES);
    let least =
        candidates.min_by_key(|(_, attempts)| (attempts.is_blocked(now), attempts.last_until()));
    if let Some(address) = least.map(|(address, _)| *address) {
        addresses.remove(&address);
    }
}

/// Returns the address that counts: a client has a whole /64 of IPv6.
fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = address.to_bits() >> 64 << 64;
            Ipv6Addr::from_bits(prefix).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn ten_wrong_tokens_within_a_minute_block_an_address_for_a_minute() {
        let (tokens, peer) = (WrongTokens::default(), ip("192.0.2.1"));
        for second in 0..9 {
            assert_eq!(tokens.record(peer, second * SECOND), None);
            assert_eq!(tokens.blocked_for(peer, second * SECOND), None);
        }
        // The first is a minute old.
        assert_eq!(tokens.record(peer, 60 * SECOND), None);
        let other = ip("192.0.2.2");
        assert_eq!(tokens.record(other, 60 * SECOND), None);
        assert_eq!(tokens.record(peer, 60 * SECOND), Some(peer));
        assert_eq!(tokens.record(peer, 61 * SECOND), None, "reported once");
        assert_eq!(tokens.blocked_for(other, 61 * SECOND), None);
        let mapped = ip("::ffff:192.0.2.1");
        assert_eq!(tokens.blocked_for(mapped, 61 * SECOND), Some(59 * SECOND));
        assert_eq!(tokens.blocked_for(peer, 120 * SECOND), None);
        // It begins anew.
        for _ in 0..9 {
            assert_eq!(tokens.record(peer, 120 * SECOND), None);
        }
        assert_eq!(tokens.record(peer, 120 * SECOND), Some(peer));
    }

    #[test]
    fn an_ipv6_client_counts_as_its_network() {
        let tokens = WrongTokens::default();
        for host in 0..9 {
            let peer = ip(&format!("2001:db8:0:1::{host}"));
            assert_eq!(tokens.record(peer, SECOND), None);
        }
        let blocked = tokens.record(ip("2001:db8:0:1:ffff::"), SECOND);
        assert_eq!(blocked, Some(ip("2001:db8:0:1::")));
        assert!(tokens.blocked_for(ip("2001:db8:0:1::7"), SECOND).is_some());
        assert_eq!(tokens.blocked_for(ip("2001:db8:0:2::7"), SECOND), None);
    }

    #[test]
    fn a_flood_of_addresses_is_bounded_and_forgets_no_blocked_address() {
        let (tokens, peer) = (WrongTokens::default(), ip("192.0.2.1"));
        for _ in 0..10 {
            tokens.record(peer, SECOND);
        }
        for number in 0..100_000_u32 {
            let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + number);
            tokens.record(address.into(), SECOND);
        }
        assert_eq!(tokens.lock().len(), MAX_ADDRESSES);
        assert!(tokens.blocked_for(peer, 2 * SECOND).is_some());
    }

    #[test]
    fn a_block_that_has_ended_is_forgotten_before_recent_attempts() {
        let tokens = WrongTokens::default();
        let (blocked, recent) = (ip("192.0.2.1"), ip("192.0.2.2"));
        for _ in 0..10 {
            tokens.record(blocked, SECOND);
        }
        tokens.record(recent, 70 * SECOND);
        forget_one(&mut tokens.lock(), 70 * SECOND);
        assert!(tokens.lock().contains_key(&recent));
        // One that lasts is forgotten last.
        for _ in 0..10 {
            tokens.record(blocked, 70 * SECOND);
        }
        forget_one(&mut tokens.lock(), 70 * SECOND);
        assert!(tokens.lock().contains_key(&blocked));
    }
}
