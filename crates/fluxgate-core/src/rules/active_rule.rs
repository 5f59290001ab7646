//! A rule that decisions use.

use std::ops::Range;

use foldhash::HashMap;

use super::rule::{Cost, RuleMode};
use crate::band::Band;
use crate::key::{self, IdentityError, KeyPart, OnMissingKey, RuleNumber, Subject, SubjectBytes};
use crate::limit::Limit;
use crate::matcher::PathSet;
use crate::time::Micros;

/// The bands of encoded identities.
pub(super) type Overrides = HashMap<Box<[u8]>, Range<u32>>;

/// An enabled rule of a [`RuleSet`](crate::RuleSet), with all its values checked.
#[derive(Clone, Debug)]
pub struct ActiveRule {
    pub(super) id: Box<str>,
    pub(super) name: Option<Box<str>>,
    pub(super) mode: RuleMode,
    pub(super) priority: i32,
    pub(super) not_path: PathSet,
    pub(super) key: Vec<KeyPart>,
    pub(super) on_missing_key: OnMissingKey,
    pub(super) cost: Cost,
    /// How long a request that it denies may wait; `None` if it may not.
    pub(super) max_wait: Option<Micros>,
    /// Its own bands, followed by those of its overrides.
    pub(super) bands: Vec<Band>,
    /// The number of its own bands.
    pub(super) own: u32,
    pub(super) overrides: Overrides,
    pub(super) attributes: Vec<(Box<str>, Box<str>)>,
    /// The start of every subject of this rule: its set, its id and, if it resets on
    /// change, a hash of its text.
    pub(super) subject: Box<[u8]>,
    pub(super) number: RuleNumber,
    pub(super) reset_on_change: bool,
}

impl ActiveRule {
    /// Returns its id in its set.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns its name for people.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns whether it may deny requests.
    pub fn mode(&self) -> RuleMode {
        self.mode
    }

    /// Returns its priority: the lowest is evaluated first.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// Returns whether a request that it denies may wait (`on_exceed: wait`).
    #[doc(hidden)]
    pub fn waits(&self) -> bool {
        self.max_wait.is_some()
    }

    /// Returns whether it may delay requests, by a reservation or in a shaping queue.
    #[doc(hidden)]
    pub fn delays(&self) -> bool {
        self.max_wait().is_some() || self.bands.iter().any(|band| band.limit().rate().shape())
    }

    /// Returns how long a request that it denies may wait, if it may.
    #[doc(hidden)]
    pub fn max_wait(&self) -> Option<Micros> {
        self.max_wait
    }

    /// Returns the parts of its key; none for a global rule.
    pub fn key(&self) -> &[KeyPart] {
        &self.key
    }

    /// Returns its bands, without those of its overrides.
    pub fn bands(&self) -> &[Band] {
        self.bands_in(&(0..self.own))
    }

    /// Returns the attributes that logs and events carry.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attributes.iter().map(|(k, v)| (&**k, &**v))
    }

    /// Returns whether any change of the rule resets its state.
    #[doc(hidden)]
    pub fn reset_on_change(&self) -> bool {
        self.reset_on_change
    }

    /// Returns its number in this process.
    #[doc(hidden)]
    pub fn number(&self) -> RuleNumber {
        self.number
    }

    /// Replaces the limits of its bands, including those of its overrides.
    pub(super) fn set_limits(&mut self, limits: Vec<Limit>) {
        for (band, limit) in self.bands.iter_mut().zip(limits) {
            *band = Band::new(band.id(), limit);
        }
    }

    pub(crate) fn not_path(&self) -> &PathSet {
        &self.not_path
    }

    pub(crate) fn on_missing_key(&self) -> OnMissingKey {
        self.on_missing_key
    }

    pub(crate) fn cost(&self) -> &Cost {
        &self.cost
    }

    /// Returns the start of every subject of this rule.
    pub(crate) fn subject(&self) -> Subject<'_> {
        Subject {
            rule: self.number,
            bytes: &self.subject,
        }
    }

    /// Returns the bands of an encoded identity.
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

    /// Returns the subject with exactly these values of the key, and its bands.
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
