//! One case of a vector file: rules, and steps with their expected results.

use crate::band::Band;
use crate::clock::ManualClock;
use crate::context::RequestContext;
use crate::decision::Decision;
use crate::limiter::{BandState, Limiter};
use crate::rules::{ActiveRule, RuleSets};
use crate::store::Store;
use crate::time::{Micros, Timestamp};
use crate::yaml::{Fault, Faults, Node, Value};

/// The rule set of every vector.
const SET: &str = "s";

/// A case of a vector file.
pub(super) struct Vector<'n> {
    name: &'n str,
    rules: &'n Node,
    steps: Vec<Step<'n>>,
}

struct Step<'n> {
    at: Timestamp,
    action: Action<'n>,
    /// `None` if the step has no result.
    expect: Option<&'n Node>,
}

enum Action<'n> {
    Check(RequestContext<'n>),
    Peek(RequestContext<'n>),
    Refund(Target<'n>, u64),
    Reset(Target<'n>),
    State(Target<'n>),
    Replace(&'n Node),
}

/// A rule and, unless the action is on the whole rule, an identity.
struct Target<'n> {
    rule: &'n str,
    identity: Option<Vec<&'n str>>,
}

impl<'n> Vector<'n> {
    pub(super) fn read(node: &'n Node) -> Result<Self, Fault> {
        let mut reader = Reader(Faults::default());
        let [name, rules, steps] =
            node.fields("a vector", ["name", "rules", "steps"], &mut reader.0);
        let name = reader.required(node, name).and_then(Node::as_text);
        let steps = reader.required(node, steps);
        let vector = Self {
            name: name.unwrap_or_default(),
            rules: reader.required(node, rules).unwrap_or(node),
            steps: steps
                .map_or(&[][..], |steps| steps.list("`steps`", &mut reader.0))
                .iter()
                .filter_map(|step| reader.step(step))
                .collect(),
        };
        match reader.0.into_sorted().into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(vector),
        }
    }

    pub(super) fn name(&self) -> &str {
        self.name
    }

    /// Replays the steps. Returns their number, or which one differs.
    pub(super) async fn run<S: Store>(
        &self,
        store: S,
        clock: &ManualClock,
    ) -> Result<usize, String> {
        let limiter = Limiter::new(rules_of(self.rules)?, store);
        for (index, step) in self.steps.iter().enumerate() {
            clock.set(step.at);
            let actual = step.action.run(&limiter).await?;
            let expected = step.expect.map_or_else(String::new, flat);
            if actual != expected {
                return Err(format!(
                    "step {index}: expected {expected}, but it was {actual}"
                ));
            }
        }
        Ok(self.steps.len())
    }
}

impl Action<'_> {
    /// Runs the action. Returns its result in the form of [`flat`].
    async fn run<S: Store>(&self, limiter: &Limiter<S>) -> Result<String, String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        match self {
            Self::Check(context) => Ok(show(&limiter.check(SET, context).await)),
            Self::Peek(context) => Ok(show(&limiter.peek(SET, context).await)),
            Self::Refund(target, units) => {
                let identity = target.identity.as_deref().unwrap_or_default();
                let left = limiter.refund(SET, target.rule, identity, *units).await;
                let left = left.map_err(|error| failed(&error))?;
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
                let state = limiter.state(SET, target.rule, identity).await;
                let state = state.map_err(|error| failed(&error))?;
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

fn rules_of(node: &Node) -> Result<RuleSets, String> {
    RuleSets::from_node(node).map_err(|error| error.to_string())
}

fn show(decision: &Decision) -> String {
    let violated: Vec<_> = decision.violated().map(|band| band.to_string()).collect();
    format!(
        "{{allowed:{},outcome:{},rule:{},band:{},limit:{},remaining:{},retry_after_us:{},\
         reset_after_us:{},delay_us:{},violated:[{}]}}",
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

fn or_null(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "null".into(), |value| value.to_string())
}

/// Formats a tree without blanks and quotes, to compare it.
fn flat(node: &Node) -> String {
    match &node.value {
        Value::Plain(text) | Value::Quoted(text) => text.clone(),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(flat).collect();
            format!("[{}]", items.join(","))
        }
        Value::Map(pairs) => {
            let pairs = pairs.iter();
            let pairs: Vec<_> = pairs
                .map(|(key, value)| format!("{}:{}", flat(key), flat(value)))
                .collect();
            format!("{{{}}}", pairs.join(","))
        }
    }
}

/// Reads the parts of a case.
struct Reader(Faults);

impl Reader {
    fn required<'n>(&mut self, parent: &Node, node: Option<&'n Node>) -> Option<&'n Node> {
        if node.is_none() {
            self.0.add(parent.position, "a field is missing");
        }
        node
    }

    fn step<'n>(&mut self, node: &'n Node) -> Option<Step<'n>> {
        let [at, check, peek, refund, reset, state, replace, expect] = node.fields(
            "a step",
            [
                "at", "check", "peek", "refund", "reset", "state", "replace", "expect",
            ],
            &mut self.0,
        );
        let at = self.required(node, at)?;
        let at = at.whole("`at`", 0, i64::MAX, &mut self.0)?;
        let action = match (check, peek, refund, reset, state, replace) {
            (Some(check), ..) => Action::Check(self.context(check)),
            (_, Some(peek), ..) => Action::Peek(self.context(peek)),
            (_, _, Some(refund), ..) => {
                let (target, units) = self.target(refund)?;
                Action::Refund(target, units)
            }
            (.., Some(reset), _, _) => Action::Reset(self.target(reset)?.0),
            (.., Some(state), _) => Action::State(self.target(state)?.0),
            (.., Some(replace)) => Action::Replace(replace),
            _ => {
                self.0.add(node.position, "a step must do something");
                return None;
            }
        };
        Some(Step {
            at: Timestamp::saturating_from_micros(at as u64),
            action,
            expect,
        })
    }

    fn context<'n>(&mut self, node: &'n Node) -> RequestContext<'n> {
        let [user, api_key, cost] =
            node.fields("a check", ["user", "api_key", "cost"], &mut self.0);
        let mut context = RequestContext::builder();
        if let Some(user) = user.and_then(Node::as_text) {
            context = context.user(user);
        }
        if let Some(api_key) = api_key.and_then(Node::as_text) {
            context = context.api_key(api_key);
        }
        if let Some(cost) = cost.and_then(|cost| cost.whole("`cost`", 0, i64::MAX, &mut self.0)) {
            context = context.cost(cost as u64);
        }
        context.build()
    }

    fn target<'n>(&mut self, node: &'n Node) -> Option<(Target<'n>, u64)> {
        let [rule, identity, units] =
            node.fields("a target", ["rule", "identity", "units"], &mut self.0);
        let rule = self.required(node, rule)?;
        let identity = identity.map(|identity| {
            let values = identity.list("`identity`", &mut self.0).iter();
            values.filter_map(Node::as_text).collect()
        });
        let units = units.and_then(|units| units.whole("`units`", 0, i64::MAX, &mut self.0));
        let target = Target {
            rule: rule.text("`rule`", &mut self.0)?,
            identity,
        };
        Some((target, units.unwrap_or(0) as u64))
    }
}
