//! The heaviest identities of the last minute, by rule.
//!
//! Each thread counts in tables of its own, one for every ten seconds. A table has a fixed
//! number of entries, in lines. An identity belongs to one line; if the line is full, it
//! replaces the lowest of the line and takes over its count, as Space-Saving does. So a count
//! is never too low, and too high by at most what it took over, its error.
//!
//! Limits that come with the call are counted under no rule, by their whole subject.

use std::collections::HashMap;
use std::time::Duration;

use fluxgate_core::key::{RuleNumber, describe_identity};
use fluxgate_core::{ActiveRule, Decision, Outcome};
use smallvec::SmallVec;

/// How long a table counts.
const SLICE: Duration = Duration::from_secs(10);
/// The tables of the last minute, and the one in use.
const SLICES: usize = 7;
const LINES: usize = 128;
const LINE: usize = 8;
/// The longest window.
pub(crate) const MAX_WINDOW: Duration = Duration::from_secs(60);
/// A longer identity is kept as the beginning of its text and a hash. Clients choose
/// identities, and memory is bounded.
pub(super) const MAX_IDENTITY: usize = 256;
/// How much of its text is kept.
const MAX_TEXT: usize = 200;
/// The first byte of an identity that is kept as text. No encoded one begins with it.
const AS_TEXT: u8 = 0;

/// How identities are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopBy {
    Denied,
    Requests,
}

/// What a rule did with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopOutcome {
    Allowed,
    Denied,
    Never,
    ShadowDenied,
    /// Decided without the store.
    Fallback,
}

impl TopOutcome {
    /// The outcomes in declaration order, with their names.
    pub(crate) const ALL: [(&str, Self); OUTCOMES] = [
        ("allowed", Self::Allowed),
        ("denied", Self::Denied),
        ("never", Self::Never),
        ("shadow_denied", Self::ShadowDenied),
        ("fallback", Self::Fallback),
    ];
}

const OUTCOMES: usize = 5;

/// The counts of the outcomes, in the order of [`TopOutcome::ALL`].
pub(crate) type OutcomeCounts = [u64; OUTCOMES];

/// A request as a rule counts it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedRequest {
    /// `None` if the rule did not refuse it, but another one did.
    pub(super) outcome: Option<TopOutcome>,
    /// Whether the rule denied it.
    pub(super) is_denied: bool,
    /// What it was charged.
    pub(super) units: u64,
}

impl CountedRequest {
    /// Returns a decision as one of its rules counts it.
    pub(super) fn of(
        decision: &Decision,
        rule: &ActiveRule,
        denies: bool,
        units: impl Fn() -> u64,
    ) -> Self {
        let is_allowed = decision.allowed();
        let is_charged = is_allowed && !denies || rule.charges_always();
        let outcome = match decision.outcome() {
            Outcome::Fallback if is_allowed || denies => Some(TopOutcome::Fallback),
            _ if denies && is_allowed => Some(TopOutcome::ShadowDenied),
            Outcome::Never if denies => Some(TopOutcome::Never),
            _ if denies => Some(TopOutcome::Denied),
            _ if is_allowed => Some(TopOutcome::Allowed),
            _ => None,
        };
        Self {
            outcome,
            is_denied: denies && !is_allowed,
            units: if is_charged { units() } else { 0 },
        }
    }
}

/// The encoded identity. Most fit without an allocation.
pub(crate) type Identity = SmallVec<[u8; 40]>;

/// The counts of one thread.
#[derive(Debug, Default)]
pub(super) struct TopCounts {
    requests: Slices,
    denied: Slices,
}

impl TopCounts {
    /// Counts a request of an identity. `hash` is a hash of the identity.
    pub(super) fn count(
        &mut self,
        now: Duration,
        rule: RuleNumber,
        identity: &[u8],
        hash: u64,
        request: CountedRequest,
    ) {
        let short = (identity.len() > MAX_IDENTITY).then(|| shorten(identity, hash));
        let identity = short.as_deref().unwrap_or(identity);
        let current = self.requests.current(now);
        current.count(rule, identity, hash, request);
        if request.is_denied {
            let denied = self.denied.current(now);
            denied.count(rule, identity, hash, request);
        }
    }

