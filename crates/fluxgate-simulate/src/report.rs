//! An HTML page that shows what the rules did to the requests.

mod chart;
mod comparison;
mod html;
mod humanize;
mod page;
mod timeline;
mod traffic;
mod usage;

use std::collections::HashMap;

use fluxgate_core::key::RuleNumber;
use fluxgate_core::{Decision, RequestContext, RuleSets, RuleVerdict, Timestamp};

use crate::changes::{Change, ChangeCounts, Changes};
use crate::summary::Summary;
use comparison::Comparison;
use page::Page;
pub use page::ReportLabels;
use timeline::Timeline;
use traffic::{RuleTraffic, Traffic};
use usage::IdentityUsage;

/// Collects what the page shows while requests are decided.
///
/// Its size does not grow with their number, except for the state that the five
/// algorithms keep for each identity, and up to a bound with that of identities.
#[derive(Debug)]
pub(crate) struct Report {
    traffic: Traffic,
    rules: HashMap<RuleNumber, RuleTraffic>,
    comparison: Comparison,
    /// The requests that the old rules decide differently, over time.
    changes: Timeline<ChangeCounts>,
    usage: IdentityUsage,
}

impl Report {
    pub(crate) fn new(rules: &RuleSets) -> Self {
        Self {
            traffic: Traffic::default(),
            rules: HashMap::new(),
            comparison: Comparison::new(rules),
            changes: Timeline::default(),
            usage: IdentityUsage::default(),
        }
    }

    /// Counts how one rule decided a request.
    pub(crate) fn record_rule(&mut self, at: Timestamp, verdict: &RuleVerdict<'_>) {
        self.rules
            .entry(verdict.rule.number())
            .or_insert_with(|| RuleTraffic::new(verdict.rule))
            .record(at, verdict);
        self.usage.record(at, verdict);
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

    /// Counts a request that the old rules decide differently.
    pub(crate) fn record_change(&mut self, at: Timestamp, change: Change) {
        self.changes.at(at).record(change);
    }

    /// Returns the page.
    pub(crate) fn page(
        &self,
        labels: &ReportLabels<'_>,
        warnings: &[String],
        rules: &RuleSets,
        summary: &Summary,
        changes: Option<&Changes>,
    ) -> String {
        let page = Page {
            labels,
            warnings,
            rules,
            summary,
            traffic: &self.traffic,
            rule_traffic: &self.rules,
            usage: &self.usage,
            comparison: &self.comparison,
            changes: changes.map(|changes| (changes, &self.changes)),
        };
        page.to_string()
    }
}
