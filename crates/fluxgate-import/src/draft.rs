//! The rules that an importer builds, and its remarks.

use std::collections::HashSet;

pub(super) use fluxgate_core::internals::limit::MAX_UNITS;
use fluxgate_core::internals::limit::{MAX_FILL, MAX_SPAN};

use super::names::on_one_line;

/// The longest window, in milliseconds.
pub(super) const MAX_WINDOW_MS: u64 = MAX_SPAN.get() / 1_000;

/// Returns the largest capacity of a bucket that gains `refill` units each period.
pub(super) fn largest_capacity(refill: u64, period_ms: u64) -> u64 {
    let fill_ms = u128::from(MAX_FILL.get() / 1_000);
    let capacity = fill_ms * u128::from(refill) / u128::from(period_ms);
    u64::try_from(capacity).map_or(MAX_UNITS, |capacity| capacity.min(MAX_UNITS))
}

/// Rule sets, and remarks that belong to none of their rules.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) remarks: Vec<Remark>,
    pub(super) sets: Vec<Set>,
}

impl Draft {
    /// Removes sets without rules, and keeps their remarks.
    pub(super) fn drop_empty_sets(&mut self) {
        let sets = std::mem::take(&mut self.sets);
        for set in sets {
            if set.rules.is_empty() {
                self.remarks.extend(set.remarks);
            } else {
                self.sets.push(set);
            }
        }
        self.remarks.sort_by_key(|remark| remark.line);
    }

    /// Removes the ids of bands that an earlier band of the rule already has.
    pub(super) fn drop_repeated_band_ids(&mut self) {
        for rule in self.sets.iter_mut().flat_map(|set| &mut set.rules) {
            let mut seen = HashSet::new();
            for band in &mut rule.bands {
                band.id.take_if(|id| !seen.insert(id.clone()));
            }
        }
    }

    /// Returns the number of things that were not carried over.
    pub(super) fn lost(&self) -> usize {
        let remarks = self.all_remarks();
        remarks.filter(|remark| remark.kind == Kind::Lost).count()
    }

    pub(super) fn into_remarks(self) -> Vec<Remark> {
        self.all_remarks().cloned().collect()
    }

    fn all_remarks(&self) -> impl Iterator<Item = &Remark> {
        let of_sets = self.sets.iter().flat_map(|set| {
            let of_rules = set.rules.iter().flat_map(|rule| &rule.remarks);
            set.remarks.iter().chain(of_rules)
        });
        self.remarks.iter().chain(of_sets)
    }
}

/// Whether a remark is about something that is missing or something that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It has no counterpart in the rules.
    Lost,
    /// It has a counterpart that behaves differently.
    Changed,
}

/// A remark on a place of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The line in the source, from 1.
    pub line: usize,
    pub(super) kind: Kind,
    pub(super) text: String,
}

impl Remark {
    /// Something that the rules do not express.
    pub(super) fn lost(line: usize, text: impl Into<String>) -> Self {
        let (kind, text) = (Kind::Lost, text.into());
        Self { line, kind, text }
    }

    /// Something that the rules express differently.
    pub(super) fn changed(line: usize, text: impl Into<String>) -> Self {
        let (kind, text) = (Kind::Changed, text.into());
        Self { line, kind, text }
    }

    /// Returns the remark without its line, on one line of text.
    pub fn sentence(&self) -> String {
        let begin = match self.kind {
            Kind::Lost => "not carried over",
            Kind::Changed => "changed",
        };
        format!("{begin}: {}", on_one_line(&self.text))
    }
}

/// A rule set.
#[derive(Debug, Default)]
pub(super) struct Set {
    pub(super) name: String,
    pub(super) remarks: Vec<Remark>,
    /// `allow`, `deny`, or the default.
    pub(super) on_error: Option<&'static str>,
    pub(super) rules: Vec<Rule>,
}

impl Set {
    /// Returns whether the other set has the same rules, whatever the remarks on them.
    pub(super) fn decides_like(&self, other: &Self) -> bool {
        let plain = |rule: &Rule| Rule {
            remarks: Vec::new(),
            ..rule.clone()
        };
        let (own, others) = (self.rules.iter(), other.rules.iter());
        self.on_error == other.on_error && own.map(plain).eq(others.map(plain))
    }
}

/// A rule. Fields with their default value are not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) id: String,
    pub(super) remarks: Vec<Remark>,
    pub(super) name: Option<String>,
    pub(super) enabled: bool,
    pub(super) shadow: bool,
    /// Whether it denies every request that it matches, and so has no key and no bands.
    pub(super) denies: bool,
    pub(super) matches: Match,
    /// The parts of the key, as they are written. None: a global rule.
    pub(super) key: Vec<String>,
    pub(super) group: Option<String>,
    pub(super) on_missing_key: &'static str,
    pub(super) algorithm: Algorithm,
    pub(super) bands: Vec<Band>,
    pub(super) cost: u64,
    /// With a value, a request waits for up to this number of milliseconds.
    pub(super) max_wait_ms: Option<u64>,
    pub(super) attributes: Vec<(String, String)>,
}

/// The default of `on_missing_key`.
pub(super) const DEFAULT_ON_MISSING_KEY: &str = "ip";

impl Rule {
    /// Creates an enforced rule without conditions and bands.
    pub(super) fn new(id: String, algorithm: Algorithm) -> Self {
        Self {
            id,
            remarks: Vec::new(),
            name: None,
            enabled: true,
            shadow: false,
            denies: false,
            matches: Match::default(),
            key: Vec::new(),
            group: None,
            on_missing_key: DEFAULT_ON_MISSING_KEY,
            algorithm,
            bands: Vec::new(),
            cost: 1,
            max_wait_ms: None,
            attributes: Vec::new(),
        }
    }

    /// Creates a rule that denies every request that it matches.
    pub(super) fn denying(id: String) -> Self {
        let mut rule = Self::new(id, Algorithm::TokenBucket);
        rule.denies = true;
        rule
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    TokenBucket,
    /// A leaky bucket that delays requests.
    ShapingBucket,
    FixedWindow,
    SlidingWindow,
}

/// The conditions of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) path: Vec<String>,
    pub(super) not_path: Vec<String>,
    pub(super) methods: Vec<String>,
    pub(super) headers: Vec<(String, Test)>,
    pub(super) attributes: Vec<(String, Test)>,
    pub(super) ip: Vec<String>,
    pub(super) not_ip: Vec<String>,
}

/// The condition on one header or attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// It has one of these values.
    Is(Vec<String>),
    /// It has none of these values.
    Not(Vec<String>),
    Present(bool),
}

/// A band of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Band {
    pub(super) id: Option<String>,
    pub(super) capacity: u64,
    pub(super) window: Window,
    /// Refill and period in milliseconds, if they are not capacity and window.
    pub(super) refill: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Window {
    Millis(u64),
    /// A calendar unit and a time zone.
    Calendar(&'static str, String),
}

impl Band {
    pub(super) fn new(capacity: u64, window_ms: u64) -> Self {
        Self {
            id: None,
            capacity,
            window: Window::Millis(window_ms),
            refill: None,
        }
    }

    pub(super) fn calendar(capacity: u64, unit: &'static str, zone: &str) -> Self {
        Self {
            window: Window::Calendar(unit, zone.to_owned()),
            ..Self::new(capacity, 0)
        }
    }
}
