//! Who was denied, in tables of each thread.
//!
//! A thread counts in a table of its own, which the collector of the history takes once a second. A
//! table has a fixed number of rows, in lines. A row belongs to one line; if the line is full, it
//! replaces the lightest of the line, whose denials are counted as dropped. How heavy a row is
//! includes what it may have had before it was replaced, as in Space-Saving, so that rows of
//! identities with many denials stay.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::{Outcome, RequestContext};
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use super::rule_names::RuleNames;

const LINES: usize = 512;
const LINE: usize = 8;
/// A longer identity is kept as a hash. Clients choose identities, and memory is bounded.
const MAX_IDENTITY: usize = 256;
const MAX_METHOD: usize = 16;
const MAX_PATH: usize = 200;

/// The identity of a denial.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DeniedIdentity {
    /// There is none: no rule decided, or a part of the key was missing.
    None,
    /// Encoded.
    Known(SmallVec<[u8; 40]>),
    /// The hash of an encoded identity that is too long to be kept.
    Long([u8; 16]),
}

impl DeniedIdentity {
    fn of(identity: Option<&[u8]>) -> Self {
        match identity {
            None => Self::None,
            Some(long) if long.len() > MAX_IDENTITY => {
                let hash = Sha256::digest(long);
                Self::Long(std::array::from_fn(|index| hash[index]))
            }
            Some(identity) => Self::Known(SmallVec::from_slice(identity)),
        }
    }

    fn is(&self, identity: Option<&[u8]>) -> bool {
        match (self, identity) {
            (Self::None, None) => true,
            (Self::Known(known), Some(identity)) => **known == *identity,
            (Self::Long(_), Some(long)) if long.len() > MAX_IDENTITY => *self == Self::of(identity),
            _ => false,
        }
    }
}

/// A denial to be counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Denial<'a> {
    pub(super) names: &'a Arc<RuleNames>,
    pub(super) identity: Option<&'a [u8]>,
    /// A hash of the identity.
    pub(super) hash: u64,
    pub(super) outcome: Outcome,
    pub(super) band: Option<&'a str>,
    /// The request, if there is one.
    pub(super) context: Option<&'a RequestContext<'a>>,
    /// Since the start of the service.
    pub(super) at: Duration,
}

/// The denials of one identity by one rule.
#[derive(Clone, Debug)]
pub(crate) struct DenialEntry {
    pub(crate) names: Arc<RuleNames>,
    pub(crate) identity: DeniedIdentity,
    pub(crate) count: u64,
    /// Since the start of the service.
    pub(crate) first: Duration,
    pub(crate) last: Duration,
    /// Of the last denial.
    pub(crate) outcome: Outcome,
    pub(crate) band: SmallVec<[u8; 16]>,
    /// Of the first request.
    pub(crate) method: SmallVec<[u8; 8]>,
    pub(crate) path: SmallVec<[u8; 48]>,
    /// The count, and what the row may have had before.
    weight: u64,
}

impl DenialEntry {
    fn new(denial: &Denial<'_>, weight: u64) -> Self {
        let (method, path) = match denial.context {
            Some(context) => (context.method(), context.path()),
            None => (None, None),
        };
        Self {
            names: Arc::clone(denial.names),
            identity: DeniedIdentity::of(denial.identity),
            count: 1,
            first: denial.at,
            last: denial.at,
            outcome: denial.outcome,
            band: SmallVec::from_slice(denial.band.unwrap_or_default().as_bytes()),
            method: SmallVec::from_slice(cut(method.unwrap_or_default(), MAX_METHOD)),
            path: SmallVec::from_slice(cut(without_query(path.unwrap_or_default()), MAX_PATH)),
            weight,
        }
    }

    fn add(&mut self, denial: &Denial<'_>) {
        self.count += 1;
        self.weight += 1;
        self.last = denial.at;
        self.outcome = denial.outcome;
        self.band.clear();
        self.band
            .extend_from_slice(denial.band.unwrap_or_default().as_bytes());
    }
}

