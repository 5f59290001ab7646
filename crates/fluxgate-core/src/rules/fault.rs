//! Faults of rules, with the field that each concerns.

use std::fmt;

/// All faults of a rule set that a program has built; displayed as one line for each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct InvalidRules(pub(super) Vec<RuleFault>);

impl InvalidRules {
    /// Returns the faults.
    pub fn faults(&self) -> &[RuleFault] {
        &self.0
    }
}

/// One fault of a rule set, displayed with its place: `api.rules[0].bands[1].id: …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFault {
    pub(super) rule_set: Box<str>,
    /// Empty if the fault is in the name of the set.
    pub(super) path: Vec<Step>,
    pub(super) message: String,
}

impl RuleFault {
    /// Returns the fault, and what is allowed instead.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for RuleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rule_set)?;
        for step in &self.path {
            match step {
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Name(name) => write!(f, "[{name:?}]")?,
            }
        }
        write!(f, ": {}", self.message)
    }
}

fn lines(faults: &[RuleFault]) -> String {
    let lines: Vec<_> = faults.iter().map(RuleFault::to_string).collect();
    lines.join("\n")
}

/// One step from a rule set to a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Field(&'static str),
    /// An element of a list.
    Index(usize),
    /// A name in a mapping.
    Name(Box<str>),
}

/// Collects faults on a walk over the fields of a rule set.
#[derive(Debug)]
pub(super) struct FaultCollector<'s> {
    rule_set: &'s str,
    path: Vec<Step>,
    faults: Vec<RuleFault>,
}

impl<'s> FaultCollector<'s> {
    pub(super) fn new(rule_set: &'s str) -> Self {
        Self {
            rule_set,
            path: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// Runs `check` one step further.
    pub(super) fn at<T>(&mut self, step: Step, check: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step);
        let checked = check(self);
        self.path.pop();
        checked
    }

    /// Runs `check` at a field.
    pub(super) fn field<T>(&mut self, name: &'static str, check: impl FnOnce(&mut Self) -> T) -> T {
        self.at(Step::Field(name), check)
    }

    /// Goes these steps further, until [`FaultCollector::leave`].
    pub(super) fn enter(&mut self, steps: impl IntoIterator<Item = Step>) {
        self.path.extend(steps);
    }

    /// Goes back that many steps.
    pub(super) fn leave(&mut self, steps: usize) {
        self.path.truncate(self.path.len() - steps);
    }

    /// Runs `check` at an item of a list.
    pub(super) fn item<T>(
        &mut self,
        list: &'static str,
        index: usize,
        check: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.field(list, |faults| faults.at(Step::Index(index), check))
    }

    /// Adds a fault of a field.
    pub(super) fn add_in(&mut self, field: &'static str, message: impl Into<String>) {
        self.add_at([Step::Field(field)], message);
    }

    /// Adds a fault some steps further down.
    pub(super) fn add_at<const N: usize>(&mut self, steps: [Step; N], message: impl Into<String>) {
        let length = self.path.len();
        self.path.extend(steps);
        self.add(message);
        self.path.truncate(length);
    }

    /// Adds a fault of the current field.
    pub(super) fn add(&mut self, message: impl Into<String>) {
        self.faults.push(RuleFault {
            rule_set: self.rule_set.into(),
            path: self.path.clone(),
            message: message.into(),
        });
    }

    /// Returns a fault of another field, by the steps from the rule set to it.
    pub(super) fn fault_at(&self, path: Vec<Step>, message: String) -> RuleFault {
        RuleFault {
            rule_set: self.rule_set.into(),
            path,
            message,
        }
    }

    pub(super) fn extend(&mut self, faults: Vec<RuleFault>) {
        self.faults.extend(faults);
    }

    pub(super) fn count(&self) -> usize {
        self.faults.len()
    }

    pub(super) fn into_faults(self) -> Vec<RuleFault> {
        self.faults
    }
}
