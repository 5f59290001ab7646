//! `--report`: one page that shows what the rules did to the requests.

mod axis;
mod by_rule;
mod chart;
mod compare;
mod course;
mod escape;
mod file;
mod mapping;
mod most_denied;
mod page;
mod series;
mod side_by_side;
mod timeline;
mod width;
mod words;

use std::collections::HashMap;
use std::io;
use std::path::Path;

use fluxgate_core::{
    Decision, Micros, RequestContext, RuleMode, RuleNumber, RuleSets, RuleVerdict, Timestamp,
};

use compare::Comparison;
use course::Course;
use file::ReportFile;
use page::Page;
pub(super) use page::Told;
use timeline::{Tally, Timeline};

/// Gathers what the page shows while requests are decided. What it keeps does
/// not grow with their number, the state of the five algorithms apart.
pub(super) struct Report {
    file: ReportFile,
    course: Course,
    rules: HashMap<RuleNumber, RuleCourse>,
    comparison: Comparison,
}

/// How the requests of one rule fared.
#[derive(Clone, Debug, Default)]
struct RuleCourse {
    /// `SET/RULE`.
    name: String,
    is_shadow: bool,
    taken: Timeline<Taken>,
    all: Taken,
}

/// How one rule took requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    passed: u64,
    delayed: u64,
    refused: u64,
}

impl Taken {
    fn requests(self) -> u64 {
        self.passed + self.delayed + self.refused
    }
}

impl Tally for Taken {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.delayed += other.delayed;
        self.refused += other.refused;
    }
}

impl Report {
    pub(super) fn new(path: &Path, rules: &RuleSets) -> io::Result<Self> {
        Ok(Self {
            file: ReportFile::create(path)?,
            course: Course::default(),
            rules: HashMap::new(),
            comparison: Comparison::new(rules),
        })
    }

    /// A rule took a request in this way.
    pub(super) fn noted(&mut self, rule_set: &str, at: Timestamp, fate: &RuleVerdict<'_>) {
        let rule = self.rules.entry(fate.rule.number());
        let rule = rule.or_insert_with(|| RuleCourse {
            name: format!("{rule_set}/{}", fate.rule.id()),
            is_shadow: fate.rule.mode() == RuleMode::Shadow,
            ..RuleCourse::default()
        });
        let delayed = fate.delay > Micros::ZERO;
        let taken = Taken {
            passed: (!fate.denied && !delayed).into(),
            delayed: (!fate.denied && delayed).into(),
            refused: fate.denied.into(),
        };
        rule.taken.at(at).add(taken);
        rule.all.add(taken);
    }

    /// A request was decided.
    pub(super) fn decided(
        &mut self,
        rule_set: &str,
        context: &RequestContext<'_>,
        at: Timestamp,
        decision: &Decision,
    ) {
        self.course.note(at, decision);
        let allowed = decision.allowed();
        self.comparison.decide(rule_set, context, at, allowed);
    }

    /// Writes the page.
    pub(super) fn write(self, told: &Told<'_>) -> io::Result<()> {
        let mut rules: Vec<_> = self.rules.into_values().collect();
        rules.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let page = Page {
            told,
            course: &self.course,
            rules: &rules,
            comparison: &self.comparison,
        };
        self.file.write(&page.to_string())
    }
}
