//! One rule, ready to be used.

use std::ops::Range;

use hashbrown::HashMap;

use super::{Band, RuleNumber};
use crate::context::RequestContext;
use crate::key::{self, IdentityError, KeyPart, OnMissingKey, SubjectBytes};
use crate::limit::Limit;
use crate::matcher::PathSet;
use crate::time::Micros;

/// What is decided when the store cannot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Let pass.
    Allow,
    /// Refuse.
    Deny,
    /// Let the embedded engine decide by the same rules.
    #[default]
    Local,
}

impl OnError {
    /// The names that configurations give them.
    pub const NAMES: [(&str, Self); 3] = [
        ("allow", Self::Allow),
        ("deny", Self::Deny),
        ("local", Self::Local),
    ];
}

/// What a rule set that does not exist means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissingRuleSet {
    /// As if no rule matched.
    #[default]
    Allow,
    /// Refuse, for ever.
    Deny,
}

/// Whether a rule may refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleMode {
    /// It may.
    #[default]
    Enforce,
    /// It is decided, counted and reported, and never refuses.
    Shadow,
}

/// Where the cost of a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostSource {
    /// Always the same.
    Fixed(u64),
    /// A header; the name is in lower case.
    Header(Box<str>),
    /// An attribute.
    Attribute(Box<str>),
}

impl CostSource {
    /// The cost of `context`: its own, or what this source says. A header or
    /// attribute that is no whole number from 1 counts as 1.
    pub(crate) fn cost_of(&self, context: &RequestContext<'_>) -> u64 {
        if let Some(cost) = context.cost {
            return cost;
        }
        let text = match self {
            Self::Fixed(cost) => return *cost,
            Self::Header(name) => context.header(name),
            Self::Attribute(name) => context.attribute(name),
        };
        text.and_then(whole_number).map_or(1, |cost| cost.max(1))
    }
}

/// Decimal digits only; a number past the end of u64 is as good as its end.
fn whole_number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

/// A rule, checked and ready.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(super) id: Box<str>,
    pub(super) name: Option<Box<str>>,
    pub(super) mode: RuleMode,
    pub(super) priority: i64,
    pub(super) not_path: PathSet,
    pub(super) key: Vec<KeyPart>,
    pub(super) on_missing_key: OnMissingKey,
    pub(super) cost: CostSource,
    /// How long what it refuses may wait; `None` where it must not.
    pub(super) max_wait: Option<Micros>,
    /// Its own bands, then those of its overrides.
    pub(super) bands: Vec<Band>,
    /// How many of the bands are its own.
    pub(super) own: u32,
    /// Which of the bands hold for an encoded identity.
    pub(super) overrides: HashMap<Box<[u8]>, Range<u32>>,
    pub(super) attributes: Vec<(Box<str>, Box<str>)>,
    /// The start of every subject of this rule: its set, its id and, where it
    /// resets on change, what it says.
    pub(super) subject: Box<[u8]>,
    pub(super) number: RuleNumber,
    pub(super) reset_on_change: bool,
}

impl Rule {
    /// Its id in its set.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its name for people.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Whether it may refuse.
    pub fn mode(&self) -> RuleMode {
        self.mode
    }

    /// Where it stands in the order of evaluation; low is first.
    pub fn priority(&self) -> i64 {
        self.priority
    }

    /// Whether what is refused may wait (`on_exceed: wait`).
    pub fn waits(&self) -> bool {
        self.max_wait.is_some()
    }

    /// Whether it may delay requests: until their turn, or in a queue that shapes.
    pub fn delays(&self) -> bool {
        self.max_wait().is_some() || self.bands.iter().any(|band| band.limit().rate().shape())
    }

    /// How long what is refused may wait, where it may.
    pub fn max_wait(&self) -> Option<Micros> {
        self.max_wait
    }

    /// The parts of its key; none for a global rule.
    pub fn key(&self) -> &[KeyPart] {
        &self.key
    }

    /// Its bands, where no override says otherwise.
    pub fn bands(&self) -> &[Band] {
        self.bands_in(&(0..self.own))
    }

    /// What is carried into logs and events.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attributes.iter().map(|(k, v)| (&**k, &**v))
    }

    /// Whether any change makes it start afresh.
    pub fn reset_on_change(&self) -> bool {
        self.reset_on_change
    }

    /// Its number in this process.
    pub fn number(&self) -> RuleNumber {
        self.number
    }

    /// Gives its bands, those of its overrides included, these limits in turn.
    pub(super) fn set_limits(&mut self, limits: Vec<Limit>) {
        for (band, limit) in self.bands.iter_mut().zip(limits) {
            *band = Band::new(band.id(), limit).of_rule(&self.id);
        }
    }

    pub(crate) fn not_path(&self) -> &PathSet {
        &self.not_path
    }

    pub(crate) fn on_missing_key(&self) -> OnMissingKey {
        self.on_missing_key
    }

    pub(crate) fn cost(&self) -> &CostSource {
        &self.cost
    }

    pub(crate) fn subject(&self) -> &[u8] {
        &self.subject
    }

    /// Which bands hold for an encoded identity.
    pub(crate) fn bands_for(&self, identity: &[u8]) -> Range<u32> {
        if self.overrides.is_empty() {
            return 0..self.own;
        }
        self.overrides.get(identity).cloned().unwrap_or(0..self.own)
    }

    pub(crate) fn bands_in(&self, range: &Range<u32>) -> &[Band] {
        &self.bands[range.start as usize..range.end as usize]
    }

    pub(crate) fn band(&self, index: u32) -> Option<&Band> {
        self.bands.get(index as usize)
    }

    /// The subject of exactly these values, and its bands.
    pub(crate) fn subject_of(
        &self,
        values: &[&str],
        ipv6_prefix: u8,
    ) -> Result<(SubjectBytes, &[Band]), IdentityError> {
        let mut subject = SubjectBytes::new();
        subject.extend_from_slice(&self.subject);
        key::encode_values(&self.key, values, ipv6_prefix, &mut subject)?;
        let bands = self.bands_for(&subject[self.subject.len()..]);
        Ok((subject, self.bands_in(&bands)))
    }
}
