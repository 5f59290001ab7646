//! Rules that never match the requests of a known source.

use super::coverage::KeyPresence;
use super::{Groups, RuleWarning, never_applies};
use crate::key::{KeyPart, OnMissingKey};
use crate::matcher::Values;
use crate::rules::fault::{FaultCollector, Step};
use crate::rules::rule::{Key, Rule};
use crate::rules::set::RuleSet;

/// Where requests come from.
#[derive(Clone, Copy, Debug)]
pub struct RequestSource<'a> {
    /// Its name in warnings, such as "filter `main`".
    pub name: &'a str,
    /// The attributes that its requests may have.
    pub attributes: &'a [String],
    /// The patterns of its paths; empty if it has all paths.
    pub include: &'a [String],
}

impl RuleSet {
    /// Returns warnings about rules that never match or never apply to the requests of a
    /// source. Requests may have any address, user, API key and headers.
    pub fn warnings_for(&self, source: &RequestSource<'_>) -> Vec<RuleWarning> {
        let groups = Groups::of(self);
        self.collect_warnings(|index, rule, warnings| {
            let before = warnings.count();
            missing_attributes(rule, source, warnings);
            excluded_paths(rule, source, warnings);
            if warnings.count() == before
                && groups.shadowing(index, KeyPresence::Unknown).is_none()
                && let Some(earlier) = groups.shadowing(index, KeyPresence::Replaced)
            {
                let to = format!(" to requests of {}", source.name);
                warnings.add(never_applies(rule, earlier, &to));
            }
        })
    }
}

fn missing_attributes(rule: &Rule, source: &RequestSource<'_>, warnings: &mut FaultCollector<'_>) {
    let id = rule.id.as_deref().unwrap_or_default();
    let is_missing = |name: &str| !source.attributes.iter().any(|known| known == name);
    let from = source.name;
    for (name, value) in &rule.match_attributes {
        let is_required = matches!(
            value.0,
            Values::OneOf(_) | Values::Present(true) | Values::In(_)
        );
        if is_required && is_missing(name) {
            let message =
                format!("rule `{id}` never matches: requests of {from} have no attribute `{name}`");
            let place = [Step::Field("attributes"), Step::Name(name.clone())];
            warnings.field("match", |warnings| warnings.add_at(place, message));
        }
    }
    let Key::Parts(parts) = &rule.key else { return };
    let effect = match rule.on_missing_key {
        OnMissingKey::Skip => "never matches",
        OnMissingKey::Deny => "denies every request that it matches",
        // The missing part is replaced.
        _ => return,
    };
    for (index, part) in parts.iter().enumerate() {
        if let KeyPart::Attribute(name) = part
            && is_missing(name)
        {
            let message =
                format!("rule `{id}` {effect}: requests of {from} have no attribute `{name}`");
            warnings.add_at([Step::Field("key"), Step::Index(index)], message);
        }
    }
}

/// Compares the first segments of patterns, as far as both have no wildcards. A path has two
/// forms, but segments without special characters are the same in both.
fn excluded_paths(rule: &Rule, source: &RequestSource<'_>, warnings: &mut FaultCollector<'_>) {
    if rule.paths.is_empty() || source.include.is_empty() {
        return;
    }
    let differ = |pattern: &str, include: &str| {
        let mut segments = plain_segments(pattern).zip(plain_segments(include));
        segments.any(|(segment, other)| segment != other)
    };
    let never_met = |pattern: &str| source.include.iter().all(|it| differ(pattern, it));
    if rule.paths.iter().all(|pattern| never_met(pattern)) {
        let (id, from) = (rule.id.as_deref().unwrap_or_default(), source.name);
        let message = format!("rule `{id}` never matches: {from} includes none of its paths");
        warnings.field("match", |warnings| warnings.add_in("path", message));
    }
}

/// Returns the segments before the first one with a wildcard or another special character.
fn plain_segments(pattern: &str) -> impl Iterator<Item = &str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let segments = pattern.strip_prefix('/').unwrap_or_default().split('/');
    segments.take_while(move |segment| !segment.is_empty() && segment.bytes().all(is_plain))
}
