//! The names of keys, and the parts of time and rules in them.

use std::sync::Arc;

use fluxgate_core::Outcome;

/// The resolution of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// A second, kept for 15 minutes.
    Second,
    /// A minute.
    Minute,
}

impl Step {
    /// Returns how many seconds a step has.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
        }
    }

    /// Returns the letter in keys.
    const fn letter(self) -> char {
        match self {
            Self::Second => 's',
            Self::Minute => 'm',
        }
    }
}

/// How many steps one key has: the seconds of a minute, or the minutes of an hour.
pub(super) const STEPS_IN_KEY: u64 = 60;

/// The names of a rule set and a rule. Both are empty for decisions without a rule set, the second
/// for those without a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordedRule {
    /// The rule set.
    pub rule_set: Arc<str>,
    /// The rule.
    pub rule: Arc<str>,
}

impl RecordedRule {
    /// Returns its name in keys. The id of a rule has no slash.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.rule_set, self.rule)
    }

    /// Reads its name in keys.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (rule_set, rule) = name.rsplit_once('/')?;
        Some(Self {
            rule_set: rule_set.into(),
            rule: rule.into(),
        })
    }
}

/// The names of the keys of the record.
#[derive(Clone, Debug)]
pub(super) struct RecordKeys(Arc<str>);

impl RecordKeys {
    pub(super) fn new(prefix: &str) -> Self {
        Self(format!("{prefix}:1:history:").into())
    }

    /// Returns the key of the counts of a rule. `block` is the minute of seconds, or the hour of
    /// minutes.
    pub(super) fn counts(&self, step: Step, block: u64, rule: &RecordedRule) -> String {
        format!("{}{}:{block}:{}", self.0, step.letter(), rule.name())
    }

    /// Returns the key of the denials by a rule in a minute.
    pub(super) fn denials(&self, minute: u64, rule: &RecordedRule) -> String {
        format!("{}d:{minute}:{}", self.0, rule.name())
    }

    /// Returns the key that lists the rules with counts.
    pub(super) fn rules(&self) -> String {
        format!("{}rules", self.0)
    }

    /// Returns the key that lists the minutes and rules with denials of an hour.
    pub(super) fn denied(&self, hour: u64) -> String {
        format!("{}denied:{hour}", self.0)
    }

    /// Returns the key that lists the minutes and rules of an hour with denials that have no row.
    pub(super) fn dropped(&self, hour: u64) -> String {
        format!("{}dropped:{hour}", self.0)
    }

    /// Returns the key of the changes of rules.
    pub(super) fn changes(&self) -> String {
        format!("{}changes", self.0)
    }

    /// Returns the key of the audit trail.
    pub(super) fn audit(&self) -> String {
        format!("{}audit", self.0)
    }
}

/// The letters of outcomes in fields. They must not change.
const LETTERS: [(char, Outcome); 10] = [
    ('a', Outcome::Allowed),
    ('d', Outcome::Denied),
    ('n', Outcome::Never),
    ('b', Outcome::Forbidden),
    ('e', Outcome::Exempt),
    ('s', Outcome::ShadowDenied),
    ('r', Outcome::NoRule),
    ('o', Outcome::FailedOpen),
    ('c', Outcome::FailedClosed),
    ('f', Outcome::Fallback),
];

/// Returns the field of the count of an outcome in one step of a key; `None` for an outcome that
/// this version does not know.
pub(super) fn count_field(at: u64, outcome: Outcome) -> Option<String> {
    let (letter, _) = LETTERS.iter().find(|(_, known)| *known == outcome)?;
    Some(format!("{}{letter}", at % STEPS_IN_KEY))
}

/// Reads the field of a count: the step in its key, and the outcome.
pub(super) fn parse_count_field(field: &str) -> Option<(u64, Outcome)> {
    let letter = field.chars().next_back()?;
    let (_, outcome) = LETTERS.iter().find(|(known, _)| *known == letter)?;
    let at: u64 = field[..field.len() - letter.len_utf8()].parse().ok()?;
    (at < STEPS_IN_KEY).then_some((at, *outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_as_it_was_written() {
        for outcome in Outcome::ALL {
            for at in [0, 7, 59, 61] {
                let field = count_field(at, outcome).unwrap();
                assert_eq!(parse_count_field(&field), Some((at % 60, outcome)));
            }
        }
        for other in ["", "a", "60a", "7", "7x", "i:0123a", "-1a", "7ä"] {
            assert_eq!(parse_count_field(other), None, "{other}");
        }
    }

    #[test]
    fn rules_have_different_names() {
        let rule = |rule_set: &str, rule: &str| RecordedRule {
            rule_set: rule_set.into(),
            rule: rule.into(),
        };
        for known in [
            rule("", ""),
            rule("a", ""),
            rule("a/b", "c"),
            rule("a", "b"),
        ] {
            assert_eq!(RecordedRule::parse(&known.name()), Some(known));
        }
        assert_eq!(RecordedRule::parse("none"), None);
    }
}