    /// Takes the units that were charged since the last time. Those of an identity that was replaced
    /// in between are lost: it had the lowest count of its line.
    pub(super) fn take_units(&mut self, mut add: impl FnMut(RuleNumber, &[u8], u64)) {
        for table in self.requests.0.iter_mut().flatten() {
            if !std::mem::take(&mut table.has_units) {
                continue;
            }
            for entry in table.entries.iter_mut().flatten() {
                let units = std::mem::take(&mut entry.units);
                if let Some(rule) = entry.rule.filter(|_| units > 0) {
                    add(rule, &entry.identity, units);
                }
            }
        }
    }

    fn slices(&self, by: TopBy) -> &Slices {
        match by {
            TopBy::Denied => &self.denied,
            TopBy::Requests => &self.requests,
        }
    }
}

/// The tables of the last minute.
#[derive(Debug, Default)]
struct Slices([Option<Box<Table>>; SLICES]);

impl Slices {
    fn current(&mut self, now: Duration) -> &mut Table {
        let number = now.as_secs() / SLICE.as_secs();
        let table = self.0[number as usize % SLICES].get_or_insert_default();
        if table.number != number {
            **table = Table::default();
            table.number = number;
        }
        table
    }

    /// Returns the tables that cover the window before `now`. The oldest may start before the
    /// window.
    fn within(&self, window: Duration, now: Duration) -> impl Iterator<Item = &Table> {
        let last = now.as_secs() / SLICE.as_secs();
        let slices = window.as_secs().div_ceil(SLICE.as_secs());
        let first = last.saturating_sub(slices);
        let tables = self.0.iter().flatten().map(|table| &**table);
        tables.filter(move |table| (first..=last).contains(&table.number))
    }
}

#[derive(Debug)]
struct Table {
    /// The number of its ten seconds.
    number: u64,
    total: u64,
    /// Whether an entry has units that were not taken.
    has_units: bool,
    /// Kept apart, so that the hashes of a line fill one line of the cache.
    hashes: Vec<[u64; LINE]>,
    entries: Vec<[CountedIdentity; LINE]>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            number: u64::MAX,
            total: 0,
            has_units: false,
            hashes: vec![[0; LINE]; LINES],
            entries: std::iter::repeat_with(Default::default)
                .take(LINES)
                .collect(),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct CountedIdentity {
    rule: Option<RuleNumber>,
    identity: Identity,
    count: u64,
    error: u64,
    /// Charged, and not taken yet.
    units: u64,
    /// Of the requests since it is here.
    outcomes: [u32; OUTCOMES],
}

impl CountedIdentity {
    fn add(&mut self, request: CountedRequest) {
        self.count += 1;
        self.units += request.units;
        if let Some(outcome) = request.outcome {
            let count = &mut self.outcomes[outcome as usize];
            *count = count.saturating_add(1);
        }
    }
}

impl Table {
    fn count(&mut self, rule: RuleNumber, identity: &[u8], hash: u64, request: CountedRequest) {
        self.total += 1;
        self.has_units |= request.units > 0;
        let hash = mix(hash, rule);
        let line = hash as usize % LINES;
        let (hashes, entries) = (&mut self.hashes[line], &mut self.entries[line]);
        for (known, entry) in hashes.iter().zip(&mut *entries) {
            if *known == hash && entry.rule == Some(rule) && *entry.identity == *identity {
                entry.add(request);
                return;
            }
        }
        let lowest = (0..LINE)
            .min_by_key(|index| entries[*index].count)
            .unwrap_or_default();
        hashes[lowest] = hash;
        let entry = &mut entries[lowest];
        entry.rule = Some(rule);
        entry.identity.clear();
        entry.identity.extend_from_slice(identity);
        entry.error = entry.count;
        (entry.units, entry.outcomes) = (0, [0; OUTCOMES]);
        entry.add(request);
    }