/// The denials of one thread.
#[derive(Debug, Default)]
pub(super) struct DenialTables {
    /// `None` until there is a denial.
    current: Option<Box<DenialTable>>,
    /// Empty, to be used next.
    spare: Option<Box<DenialTable>>,
}

impl DenialTables {
    pub(super) fn count(&mut self, denial: &Denial<'_>) {
        let spare = &mut self.spare;
        let current = self
            .current
            .get_or_insert_with(|| spare.take().unwrap_or_default());
        current.count(denial);
    }

    /// Takes what has been counted since the last time.
    pub(super) fn take(&mut self) -> Option<Box<DenialTable>> {
        self.current.take()
    }

    /// Returns a table that was taken, and is empty now.
    pub(super) fn put_back(&mut self, table: Box<DenialTable>) {
        self.spare = Some(table);
    }
}

/// A table of denials.
#[derive(Debug)]
pub(crate) struct DenialTable {
    /// Kept apart, so that the hashes of a line fill one line of the cache.
    hashes: Vec<[u64; LINE]>,
    rows: Vec<Option<DenialEntry>>,
    /// The denials without a row.
    dropped: HashMap<usize, (Arc<RuleNames>, u64)>,
}

impl Default for DenialTable {
    fn default() -> Self {
        Self {
            hashes: vec![[0; LINE]; LINES],
            rows: vec![None; LINES * LINE],
            dropped: HashMap::new(),
        }
    }
}

impl DenialTable {
    fn count(&mut self, denial: &Denial<'_>) {
        let hash = mix(denial.hash, denial.names);
        let line = hash as usize % LINES;
        let hashes = &mut self.hashes[line];
        let rows = &mut self.rows[line * LINE..(line + 1) * LINE];
        let mut lightest = (0, u64::MAX);
        for (index, row) in rows.iter_mut().enumerate() {
            match row {
                Some(row) => {
                    if hashes[index] == hash
                        && Arc::ptr_eq(&row.names, denial.names)
                        && row.identity.is(denial.identity)
                    {
                        return row.add(denial);
                    }
                    if row.weight < lightest.1 {
                        lightest = (index, row.weight);
                    }
                }
                None => {
                    hashes[index] = hash;
                    *row = Some(DenialEntry::new(denial, 1));
                    return;
                }
            }
        }
        let (index, weight) = lightest;
        hashes[index] = hash;
        let replaced = rows[index].replace(DenialEntry::new(denial, weight + 1));
        if let Some(replaced) = replaced {
            let number = Arc::as_ptr(&replaced.names) as usize;
            let dropped = self.dropped.entry(number);
            dropped.or_insert((replaced.names, 0)).1 += replaced.count;
        }
    }

    /// Returns the rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &DenialEntry> {
        self.rows.iter().flatten()
    }

    /// Returns the denials without a row, by rule.
    pub(crate) fn dropped(&self) -> impl Iterator<Item = (&RuleNames, u64)> {
        let dropped = self.dropped.values();
        dropped.map(|(names, count)| (&**names, *count))
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) {
        self.hashes.fill([0; LINE]);
        self.rows.fill(None);
        self.dropped.clear();
    }
}

/// Returns a hash of a rule and an identity.
fn mix(hash: u64, names: &Arc<RuleNames>) -> u64 {
    let rule = Arc::as_ptr(names) as u64;
    (hash ^ rule.wrapping_mul(0x9e37_79b9_7f4a_7c15)).rotate_left(29)
}

fn without_query(path: &str) -> &str {
    path.split_once('?').map_or(path, |(path, _)| path)
}

