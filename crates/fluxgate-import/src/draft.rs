//! The rules that an importer builds, and its remarks.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

pub(crate) use fluxgate_core::limit::MAX_UNITS;
use fluxgate_core::limit::{MAX_FILL, MAX_SPAN};
use fluxgate_core::{
    Algorithm, Band, Calendar, InvalidRules, KeyPart, Limit, LimitError, OnError, OnMissingKey,
    Rule, RuleSet, RuleSets, ValueMatch,
};

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
            let mut seen = HashSet::new();
            for band in &mut rule.bands {
                band.id.take_if(|id| !seen.insert(id.clone()));
            }
        }
    }

    /// Returns the rule file of a draft. The remarks on a set or a rule are comments before it.
    pub(crate) fn to_yaml(&self, origin: &str) -> Result<String, InvalidDraft> {
        let mut text = format!("# Imported from {}\n", on_one_line(origin));
        write_comments(&self.remarks, "", &mut text);
        text.push_str("rule_sets:\n");
        for set in &self.sets {
            write_comments(&set.remarks, "  ", &mut text);
            let mut rules = set.rules.iter();
            let yaml = RuleSets::from(set.to_rule_set()?).to_yaml();
            // Each set is written by itself, to keep their order. The first line is `rule_sets:`.
            for line in yaml.lines().skip(1) {
                if line.starts_with("      - ") {
                    let remarks = rules.next().map_or(&[][..], |rule| &rule.remarks);
                    write_comments(remarks, "      ", &mut text);
                }
                text.push_str(line);
                text.push('\n');
            }
        }
        Ok(text)
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

/// Whether a remark is about something that is missing or something that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemarkKind {
    /// It has no counterpart in the rules.
    Lost,
    /// It has a counterpart that behaves differently.
    Changed,
}

/// A remark on a line of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The line in the source, from 1.
    pub line: usize,
    pub(crate) kind: RemarkKind,
    pub(crate) text: String,
}

impl Remark {
    /// Something that the rules do not express.
    pub(crate) fn lost(line: usize, text: impl Into<String>) -> Self {
        let (kind, text) = (RemarkKind::Lost, text.into());
        Self { line, kind, text }
    }

    /// Something that the rules express differently.
    pub(crate) fn changed(line: usize, text: impl Into<String>) -> Self {
        let (kind, text) = (RemarkKind::Changed, text.into());
        Self { line, kind, text }
    }

    /// Returns the remark without its line, on one line of text.
    pub fn sentence(&self) -> String {
        let begin = match self.kind {
            RemarkKind::Lost => "not carried over",
            RemarkKind::Changed => "changed",
        };
        format!("{begin}: {}", on_one_line(&self.text))
    }
}

/// Returns a text without line breaks and other control characters, which would end a comment
/// or make it unreadable.
pub(crate) fn on_one_line(text: &str) -> String {
    // YAML treats these as line breaks or does not print them.
    let is_special = |char| matches!(char, '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    let is_blank = |char: char| char.is_control() || char.is_whitespace() || is_special(char);
    let words = text.split(is_blank).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// A rule set and the remarks on it.
#[derive(Debug, Default)]
pub(crate) struct RuleSetDraft {
    pub(crate) name: String,
    pub(crate) remarks: Vec<Remark>,
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
    /// Whether it denies every request that it matches, and so has no key and no bands.
    pub(crate) denies: bool,
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
            denies: false,
            conditions: Conditions::default(),
            key: Vec::new(),
            group: None,
            on_missing_key: OnMissingKey::Ip,
            algorithm,
            bands: Vec::new(),
            cost: 1,
            max_wait: None,
            attributes: Vec::new(),
        }
    }

    /// Creates a rule that denies every request that it matches.
    pub(crate) fn denying(id: String) -> Self {
        Self {
            denies: true,
            ..Self::new(id, Algorithm::TokenBucket)
        }
    }

    fn to_rule(&self) -> Result<Rule, LimitError> {
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
        if self.denies {
            return Ok(rule.deny());
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

    pub(crate) fn calendar(capacity: u64, calendar: Calendar) -> Self {
        Self {
            id: None,
            capacity,
            window: BandWindow::Calendar(calendar),
            refill: None,
        }
    }

    fn to_band(&self, algorithm: Algorithm) -> Result<Band, LimitError> {
        let limit = match self.window {
            BandWindow::Calendar(calendar) => Limit::calendar(self.capacity, calendar),
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

fn write_comments(remarks: &[Remark], indent: &str, text: &mut String) {
    for remark in remarks {
        let (sentence, line) = (remark.sentence(), remark.line);
        let _ = writeln!(text, "{indent}# {sentence} (line {line})");
    }
}