    /// Returns the highest count that an identity missing from the line may have.
    fn most_missing(&self, line: usize) -> u64 {
        let counts = self.entries[line].iter().map(|entry| entry.count);
        counts.min().unwrap_or_default()
    }
}

/// Returns whether only the text of an identity of a rule was kept, because it was too long.
pub(crate) fn is_text(identity: &[u8]) -> bool {
    identity.first() == Some(&AS_TEXT)
}

/// Returns the part of a long identity that is kept.
fn shorten(identity: &[u8], hash: u64) -> Identity {
    let text = describe_identity(identity);
    let mut short = Identity::from_slice(&[AS_TEXT]);
    short.extend_from_slice(&text.as_bytes()[..text.floor_char_boundary(MAX_TEXT)]);
    short.extend_from_slice(format!("…{hash:016x}").as_bytes());
    short
}

/// Returns a hash of a rule and an identity.
fn mix(hash: u64, rule: RuleNumber) -> u64 {
    let rule = u64::from(rule.get());
    (hash ^ rule.wrapping_mul(0x9e37_79b9_7f4a_7c15)).rotate_left(29)
}

/// The heaviest identities.
#[derive(Debug, Default)]
pub(crate) struct TopList {
    /// The sum of all counts.
    pub(crate) total: u64,
    /// The highest possible count of an identity that is not in the tables.
    pub(crate) error: u64,
    /// Those with the highest counts, in descending order.
    pub(crate) entries: Vec<TopEntry>,
}

/// One of the heaviest identities: it has at least `count - error`, and at most `count`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopEntry {
    pub(crate) rule: RuleNumber,
    /// Encoded.
    pub(crate) identity: Identity,
    pub(crate) count: u64,
    pub(crate) error: u64,
    /// Those that are known of.
    pub(crate) outcomes: OutcomeCounts,
}

impl TopEntry {
    /// Returns the encoded identity, unless it was too long to be kept.
    pub(crate) fn encoded(&self) -> Option<&[u8]> {
        // The subjects of limits that come with the call are kept whole.
        let is_text = self.rule != RuleNumber::NONE && is_text(&self.identity);
        (!is_text).then_some(&self.identity)
    }

    /// Returns the identity as text.
    pub(crate) fn describe(&self) -> String {
        match self.identity.split_first() {
            Some((&AS_TEXT, text)) => String::from_utf8_lossy(text).into(),
            _ => describe_identity(&self.identity),
        }
    }
}

/// Sums up the counts of all threads.
#[derive(Debug)]
pub(super) struct TopSum {
    by: TopBy,
    window: Duration,
    now: Duration,
    total: u64,
    /// The highest possible count of a missing identity, by line.
    missing: Vec<u64>,
    totals: HashMap<(RuleNumber, Identity), IdentityTotal>,
}

/// The counts of an identity in all tables that have it.
#[derive(Debug, Default)]
struct IdentityTotal {
    line: usize,
    count: u64,
    error: u64,
    outcomes: OutcomeCounts,
    /// The highest possible count of a missing identity in the tables that have this one.
    covered: u64,
}

impl TopSum {
    pub(super) fn new(by: TopBy, window: Duration, now: Duration) -> Self {
        Self {
            by,
            window,
            now,
            total: 0,
            missing: vec![0; LINES],
            totals: HashMap::new(),
        }
    }

    /// Adds the counts of a thread.
    pub(super) fn add(&mut self, counts: &TopCounts) {
        for table in counts.slices(self.by).within(self.window, self.now) {
            self.total += table.total;
            for (line, entries) in table.entries.iter().enumerate() {
                let missing = table.most_missing(line);
                self.missing[line] += missing;
                for entry in entries {
                    let Some(rule) = entry.rule else { continue };
                    let total = self
                        .totals
                        .entry((rule, entry.identity.clone()))
                        .or_default();
                    total.line = line;
                    total.count += entry.count;
                    total.error += entry.error;
                    for (sum, count) in total.outcomes.iter_mut().zip(entry.outcomes) {
                        *sum += u64::from(count);
                    }
                    total.covered += missing;
                }
            }
        }
    }