/// Returns the beginning of a text that clients choose.
fn cut(text: &str, most: usize) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use fluxgate_core::key::Fingerprinter;

    use super::*;

    fn names(rule: &str) -> Arc<RuleNames> {
        Arc::new(RuleNames {
            rule_set: "s".into(),
            rule: rule.into(),
        })
    }

    fn denial<'a>(
        names: &'a Arc<RuleNames>,
        identity: &'a [u8],
        hashes: &Fingerprinter,
    ) -> Denial<'a> {
        Denial {
            names,
            identity: Some(identity),
            hash: hashes.of(identity),
            outcome: Outcome::Denied,
            band: Some("b0"),
            context: None,
            at: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_row_has_its_first_request_and_its_last_outcome() {
        let (rule, hashes) = (names("r"), Fingerprinter::random());
        let mut tables = DenialTables::default();
        let long = "/ä".repeat(200);
        for (path, outcome, at) in [
            ("/a?key=secret", Outcome::Denied, 3),
            (&*long, Outcome::Never, 5),
        ] {
            let context = RequestContext::builder().method("GET").path(path).build();
            tables.count(&Denial {
                outcome,
                band: (outcome == Outcome::Denied).then_some("b0"),
                context: Some(&context),
                at: Duration::from_secs(at),
                ..denial(&rule, b"ann", &hashes)
            });
        }
        let context = RequestContext::builder().path(&long).build();
        tables.count(&Denial {
            identity: None,
            context: Some(&context),
            ..denial(&rule, b"", &hashes)
        });
        let mut table = tables.take().unwrap();
        let row = |identity: &DeniedIdentity| {
            let mut rows = table.rows();
            rows.find(|row| row.identity == *identity).unwrap().clone()
        };
        let ann = row(&DeniedIdentity::Known(SmallVec::from_slice(b"ann")));
        assert_eq!(
            (ann.count, &*ann.method, &*ann.path),
            (2, &b"GET"[..], &b"/a"[..])
        );
        assert_eq!((ann.first.as_secs(), ann.last.as_secs()), (3, 5));
        assert_eq!((ann.outcome, ann.band.len()), (Outcome::Never, 0));
        let none = row(&DeniedIdentity::None);
        assert!(none.path.len() <= MAX_PATH && str::from_utf8(&none.path).is_ok());
        table.clear();
        tables.put_back(table);
        assert!(tables.take().is_none());
        tables.count(&denial(&rule, b"bob", &hashes));
        assert_eq!(tables.take().unwrap().rows().count(), 1);
    }

    #[test]
    fn long_identities_are_told_apart_and_take_little_memory() {
        let (rule, hashes) = (names("r"), Fingerprinter::random());
        let mut tables = DenialTables::default();
        let [one, other] = [b'a', b'b'].map(|byte| vec![byte; 60_000]);
        for identity in [&one, &other, &one] {
            tables.count(&denial(&rule, identity, &hashes));
        }
        let table = tables.take().unwrap();
        let mut counts: Vec<_> = table.rows().map(|row| row.count).collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 2]);
        assert!(
            table
                .rows()
                .all(|row| matches!(row.identity, DeniedIdentity::Long(_)))
        );
    }

    /// Whatever is replaced, rows and what was dropped are all denials, and heavy identities stay.
    #[test]
    fn a_flood_of_identities_drops_light_rows_and_counts_them() {
        let (rules, hashes) = ([names("a"), names("b")], Fingerprinter::random());
        let mut tables = DenialTables::default();
        const FLOOD: u32 = 50_000;
        for number in 0..FLOOD {
            let light = number.to_le_bytes();
            tables.count(&denial(&rules[(number % 2) as usize], &light, &hashes));
            if number % 100 == 0 {
                for heavy in 0..20_u8 {
                    tables.count(&denial(&rules[0], &[heavy], &hashes));
                }
            }
        }
        let table = tables.take().unwrap();
        let rows: u64 = table.rows().map(|row| row.count).sum();
        let dropped: u64 = table.dropped().map(|(_, count)| count).sum();
        assert!(dropped > 0);
        assert_eq!(rows + dropped, u64::from(FLOOD + FLOOD / 100 * 20));
        let heavy = table.rows().filter(|row| row.count == 500);
        assert_eq!(heavy.count(), 20);
        let by_rule: u64 = { table.dropped().filter(|(names, _)| *names.rule == *"b") }
            .map(|(_, count)| count)
            .sum();
        let rows_of_b = table.rows().filter(|row| *row.names.rule == *"b");
        assert_eq!(
            by_rule + rows_of_b.map(|row| row.count).sum::<u64>(),
            u64::from(FLOOD / 2)
        );
    }
}
