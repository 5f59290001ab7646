//! The names of rules by their numbers.

use std::collections::HashMap;
use std::sync::Arc;

use fluxgate_core::key::RuleNumber;
use fluxgate_core::{AdHocKey, RuleSets};

use crate::engine::Engine;
use crate::identities::Identities;
use crate::telemetry::is_text;

/// The names of the active rules.
#[derive(Debug)]
pub(crate) struct RuleNames {
    rules: Arc<RuleSets>,
    places: HashMap<RuleNumber, (String, usize)>,
}

impl RuleNames {
    /// Returns those of the active rules.
    pub(crate) fn of(engine: &Engine) -> Self {
        let rules = engine.rules().unwrap_or_default();
        let mut places = HashMap::new();
        for set in rules.iter() {
            for (index, rule) in set.rules().iter().enumerate() {
                places.insert(rule.number(), (set.name().to_owned(), index));
            }
        }
        Self { rules, places }
    }

    /// Returns the set and the id of a rule.
    pub(crate) fn rule(&self, number: RuleNumber) -> Option<(&str, &str)> {
        let (set, index) = self.places.get(&number)?;
        let set = self.rules.get(set)?;
        Some((set.name(), set.rules().get(*index)?.id()))
    }

    /// Returns whether a number is that of an active rule, or of limits that come with the call.
    pub(crate) fn knows(&self, number: RuleNumber) -> bool {
        number == RuleNumber::NONE || self.places.contains_key(&number)
    }

    /// Returns the handle of what was counted.
    pub(crate) fn handle(
        &self,
        identities: &Identities,
        number: RuleNumber,
        counted: &[u8],
    ) -> Option<String> {
        let (rule_set, rule, identity) = self.resolve(number, counted)?;
        let stored = identities.stored(&rule_set, &rule, &identity);
        identities.handle(&rule_set, &rule, &stored)
    }

    /// Returns the set, the rule and the identity of what was counted. The set of a limit that
    /// comes with the call is empty.
    pub(crate) fn resolve(
        &self,
        number: RuleNumber,
        counted: &[u8],
    ) -> Option<(String, String, Vec<u8>)> {
        if number == RuleNumber::NONE {
            let key = AdHocKey::from_bytes(counted);
            return Some((String::new(), key.name().into(), key.identity().into()));
        }
        let (rule_set, rule) = self.rule(number).filter(|_| !is_text(counted))?;
        Some((rule_set.into(), rule.into(), counted.into()))
    }
}
