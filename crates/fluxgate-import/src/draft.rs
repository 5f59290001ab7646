//! The rules that an importer builds, and its remarks.

use std::collections::HashSet;
use std::time::Duration;

use fluxgate_core::limit::{MAX_FILL, MAX_SPAN};
use fluxgate_core::{
    Algorithm, Band, Calendar, InvalidRules, KeyPart, Limit, LimitError, OnError, OnMissingKey,
    Rule, RuleSet, ValueMatch,
};

use crate::config_draft::ConfigDraft;

pub(crate) use crate::remark::Remark;
pub(crate) use fluxgate_core::limit::MAX_UNITS;

/// The longest window.
pub(crate) const MAX_WINDOW: Duration = MAX_SPAN.as_duration();

/// Returns the largest capacity of a bucket that gains `refill` units each period.
pub(crate) fn largest_capacity(refill: u64, period: Duration) -> u64 {
    let capacity = MAX_FILL.as_duration().as_millis() * u128::from(refill) / period.as_millis();
    u64::try_from(capacity).map_or(MAX_UNITS, |capacity| capacity.min(MAX_UNITS))
}

/// Rule sets, and remarks that belong to none of their rules.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) remarks: Vec<Remark>,
    pub(crate) sets: Vec<RuleSetDraft>,
    /// The configuration around the rules, if the source has one.
    pub(crate) config: Option<ConfigDraft>,
}

impl Draft {
    /// Removes sets without rules, and keeps their remarks.
    pub(crate) fn drop_empty_sets(&mut self) {
        for set in self.sets.extract_if(.., |set| set.rules.is_empty()) {
            self.remarks.extend(set.remarks);
        }
        self.remarks.sort_by_key(|remark| remark.line);
    }

    /// Removes the ids of bands that an earlier band of the rule already has.
    pub(crate) fn drop_repeated_band_ids(&mut self) {
        for rule in self.sets.iter_mut().flat_map(|set| &mut set.rules) {
            rule.drop_repeated_band_ids();
        }
    }

    /// Returns all remarks, those on sets and rules included.
    pub(crate) fn all_remarks(&self) -> impl Iterator<Item = &Remark> {
        let of_sets = self.sets.iter().flat_map(|set| {
            let of_rules = set.rules.iter().flat_map(|rule| &rule.remarks);
            set.remarks.iter().chain(of_rules)
        });
        self.remarks.iter().chain(of_sets)
    }
}

/// A rule set and the remarks on it.
#[derive(Debug, Default)]
pub(crate) struct RuleSetDraft {
    pub(crate) name: String,
    pub(crate) remarks: Vec<Remark>,
    /// Which requests the set is for. A configuration says it by its routes.
    pub(crate) selection: Option<Remark>,
    pub(crate) on_error: OnError,
    pub(crate) rules: Vec<RuleDraft>,
}

impl RuleSetDraft {
    /// Returns whether the other set has the same rules, whatever the remarks on them.
    pub(crate) fn decides_like(&self, other: &Self) -> bool {
        let rules = |set: &Self| -> Result<Vec<_>, _> {
            set.rules.iter().map(RuleDraft::to_rule).collect()
        };
        self.on_error == other.on_error && rules(self) == rules(other)
    }

    /// Checks the rules and returns the set.
    pub(crate) fn to_rule_set(&self) -> Result<RuleSet, InvalidDraft> {
        let mut set = RuleSet::builder(self.name.as_str()).on_error(self.on_error);
        for rule in &self.rules {
            set = set.rule(rule.to_rule()?);
        }
        Ok(set.build()?)
    }
}

/// Why a draft is not a valid rule set.
#[derive(Debug, thiserror::Error)]
pub enum InvalidDraft {
    /// The numbers of a band are outside their domain.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A rule set is invalid.
    #[error(transparent)]
    Rules(#[from] InvalidRules),
}

/// A [`Rule`] while an importer collects its fields, and the remarks on it.
#[derive(Clone, Debug)]
pub(crate) struct RuleDraft {
    pub(crate) id: String,
    pub(crate) remarks: Vec<Remark>,
    pub(crate) name: Option<String>,
    pub(crate) enabled: bool,
    pub(crate) shadow: bool,
    /// The status of a rule that denies every request that it matches, and so has no key and no
    /// bands.
    pub(crate) denies: Option<u16>,
    pub(crate) conditions: Conditions,
    /// The parts of the key. None: a global rule.
    pub(crate) key: Vec<KeyPart>,
    pub(crate) group: Option<String>,
    pub(crate) on_missing_key: OnMissingKey,
    /// Of all bands. A leaky bucket delays requests.
    pub(crate) algorithm: Algorithm,
    pub(crate) bands: Vec<BandDraft>,
    pub(crate) cost: u64,
    /// How long a request may wait instead of being denied.
    pub(crate) max_wait: Option<Duration>,
    /// Whether a change of the limit makes it full again.
    pub(crate) resets_on_change: bool,
    pub(crate) attributes: Vec<(String, String)>,
}

impl RuleDraft {
    /// Creates an enforced rule without conditions and bands.
    pub(crate) fn new(id: String, algorithm: Algorithm) -> Self {
        Self {
            id,
            remarks: Vec::new(),
            name: None,
            enabled: true,
            shadow: false,
            denies: None,
            conditions: Conditions::default(),
            key: Vec::new(),
            group: None,
            on_missing_key: OnMissingKey::Ip,
            algorithm,
            bands: Vec::new(),
            cost: 1,
            max_wait: None,
            resets_on_change: false,
            attributes: Vec::new(),
        }
    }