    /// Returns the identities with the highest counts, among those that are included.
    pub(super) fn into_list(
        self,
        most: usize,
        includes: impl Fn(RuleNumber, &[u8]) -> bool,
    ) -> TopList {
        let totals = self
            .totals
            .into_iter()
            .filter(|((rule, identity), _)| includes(*rule, identity));
        let entries = totals.map(|((rule, identity), total)| {
            // The tables without it may have evicted it.
            let hidden = self.missing[total.line] - total.covered;
            TopEntry {
                rule,
                identity,
                count: total.count + hidden,
                error: total.error + hidden,
                outcomes: total.outcomes,
            }
        });
        let mut entries: Vec<_> = entries.collect();
        let order = |entry: &TopEntry| (u64::MAX - entry.count, entry.identity.clone());
        entries.sort_by_cached_key(order);
        entries.truncate(most);
        TopList {
            total: self.total,
            error: self.missing.iter().copied().max().unwrap_or_default(),
            entries,
        }
    }
}

#[cfg(test)]
mod tests {
    use fluxgate_core::key::Fingerprinter;
    use fluxgate_core::{RequestContext, RuleSets};

    use super::*;

    fn rule() -> RuleNumber {
        let rules = "rule_sets: { s: { rules: [ { id: r, scope: per_user, bands: [ 1/s ] } ] } }";
        let rules = RuleSets::from_yaml(rules).unwrap();
        rules.get("s").unwrap().rules()[0].number()
    }

    fn request(is_denied: bool) -> CountedRequest {
        let (outcome, units) = match is_denied {
            true => (TopOutcome::Denied, 0),
            false => (TopOutcome::Allowed, 3),
        };
        CountedRequest {
            outcome: Some(outcome),
            is_denied,
            units,
        }
    }

    #[test]
    fn units_are_taken_once() {
        let (rule, hashes) = (rule(), Fingerprinter::random());
        let mut counts = TopCounts::default();
        for second in 0..15 {
            let now = Duration::from_secs(second);
            counts.count(
                now,
                rule,
                b"ann",
                hashes.of(b"ann"),
                request(second % 5 == 0),
            );
        }
        let take = |counts: &mut TopCounts| {
            let mut units = 0;
            counts.take_units(|_, identity, more| {
                assert_eq!(identity, b"ann");
                units += more;
            });
            units
        };
        assert_eq!((take(&mut counts), take(&mut counts)), (36, 0));
        let top = top(&[counts], TopBy::Requests, 60, 15, 9);
        assert_eq!(top.entries[0].outcomes, [12, 3, 0, 0, 0]);
    }

    fn top(threads: &[TopCounts], by: TopBy, window: u64, now: u64, most: usize) -> TopList {
        let seconds = Duration::from_secs;
        let mut sum = TopSum::new(by, seconds(window), seconds(now));
        threads.iter().for_each(|counts| sum.add(counts));
        sum.into_list(most, |_, _| true)
    }

    #[test]
    fn few_identities_are_counted_exactly_across_threads() {
        let (rule, hashes) = (rule(), Fingerprinter::random());
        let mut threads = [TopCounts::default(), TopCounts::default()];
        for (thread, counts) in threads.iter_mut().enumerate() {
            for (identity, times) in [("ann", 5), ("bob", 3)] {
                let identity = identity.as_bytes();
                for time in 0..times {
                    let hash = hashes.of(identity);
                    let now = Duration::from_secs(time + thread as u64);
                    counts.count(now, rule, identity, hash, request(time >= 3));
                }
            }
        }
        let requests = top(&threads, TopBy::Requests, 60, 5, 9);
        let counts = |top: &TopList| -> Vec<_> {
            let entries = top.entries.iter();
            entries.map(|it| (it.count, it.error)).collect()
        };
        assert_eq!((requests.total, requests.error), (16, 0));
        assert_eq!(counts(&requests), [(10, 0), (6, 0)]);
        assert_eq!(counts(&top(&threads, TopBy::Denied, 60, 5, 9)), [(4, 0)]);
        assert_eq!(top(&threads, TopBy::Requests, 60, 5, 1).entries.len(), 1);
        let mut sum = TopSum::new(TopBy::Requests, MAX_WINDOW, Duration::from_secs(5));
        threads.iter().for_each(|counts| sum.add(counts));
        let removed = sum.into_list(9, |known, _| known != rule);
        assert_eq!((removed.entries.len(), removed.total), (0, 16));
        // A window has all that is in it, whatever the time within a table.
        assert_eq!(top(&threads, TopBy::Requests, 60, 64, 9).total, 16);
        assert_eq!(top(&threads, TopBy::Requests, 10, 12, 9).total, 16);
        // They are evicted at the latest ten seconds after it.
        assert_eq!(top(&threads, TopBy::Requests, 60, 70, 9).total, 0);
        assert_eq!(top(&threads, TopBy::Requests, 10, 20, 9).total, 0);
    }

