//! One case of a vector file: rules, and steps with their expected results.

use std::net::IpAddr;

use super::action::{Action, Holds, RealCost, Target, flat, rules_of};
use crate::clock::ManualClock;
use crate::context::RequestContext;
use crate::limiter::Limiter;
use crate::store::Store;
use crate::time::{Micros, Timestamp};
use crate::yaml::{Fault, Faults, Fields, Node};

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
        let mut holds = Holds::default();
        for (index, step) in self.steps.iter().enumerate() {
            clock.set(step.at);
            let actual = step.action.run(&limiter, &mut holds).await?;
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
        const NAMES: [&str; 11] = [
            "at", "expect", "check", "peek", "settle", "renew", "release", "refund", "reset",
            "state", "replace",
        ];
        let fields = Fields::read(Some(node), "a step", &NAMES, &mut self.0);
        let at = self.required(node, fields.get("at"))?;
        let at = self.number("`at`", Some(at))?;
        let mut actions = fields.iter();
        let action = actions.find(|(name, _)| !["at", "expect"].contains(name));
        let Some((name, what)) = action else {
            self.0.add(node.position, "a step must do something");
            return None;
        };
        Some(Step {
            at: Timestamp::saturating_from_micros(at),
            action: self.action(name, what)?,
            expect: fields.get("expect"),
        })
    }

    fn action<'n>(&mut self, name: &str, what: &'n Node) -> Option<Action<'n>> {
        Some(match name {
            "check" => {
                let (context, hold) = self.check(what);
                Action::Check(context, hold)
            }
            "peek" => Action::Peek(self.check(what).0),
            "settle" => self.settle(what)?,
            "renew" => self.renew(what)?,
            "release" => Action::Release(what.text("`release`", &mut self.0)?),
            "refund" => {
                let (target, units) = self.target(what)?;
                Action::Refund(target, units)
            }
            "reset" => Action::Reset(self.target(what)?.0),
            "state" => Action::State(self.target(what)?.0),
            _ => Action::Replace(what),
        })
    }

    /// Reads a request, and the name of its hold if it has one.
    fn check<'n>(&mut self, node: &'n Node) -> (RequestContext<'n>, Option<&'n str>) {
        const NAMES: [&str; 8] = [
            "ip",
            "user",
            "api_key",
            "path",
            "cost",
            "attributes",
            "hold",
            "hold_us",
        ];
        let fields = Fields::read(Some(node), "a check", &NAMES, &mut self.0);
        let mut context = RequestContext::builder();
        if let Some(ip) = fields.get("ip") {
            match ip.as_text().and_then(|ip| ip.parse::<IpAddr>().ok()) {
                Some(ip) => context = context.ip(ip),
                None => self.0.add(ip.position, "`ip` is not an address"),
            }
        }
        if let Some(path) = fields.get("path").and_then(Node::as_text) {
            context = context.path(path);
        }
        if let Some(user) = fields.get("user").and_then(Node::as_text) {
            context = context.user(user);
        }
        if let Some(api_key) = fields.get("api_key").and_then(Node::as_text) {
            context = context.api_key(api_key);
        }
        if let Some(cost) = self.number("`cost`", fields.get("cost")) {
            context = context.cost(cost);
        }
        for (name, units) in self
            .attributes(fields.get("attributes"))
            .unwrap_or_default()
        {
            context = context.attribute(name, units.to_string());
        }
        let hold = fields
            .get("hold")
            .and_then(|hold| hold.text("`hold`", &mut self.0));
        if hold.is_some() {
            context = context.held();
        }
        if let Some(span) = self.number("`hold_us`", fields.get("hold_us")) {
            context = context.hold_for(Micros::new(span));
        }
        (context.build(), hold)
    }

    fn settle<'n>(&mut self, node: &'n Node) -> Option<Action<'n>> {
        let names = ["hold", "cost", "attributes"];
        let [hold, cost, attributes] = node.fields("a settlement", names, &mut self.0);
        let hold = self.required(node, hold)?.text("`hold`", &mut self.0)?;
        let cost = match (self.number("`cost`", cost), self.attributes(attributes)) {
            (Some(cost), _) => RealCost::Cost(cost),
            (None, Some(costs)) => RealCost::Attributes(costs),
            (None, None) => RealCost::AsReserved,
        };
        Some(Action::Settle(hold, cost))
    }

    fn renew<'n>(&mut self, node: &'n Node) -> Option<Action<'n>> {
        let [hold, span] = node.fields("a renewal", ["hold", "hold_us"], &mut self.0);
        let hold = self.required(node, hold)?.text("`hold`", &mut self.0)?;
        let span = self.required(node, span);
        let span = self.number("`hold_us`", span)?;
        Some(Action::Renew(hold, Micros::new(span)))
    }

    /// Reads whole numbers by their names.
    fn attributes<'n>(&mut self, node: Option<&'n Node>) -> Option<Vec<(&'n str, u64)>> {
        let attributes = node?.map("`attributes`", &mut self.0).into_iter();
        let numbers = attributes.filter_map(|(name, _, units)| {
            let units = self.number("an attribute", Some(units))?;
            Some((name, units))
        });
        Some(numbers.collect())
    }

    fn number(&mut self, what: &str, node: Option<&Node>) -> Option<u64> {
        let number = node?.whole(what, 0, i64::MAX, &mut self.0)?;
        Some(number as u64)
    }

    fn target<'n>(&mut self, node: &'n Node) -> Option<(Target<'n>, u64)> {
        let [rule, identity, units] =
            node.fields("a target", ["rule", "identity", "units"], &mut self.0);
        let rule = self.required(node, rule)?;
        let identity = identity.map(|identity| {
            let values = identity.list("`identity`", &mut self.0).iter();
            values.filter_map(Node::as_text).collect()
        });
        let units = self.number("`units`", units);
        let target = Target {
            rule: rule.text("`rule`", &mut self.0)?,
            identity,
        };
        Some((target, units.unwrap_or(0)))
    }
}