    /// Creates a rule that denies every request that it matches with this status.
    pub(crate) fn denying(id: String, status: u16) -> Self {
        Self {
            denies: Some(status),
            ..Self::new(id, Algorithm::TokenBucket)
        }
    }

    /// Removes the ids of bands that an earlier band already has.
    pub(crate) fn drop_repeated_band_ids(&mut self) {
        let mut seen = HashSet::new();
        for band in &mut self.bands {
            band.id.take_if(|id| !seen.insert(id.clone()));
        }
    }

    pub(crate) fn to_rule(&self) -> Result<Rule, LimitError> {
        let mut rule = Rule::new(self.id.as_str()).enabled(self.enabled);
        if let Some(name) = &self.name {
            rule = rule.name(name.as_str());
        }
        if self.shadow {
            rule = rule.shadow();
        }
        for (name, value) in &self.attributes {
            rule = rule.attribute(name.as_str(), value.as_str());
        }
        rule = self.conditions.add_to(rule);
        if let Some(status) = self.denies {
            return Ok(rule.deny_with(status));
        }
        rule = match self.key.as_slice() {
            [] => rule.global(),
            parts => rule.key(parts.iter().cloned()),
        };
        if let Some(group) = &self.group {
            rule = rule.group(group.as_str());
        }
        if let Some(max_wait) = self.max_wait {
            rule = rule.wait_up_to(max_wait);
        }
        if self.resets_on_change {
            rule = rule.reset_on_change();
        }
        for band in &self.bands {
            rule = rule.band(band.to_band(self.algorithm)?);
        }
        Ok(rule.on_missing_key(self.on_missing_key).cost(self.cost))
    }
}

/// The conditions of a rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) path: Vec<String>,
    pub(crate) not_path: Vec<String>,
    pub(crate) methods: Vec<String>,
    pub(crate) headers: Vec<(String, ValueMatch)>,
    pub(crate) attributes: Vec<(String, ValueMatch)>,
    pub(crate) ip: Vec<String>,
    pub(crate) not_ip: Vec<String>,
}

impl Conditions {
    fn add_to(&self, mut rule: Rule) -> Rule {
        rule = self.path.iter().cloned().fold(rule, Rule::match_path);
        rule = self
            .not_path
            .iter()
            .cloned()
            .fold(rule, Rule::match_not_path);
        rule = self.methods.iter().cloned().fold(rule, Rule::match_method);
        rule = self.ip.iter().cloned().fold(rule, Rule::match_ip);
        rule = self.not_ip.iter().cloned().fold(rule, Rule::match_not_ip);
        for (name, value) in &self.headers {
            rule = rule.match_header(name.as_str(), value.clone());
        }
        for (name, value) in &self.attributes {
            rule = rule.match_attribute(name.as_str(), value.clone());
        }
        rule
    }
}

/// A band of a rule.
#[derive(Clone, Debug)]
pub(crate) struct BandDraft {
    pub(crate) id: Option<String>,
    pub(crate) capacity: u64,
    pub(crate) window: BandWindow,
    /// The units that return in each window, if not all.
    pub(crate) refill: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum BandWindow {
    Span(Duration),
    Calendar(Calendar),
    /// None: the band limits how many requests are in progress.
    Slots,
}

impl BandDraft {
    pub(crate) fn new(capacity: u64, window: Duration) -> Self {
        Self {
            id: None,
            capacity,
            window: BandWindow::Span(window),
            refill: None,
        }
    }

    pub(crate) fn slots(capacity: u64) -> Self {
        Self {
            id: None,
            capacity,
            window: BandWindow::Slots,
            refill: None,
        }
    }

    pub(crate) fn calendar(capacity: u64, calendar: Calendar) -> Self {
        Self {
            id: None,
            capacity,
            window: BandWindow::Calendar(calendar),
            refill: None,
        }
    }

    /// Removes its id if one of the other bands of its rule has it. Returns a remark on that.
    pub(crate) fn drop_repeated_id(&mut self, others: &[Self], line: usize) -> Option<Remark> {
        let id = self.id.take_if(|id| {
            let mut ids = others.iter().filter_map(|band| band.id.as_ref());
            ids.any(|other| other == id)
        })?;
        let text = format!("the id `{id}` of a band: another band of the rule has it");
        Some(Remark::lost(line, text))
    }

    fn to_band(&self, algorithm: Algorithm) -> Result<Band, LimitError> {
        let limit = match self.window {
            BandWindow::Calendar(calendar) => Limit::calendar(self.capacity, calendar),
            BandWindow::Slots => Limit::concurrency(self.capacity),
            BandWindow::Span(window) => {
                let limit = Limit::builder(algorithm, self.capacity, window)
                    .shape(algorithm == Algorithm::LeakyBucket);
                match self.refill {
                    Some(refill) => limit.refill(refill),
                    None => limit,
                }
            }
        };
        Ok(Band::new(self.id.as_deref().unwrap_or(""), limit.build()?))
    }
}
