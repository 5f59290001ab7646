//! An HTML page that shows what the rules did to the requests.

mod chart;
mod comparison;
mod conversion;
mod html;
mod humanize;
mod page;
mod timeline;
mod traffic;

use std::collections::HashMap;

use fluxgate_core::internals::{RuleNumber, RuleVerdict};
use fluxgate_core::{Decision, RequestContext, RuleSets, Timestamp};

use crate::summary::Summary;
use comparison::Comparison;
use page::Page;
pub use page::ReportLabels;
use traffic::{RuleTraffic, Traffic};

/// Collects what the page shows while requests are decided.
///
/// Its size does not grow with their number, except for the state that the five
/// algorithms keep for each identity.
#[derive(Debug)]
pub(crate) struct Report {
    traffic: Traffic,
    rules: HashMap<RuleNumber, RuleTraffic>,
    comparison: Comparison,
}

impl Report {
    pub(crate) fn new(rules: &RuleSets) -> Self {
        Self {
            traffic: Traffic::default(),
            rules: HashMap::new(),
            comparison: Comparison::new(rules),
        }
    }

    /// Counts how one rule decided a request.
    pub(crate) fn record_rule(&mut self, at: Timestamp, fate: &RuleVerdict<'_>) {
        let rule = self.rules.entry(fate.rule.number()).or_default();
        rule.record(at, fate);
    }

    /// Counts a decision, and decides the request under each of the five algorithms.
    pub(crate) fn record_decision(
        &mut self,
        rule_set: &str,
        context: &RequestContext<'_>,
        at: Timestamp,
        decision: &Decision,
    ) {
        self.traffic.record(at, decision);
        let allowed = decision.allowed();
        self.comparison.decide(rule_set, context, at, allowed);
    }

    /// Returns the page.
    pub(crate) fn page(
        &self,
        labels: &ReportLabels<'_>,
        warnings: &[String],
        rules: &RuleSets,
        summary: &Summary,
    ) -> String {
        let page = Page {
            labels,
            warnings,
            rules,
            summary,
            traffic: &self.traffic,
            rule_traffic: &self.rules,
            comparison: &self.comparison,
        };
        page.to_string()
    }
}