    #[test]
    fn a_long_identity_takes_little_memory() {
        let (rule, hashes) = (rule(), Fingerprinter::random());
        let mut counts = TopCounts::default();
        let text = "ä".repeat(30_000);
        let user = RequestContext::builder().user(&text).build();
        let rules = "rule_sets: { s: { rules: [ { id: r, scope: per_user, bands: [ 1/s ] } ] } }";
        let rules = RuleSets::from_yaml(rules).unwrap();
        let set = rules.get("s").unwrap();
        let identity = set.identity_of(&set.rules()[0], &user).unwrap();
        for _ in 0..2 {
            let hash = hashes.of(&identity);
            counts.count(Duration::ZERO, rule, &identity, hash, request(false));
        }
        let top = top(&[counts], TopBy::Requests, 60, 0, 9);
        assert_eq!(top.entries[0].count, 2);
        assert!(top.entries[0].identity.len() < MAX_IDENTITY);
        let described = top.entries[0].describe();
        assert!(
            described.starts_with("user=ää") && described.contains('…'),
            "{described}"
        );
    }

    /// A million identities by Zipf's law: all counts are within their errors, and the true
    /// twenty heaviest are named.
    #[test]
    fn the_heaviest_of_a_million_are_found_within_the_stated_error() {
        const IDENTITIES: usize = 1_000_000;
        const REQUESTS: usize = 2_000_000;
        let (rule, hashes) = (rule(), Fingerprinter::random());
        let mut shares = Vec::with_capacity(IDENTITIES);
        let mut sum = 0.0;
        for rank in 1..=IDENTITIES {
            sum += 1.0 / rank as f64;
            shares.push(sum);
        }
        let mut random = 88_172_645_463_325_252_u64;
        let mut truth = vec![0_u64; IDENTITIES];
        let mut threads = [TopCounts::default(), TopCounts::default()];
        let allowed = request(false);
        for request in 0..REQUESTS {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let point = (random >> 11) as f64 / (1_u64 << 53) as f64 * sum;
            let rank = shares.partition_point(|share| *share < point);
            truth[rank] += 1;
            let identity = (rank as u64).to_le_bytes();
            let now = Duration::from_secs(60 * request as u64 / REQUESTS as u64);
            let counts = &mut threads[request % 2];
            counts.count(now, rule, &identity, hashes.of(&identity), allowed);
        }
        let found = top(&threads, TopBy::Requests, 60, 59, 100_000);
        assert_eq!(found.total, REQUESTS as u64);
        let rank_of = |entry: &TopEntry| {
            let bytes: [u8; 8] = entry.identity[..].try_into().unwrap();
            u64::from_le_bytes(bytes) as usize
        };
        for entry in &found.entries {
            let count = truth[rank_of(entry)];
            let least = entry.count - entry.error;
            assert!((least..=entry.count).contains(&count), "{entry:?} {count}");
        }
        let mut heaviest: Vec<_> = (0..IDENTITIES).collect();
        heaviest.sort_by_key(|rank| u64::MAX - truth[*rank]);
        let listed: Vec<_> = found.entries.iter().take(40).map(rank_of).collect();
        for rank in &heaviest[..20] {
            assert!(listed.contains(rank), "{rank} is not listed");
        }
        let known: std::collections::HashSet<_> = found.entries.iter().map(rank_of).collect();
        let missing = heaviest.iter().find(|rank| !known.contains(rank)).unwrap();
        assert!(truth[*missing] <= found.error);
        // Less than the twentieth has.
        assert!(found.error < truth[heaviest[19]], "{}", found.error);
    }
}
