//! Decisions as dynamic metadata of Envoy, for its later filters and its access logs.

use std::collections::BTreeMap;

use fluxgate_core::store::Micros;
use fluxgate_core::{Band, Decision, Outcome};
use prost_types::value::Kind;
use prost_types::{Struct, Value};

/// The part of a decision that Envoy gets as metadata.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecisionFacts<'a> {
    pub(super) outcome: Outcome,
    /// The rule and the band that are reported, if any. A rule that decides by itself has no band.
    pub(super) reported: Option<(&'a str, Option<&'a str>)>,
    /// The whole units left in that band.
    pub(super) remaining: Option<u64>,
    /// The time until it is full again.
    pub(super) reset_after: Micros,
}

impl<'a> DecisionFacts<'a> {
    /// Returns those of a decision by rules.
    pub(super) fn of(decision: &'a Decision) -> Self {
        let rule = decision.rule();
        Self {
            outcome: decision.outcome(),
            reported: rule.map(|rule| (rule.id(), decision.band().map(Band::id))),
            remaining: decision.band().and(decision.remaining()),
            reset_after: decision.reset_micros(),
        }
    }
}

/// Returns the metadata: `outcome` and, if a rule is reported, `rule` (`RULE/BAND`), `remaining`, and
/// `reset` in seconds, rounded up.
pub(super) fn metadata(facts: DecisionFacts<'_>) -> Struct {
    let mut fields = BTreeMap::new();
    let mut add = |name: &str, kind| {
        let value = Value { kind: Some(kind) };
        fields.insert(name.to_owned(), value);
    };
    add(
        "outcome",
        Kind::StringValue(facts.outcome.name().to_owned()),
    );
    if let Some((rule, band)) = facts.reported {
        let mut name = rule.to_owned();
        if let Some(band) = band {
            name.push('/');
            name.push_str(band);
        }
        add("rule", Kind::StringValue(name));
        if let Some(remaining) = facts.remaining {
            add("remaining", number(remaining));
            add("reset", number(facts.reset_after.ceil_secs()));
        }
    }
    Struct { fields }
}

/// Returns a number as JSON has it. Those of limits are far below the maximum.
fn number(number: u64) -> Kind {
    Kind::NumberValue(u32::try_from(number).unwrap_or(u32::MAX).into())
}
