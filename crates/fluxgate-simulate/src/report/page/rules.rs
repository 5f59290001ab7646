//! The section on what each rule did.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

use fluxgate_core::internals::RuleNumber;
use fluxgate_core::{ActiveRule, Band, RuleMode, RuleSets};

use crate::report::chart::{Chart, Kind, Series, Size, TimeAxis};
use crate::report::conversion::algorithm_name;
use crate::report::html::{Escaped, name_list};
use crate::report::humanize::{duration, grouped};
use crate::report::traffic::RuleTraffic;
use crate::summary::{Summary, rule_name};

/// The table has at most this many rules.
const MAX_ROWS: usize = 200;
/// At most this many rules have a chart.
const MAX_CHARTS: usize = 12;
/// At most this many rules that no request matched are named.
const MAX_NAMES: usize = 50;

/// A table and a chart for each rule. The rule that refused most comes first.
pub(super) struct RulesSection<'a> {
    pub(super) rules: &'a RuleSets,
    pub(super) summary: &'a Summary,
    pub(super) traffic: &'a HashMap<RuleNumber, RuleTraffic>,
    pub(super) axis: &'a TimeAxis,
}

/// A rule with its name and the requests that it matched.
struct Row<'a> {
    name: String,
    rule: &'a ActiveRule,
    traffic: Option<&'a RuleTraffic>,
}

impl<'a> RulesSection<'a> {
    fn rows(&self) -> Vec<Row<'a>> {
        let mut rows = Vec::new();
        for set in self.rules.iter() {
            rows.extend(set.rules().iter().map(|rule| Row {
                name: rule_name(set.name(), rule),
                rule,
                traffic: self.traffic.get(&rule.number()),
            }));
        }
        rows.sort_by_cached_key(|row| {
            let total = row.traffic.map(|traffic| traffic.total).unwrap_or_default();
            (Reverse((total.denied, total.requests())), row.name.clone())
        });
        rows
    }

    fn table(&self, f: &mut fmt::Formatter<'_>, rows: &[Row<'_>]) -> fmt::Result {
        write!(
            f,
            "<div class=\"scroll\"><table id=\"rules\">\n<tr><th>rule</th>\
             <th class=\"n\">requests</th><th class=\"n\">allowed</th><th class=\"n\">denied</th>\
             <th class=\"n\">shadow-denied</th><th class=\"n\">delayed</th></tr>\n"
        )?;
        for row in rows.iter().take(MAX_ROWS) {
            write!(
                f,
                "<tr><td><span class=\"name\">{}</span><small>{}</small></td>",
                Escaped(&row.name),
                Escaped(&describe(row.rule))
            )?;
            let counts = self.summary.rule(&row.name);
            let numbers = [
                counts.requests,
                counts.allowed(),
                counts.denied,
                counts.shadow_denied,
                row.traffic.map_or(0, |traffic| traffic.total.delayed),
            ];
            for number in numbers {
                write!(f, "<td class=\"n\">{}</td>", grouped(number))?;
            }
            writeln!(f, "</tr>")?;
        }
        writeln!(f, "</table></div>")?;
        match rows.len().saturating_sub(MAX_ROWS) {
            0 => Ok(()),
            more => writeln!(f, "<p>And {} more.</p>", grouped(more as u64)),
        }
    }

    fn chart(
        &self,
        f: &mut fmt::Formatter<'_>,
        index: usize,
        row: &Row<'_>,
        traffic: &RuleTraffic,
    ) -> fmt::Result {
        let columns = self.axis.fit(&traffic.arrivals);
        let columns = || columns.iter();
        let refused = match row.rule.mode() {
            RuleMode::Shadow => Kind::ShadowDenied,
            RuleMode::Enforce => Kind::Denied,
        };
        let chart = Chart {
            id: &format!("rule-{index}"),
            label: &format!("the requests that {} matched, over time", row.name),
            size: Size::Small,
            axis: self.axis,
            bars: vec![
                Series::new(Kind::AtOnce, columns().map(|counts| counts.at_once)),
                Series::new(Kind::Delayed, columns().map(|counts| counts.delayed)),
                Series::new(refused, columns().map(|counts| counts.denied)),
            ],
            lines: Vec::new(),
            min_scale: 0,
        };
        let name = Escaped(&row.name);
        writeln!(
            f,
            "<figure><h3 class=\"name\">{name}</h3>\n{chart}</figure>"
        )
    }
}

impl fmt::Display for RulesSection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "<section>\n<h2>By rule</h2>\n\
             <p>A request is charged to all rules that match it, or, if one refuses, to none. \
             Shadow rules do not see what enforced rules refuse.</p>"
        )?;
        let rows = self.rows();
        self.table(f, &rows)?;
        let unmatched = rows.iter().filter(|row| row.traffic.is_none());
        let unmatched = name_list(unmatched.map(|row| row.name.as_str()), MAX_NAMES);
        if !unmatched.is_empty() {
            writeln!(f, "<p>No request matched {unmatched}.</p>")?;
        }
        writeln!(f, "<div class=\"charts\">")?;
        let matched = rows.iter().filter_map(|row| Some((row, row.traffic?)));
        for (index, (row, traffic)) in matched.clone().take(MAX_CHARTS).enumerate() {
            self.chart(f, index, row, traffic)?;
        }
        writeln!(f, "</div>")?;
        if matched.count() > MAX_CHARTS {
            let note = "Only the rules that refused most have a chart.";
            writeln!(f, "<p>{note}</p>")?;
        }
        writeln!(f, "</section>")
    }
}

/// Returns a rule in a few words: `token_bucket, 10 per 1 s and 100 per 1 min`.
fn describe(rule: &ActiveRule) -> String {
    let bands: Vec<_> = rule.bands().iter().map(describe_band).collect();
    let algorithm = rule.bands().first().map(|band| band.limit().algorithm());
    let algorithm = algorithm.map_or("", algorithm_name);
    let mut text = format!("{algorithm}, {}", bands.join(" and "));
    if let Some(name) = rule.name() {
        text = format!("{name}: {text}");
    }
    text
}

fn describe_band(band: &Band) -> String {
    let limit = band.limit();
    let (capacity, rate) = (grouped(limit.capacity()), limit.rate());
    let window = duration(limit.window().get());
    let is_plain = rate.refill() == limit.capacity() && rate.period() == limit.window();
    if is_plain || !limit.algorithm().is_bucket() {
        return format!("{capacity} per {window}");
    }
    let (refill, period) = (grouped(rate.refill()), duration(rate.period().get()));
    format!("{capacity} at once, {refill} per {period}")
}
