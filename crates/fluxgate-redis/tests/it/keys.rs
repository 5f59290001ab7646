//! The names of keys on a server.

use fluxgate_core::task::ready;
use fluxgate_core::{Limiter, ManualClock, RequestContext, RuleSets, Timestamp};
use fluxgate_redis::injected_time::{ScriptStore, Server};
use fluxgate_redis::{HashKeys, HashSecret, KeyNaming};

use crate::sequences::DAY;
use crate::wire::Wire;
use fluxgate_testkit::RedisServer;

const RULES: &str = "
rule_sets:
  api-limits:
    rules:
      - { id: per-user, scope: per_user, bands: [ { id: burst, capacity: 10, window: 1s } ] }
      - { id: per-use, scope: per_user, bands: [ { id: burst, capacity: 10, window: 1s } ] }
      - { id: per-key, scope: per_api_key, bands: [ { id: a, capacity: 9, window: 1m }, { id: b, capacity: 9, window: 1h } ] }
      - { id: all, scope: global, bands: [ { id: burst, capacity: 1000, window: 1s } ] }
";

fn limiter(wire: &Wire, naming: KeyNaming) -> Limiter<ScriptStore<&Wire, ManualClock>> {
    wire.clear();
    let clock = ManualClock::new(Timestamp::from_micros(20_000 * DAY).unwrap());
    let store = ScriptStore::on_clock(wire, clock).with_naming(naming);
    Limiter::new(RuleSets::from_yaml(RULES).unwrap(), store)
}

fn keys(wire: &Wire) -> Vec<Vec<u8>> {
    wire.scan(b"*").unwrap()
}

#[test]
fn resetting_a_rule_keeps_the_keys_of_others() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    for prefix in ["fluxgate", "a*b?c[d]e\\f", ""] {
        let limiter = limiter(&wire, KeyNaming::new(prefix).unwrap());
        for user in ["ann", "bob", "*", "}"] {
            let context = RequestContext::builder().user(user).api_key("k").build();
            let _ = ready(limiter.check("api-limits", &context));
        }
        assert_eq!(keys(&wire).len(), 4 + 4 + 2 + 1, "{prefix}");
        let reset = |rule| ready(limiter.reset_rule("api-limits", rule)).unwrap();
        assert_eq!(reset("per-user"), 4, "{prefix}");
        assert_eq!(reset("per-user"), 0, "{prefix}");
        assert_eq!(reset("per-key"), 2, "{prefix}");
        assert_eq!(reset("all"), 1, "{prefix}");
        assert_eq!(keys(&wire).len(), 4, "{prefix}");
    }
}

#[test]
fn selected_parts_of_identities_are_stored_as_a_hash() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let (user, api_key) = ("somebody-known", "a-secret-key");
    let context = RequestContext::builder()
        .user(user)
        .api_key(api_key)
        .build();
    for (which, user_shows, api_key_shows) in [
        (HashKeys::None, true, true),
        (HashKeys::ApiKeys, true, false),
        (HashKeys::All, false, false),
    ] {
        let naming = KeyNaming::default().hashing(which, HashSecret::new(b"secret"));
        let limiter = limiter(&wire, naming);
        let _ = ready(limiter.check("api-limits", &context));
        let keys = keys(&wire);
        let shows = |text: &str| {
            let contains =
                |key: &Vec<u8>| key.windows(text.len()).any(|part| part == text.as_bytes());
            keys.iter().any(contains)
        };
        assert_eq!(shows(user), user_shows, "{which:?}");
        assert_eq!(shows(api_key), api_key_shows, "{which:?}");
        assert_eq!(keys.len(), 5);
        // They still share a counter.
        let state = ready(limiter.state("api-limits", "per-key", &[api_key])).unwrap();
        assert_eq!(state[0].remaining, 8);
    }
}

#[test]
fn the_bands_of_a_subject_share_a_slot() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    for api_key in ["plain", "}", "{", "a}b{c}", "{}"] {
        let limiter = limiter(&wire, KeyNaming::default());
        let context = RequestContext::builder().api_key(api_key).build();
        let _ = ready(limiter.check("api-limits", &context));
        let keys = keys(&wire);
        let of_rule = |key: &&Vec<u8>| key.ends_with(b"}a") || key.ends_with(b"}b");
        let slots: Vec<u64> = keys.iter().filter(of_rule).map(|key| slot(key)).collect();
        assert_eq!(slots.len(), 2);
        assert_eq!(slots[0], slots[1], "{api_key}");
    }
}

/// Returns the part that a cluster hashes: the first non-empty braces. Two names
/// with one tag are in one slot.
fn slot(key: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hashed = key;
    if let Some(open) = key.iter().position(|byte| *byte == b'{') {
        let rest = &key[open + 1..];
        if let Some(close @ 1..) = rest.iter().position(|byte| *byte == b'}') {
            hashed = &rest[..close];
        }
    }
    let mut hasher = DefaultHasher::new();
    hashed.hash(&mut hasher);
    hasher.finish()
}

/// Compares with a hash of two fields under an uncompressed name. For many keys,
/// `scripts/bench redis` measures even less.
#[test]
fn a_key_takes_less_memory_than_a_hash() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let usage = |key: &[u8]| -> u64 { wire.run(redis::cmd("MEMORY").arg("USAGE").arg(key)) };

    let hash = b"fluxgate:api-limits:per-user:user-00000001:burst";
    let limiter = limiter(&wire, KeyNaming::default());
    let mut command = redis::cmd("HMSET");
    command.arg(hash).arg("tokens").arg("8.7654321");
    wire.run::<()>(command.arg("ts").arg("1728000000123456"));
    wire.run::<()>(redis::cmd("EXPIRE").arg(hash).arg(100));
    let theirs = usage(hash);

    for (capacity, percent) in [(10, 60), (3, 90)] {
        let rules = RULES.replace("capacity: 10,", &format!("capacity: {capacity},"));
        ready(limiter.replace_rules(RuleSets::from_yaml(&rules).unwrap())).unwrap();
        let context = RequestContext::builder().user("user-00000001").build();
        assert!(ready(limiter.check("api-limits", &context)).allowed());
        let ours = keys(&wire);
        let is_ours = |key: &&Vec<u8>| key.windows(5).any(|part| part == b"user-");
        let ours = ours.iter().filter(is_ours);
        let ours = ours.filter(|key| key[..] != hash[..]);
        let ours: Vec<u64> = ours.map(|key| usage(key)).collect();
        assert_eq!(ours.len(), 2);
        for ours in ours {
            assert!(100 * ours < percent * theirs, "{ours} of {theirs} bytes");
        }
    }
}
