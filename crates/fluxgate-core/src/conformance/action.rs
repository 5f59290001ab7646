//! What a step of a vector does, and its result as text.

use std::collections::BTreeMap;

use crate::band::Band;
use crate::context::RequestContext;
use crate::decision::Decision;
use crate::hold::{HoldId, Settled, Settlement};
use crate::limiter::{BandState, Limiter};
use crate::rules::{ActiveRule, RuleSets};
use crate::store::Store;
use crate::time::Micros;
use crate::yaml::{Node, Value};

/// The rule set of every vector.
const SET: &str = "s";

/// What a step does.
pub(super) enum Action<'n> {
    /// A check, and the name of its hold if it asks for one.
    Check(RequestContext<'n>, Option<&'n str>),
    Peek(RequestContext<'n>),
    /// The name of a hold, and its real cost.
    Settle(&'n str, RealCost<'n>),
    /// The name of a hold, and for how long.
    Renew(&'n str, Micros),
    Release(&'n str),
    Refund(Target<'n>, u64),
    Reset(Target<'n>),
    State(Target<'n>),
    Replace(&'n Node),
}

/// A rule and, unless the action is on the whole rule, an identity.
pub(super) struct Target<'n> {
    pub(super) rule: &'n str,
    pub(super) identity: Option<Vec<&'n str>>,
}

/// The cost that a hold is settled with.
pub(super) enum RealCost<'n> {
    AsReserved,
    Cost(u64),
    Attributes(Vec<(&'n str, u64)>),
}

/// The ids of holds, by their names in the vector.
#[derive(Default)]
pub(super) struct Holds<'n>(BTreeMap<&'n str, HoldId>);

impl<'n> Holds<'n> {
    /// Returns the id of a hold. A name that holds nothing gets an id that no hold has.
    fn id(&self, name: &str) -> HoldId {
        self.0.get(name).copied().unwrap_or_else(HoldId::random)
    }

    fn name(&mut self, name: &'n str, id: Option<HoldId>) {
        match id {
            Some(id) => self.0.insert(name, id),
            None => self.0.remove(name),
        };
    }
}

impl<'n> Action<'n> {
    /// Runs the action. Returns its result in the form of [`flat`].
    pub(super) async fn run<S: Store>(
        &self,
        limiter: &Limiter<S>,
        holds: &mut Holds<'n>,
    ) -> Result<String, String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        match self {
            Self::Check(context, hold) => {
                let decision = limiter.check(SET, context).await;
                let fields = fields_of(&decision);
                let Some(name) = hold else {
                    return Ok(format!("{{{fields}}}"));
                };
                holds.name(name, decision.hold());
                let held = decision.hold().is_some();
                Ok(format!("{{{fields},held:{held}}}"))
            }
            Self::Peek(context) => {
                let decision = limiter.peek(SET, context).await;
                Ok(format!("{{{}}}", fields_of(&decision)))
            }
            Self::Settle(name, cost) => {
                let settled = limiter.settle(holds.id(name), cost.settlement()).await;
                Ok(show_settled(settled.map_err(|error| failed(&error))?))
            }
            Self::Release(name) => {
                let settled = limiter.settle(holds.id(name), Settlement::RELEASE).await;
                let released = settled.map_err(|error| failed(&error))?.is_some();
                Ok(format!("{{released:{released}}}"))
            }
            Self::Renew(name, span) => {
                let renewed = limiter
                    .renew(holds.id(name), span.as_duration())
                    .await
                    .map_err(|error| failed(&error))?;
                Ok(format!("{{renewed:{renewed}}}"))
            }
            Self::Refund(target, units) => {
                let identity = target.identity.as_deref().unwrap_or_default();
                let left = limiter
                    .refund(SET, target.rule, identity, *units)
                    .await
                    .map_err(|error| failed(&error))?;
                Ok(format!("{{remaining:{left}}}"))
            }
            Self::Reset(target) => {
                let reset = match &target.identity {
                    Some(identity) => limiter.reset(SET, target.rule, identity).await,
                    None => limiter.reset_rule(SET, target.rule).await,
                };
                let reset = reset.map_err(|error| failed(&error))?;
                Ok(format!("{{reset:{reset}}}"))
            }
            Self::State(target) => {
                let identity = target.identity.as_deref().unwrap_or_default();
                let state = limiter
                    .state(SET, target.rule, identity)
                    .await
                    .map_err(|error| failed(&error))?;
                let bands: Vec<_> = state.iter().map(show_band).collect();
                Ok(format!("{{bands:[{}]}}", bands.join(",")))
            }
            Self::Replace(rules) => {
                let replaced = limiter.replace_rules(rules_of(rules)?).await;
                replaced.map_err(|error| failed(&error))?;
                Ok(String::new())
            }
        }
    }
}

impl RealCost<'_> {
    fn settlement(&self) -> Settlement<'_> {
        match self {
            Self::AsReserved => Settlement::AsReserved,
            Self::Cost(cost) => Settlement::Cost(*cost),
            Self::Attributes(costs) => Settlement::Attributes(costs),
        }
    }
}

/// Reads the rules of a vector.
pub(super) fn rules_of(node: &Node) -> Result<RuleSets, String> {
    RuleSets::from_node(node).map_err(|error| error.to_string())
}

fn fields_of(decision: &Decision) -> String {
    let violated: Vec<_> = decision.violated().map(|band| band.to_string()).collect();
    format!(
        "allowed:{},outcome:{},rule:{},band:{},limit:{},remaining:{},retry_after_us:{},\
         reset_after_us:{},delay_us:{},violated:[{}]",
        decision.allowed(),
        decision.outcome(),
        or_null(decision.rule().map(ActiveRule::id)),
        or_null(decision.band().map(Band::id)),
        or_null(decision.limit()),
        or_null(decision.remaining()),
        or_null(decision.retry().after().map(Micros::get)),
        decision.reset_micros().get(),
        decision.delay_micros().get(),
        violated.join(","),
    )
}

fn show_band(state: &BandState) -> String {
    format!(
        "{{band:{},limit:{},remaining:{},reset_after_us:{}}}",
        state.band.id(),
        state.band.limit().capacity(),
        state.remaining,
        state.reset_after.as_micros(),
    )
}

fn show_settled(settled: Option<Settled>) -> String {
    let is_settled = settled.is_some();
    let Settled { charged, uncharged } = settled.unwrap_or_default();
    format!("{{settled:{is_settled},charged:{charged},uncharged:{uncharged}}}")
}

fn or_null(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "null".into(), |value| value.to_string())
}

/// Formats a tree without blanks and quotes, to compare it.
pub(super) fn flat(node: &Node) -> String {
    match &node.value {
        Value::Plain(text) | Value::Quoted(text) => text.clone(),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(flat).collect();
            format!("[{}]", items.join(","))
        }
        Value::Map(pairs) => {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(key, value)| format!("{}:{}", flat(key), flat(value)))
                .collect();
            format!("{{{}}}", pairs.join(","))
        }
    }
}
