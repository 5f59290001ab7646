//! Decisions as dynamic metadata of Envoy, for its later filters and its access logs.

use std::collections::BTreeMap;

use fluxgate_core::Decision;
use prost_types::value::Kind;
use prost_types::{Struct, Value};

/// Returns the metadata: `outcome` and, if a rule is reported, `rule` (`RULE/BAND`, or `RULE` if it
/// decides by itself), `remaining`, and `reset` in seconds, rounded up.
pub(super) fn metadata(decision: &Decision) -> Struct {
    let mut fields = BTreeMap::new();
    let mut add = |name: &str, kind| {
        let value = Value { kind: Some(kind) };
        fields.insert(name.to_owned(), value);
    };
    let outcome = decision.outcome().name().to_owned();
    add("outcome", Kind::StringValue(outcome));
    if let Some(rule) = decision.rule() {
        let mut name = rule.id().to_owned();
        if let Some(band) = decision.band() {
            name.push('/');
            name.push_str(band.id());
        }
        add("rule", Kind::StringValue(name));
        if let (Some(_), Some(remaining)) = (decision.band(), decision.remaining()) {
            add("remaining", number(remaining));
            add("reset", number(decision.reset_micros().ceil_secs()));
        }
    }
    Struct { fields }
}

/// Returns a number as JSON has it. Those of limits are far below the maximum.
fn number(number: u64) -> Kind {
    Kind::NumberValue(u32::try_from(number).unwrap_or(u32::MAX).into())
}
