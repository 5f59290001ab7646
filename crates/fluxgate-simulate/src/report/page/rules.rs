//! The section on what each rule did.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

use fluxgate_core::key::RuleNumber;
use fluxgate_core::{ActiveRule, Band, RuleSets};

use crate::report::chart::{Chart, ChartSize, Series, SeriesKind, TimeAxis};
use crate::report::comparison::{describe_limit, describe_rule, with_capacity};
use crate::report::html::{Escaped, MAX_ROWS, begin_table, end_row, end_table, name_list};
use crate::report::humanize::{duration, grouped, percent};
use crate::report::traffic::{OutcomeCounts, RuleTraffic};
use crate::report::usage::{IdentityUsage, Percentiles};
use crate::summary::{Summary, rule_name};

/// The most rules that have a chart.
const MAX_CHARTS: usize = 12;
/// The most rules without requests that are named.
const MAX_NAMES: usize = 50;

/// A table and a chart for each rule. The rule that refused most comes first.
pub(super) struct RulesSection<'a> {
    pub(super) rows: &'a [RuleRow<'a>],
    pub(super) summary: &'a Summary,
    pub(super) axis: &'a TimeAxis,
}

/// A rule with its name and the requests that it matched.
pub(super) struct RuleRow<'a> {
    pub(super) name: String,
    pub(super) rule: &'a ActiveRule,
    traffic: Option<&'a RuleTraffic>,
}

impl<'a> RuleRow<'a> {
    /// Returns all rules. The one that refused most comes first.
    pub(super) fn all(
        rules: &'a RuleSets,
        traffic: &'a HashMap<RuleNumber, RuleTraffic>,
    ) -> Vec<Self> {
        let mut rows = Vec::new();
        for set in rules.iter() {
            rows.extend(set.rules().iter().map(|rule| RuleRow {
                name: rule_name(set.name(), rule.id()),
                rule,
                traffic: traffic.get(&rule.number()),
            }));
        }
        rows.sort_by_cached_key(|row| {
            let total = row.traffic.map(|traffic| traffic.total).unwrap_or_default();
            (Reverse((total.denied, total.requests())), row.name.clone())
        });
        rows
    }
}

impl RulesSection<'_> {
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows;
        let columns = "rule|#requests|#allowed|#denied|#shadow-denied|#delayed";
        begin_table(f, "rules", columns)?;
        for row in rows.iter().take(MAX_ROWS) {
            write!(
                f,
                "<tr><td><span class=\"name\">{}</span><small>{}</small></td>",
                Escaped(&row.name),
                Escaped(&describe_rule(row.rule))
            )?;
            let counts = self.summary.rule(&row.name);
            let numbers = [
                counts.requests,
                counts.allowed(),
                counts.denied,
                counts.shadow_denied,
                row.traffic.map_or(0, |traffic| traffic.total.delayed),
            ];
            end_row(f, numbers.map(grouped))?;
        }
        end_table(f, rows.len())
    }

    fn charts(
        &self,
        f: &mut fmt::Formatter<'_>,
        index: usize,
        row: &RuleRow<'_>,
        traffic: &RuleTraffic,
    ) -> fmt::Result {
        let name = Escaped(&row.name);
        let chart = Chart {
            id: &format!("rule-{index}"),
            label: &format!("the requests that {} matched, over time", row.name),
            size: ChartSize::Small,
            axis: self.axis,
            bars: bars(&self.axis.fit(&traffic.arrivals)),
            lines: Vec::new(),
            min_scale: 0,
        };
        writeln!(f, "<figure><h3 class=\"name\">{name}</h3>\n{chart}")?;
        self.detail(f, index, row, traffic)?;
        writeln!(f, "</figure>")
    }

    /// Writes a second chart, if the columns of the first are too wide to show a window.
    fn detail(
        &self,
        f: &mut fmt::Formatter<'_>,
        index: usize,
        row: &RuleRow<'_>,
        traffic: &RuleTraffic,
    ) -> fmt::Result {
        let width = traffic.detail.width;
        let Some((first, columns)) = traffic.detail.best().filter(|_| width < self.axis.width)
        else {
            return Ok(());
        };
        let axis = TimeAxis::new(width, first, columns.len() as u64);
        let chart = Chart {
            id: &format!("rule-{index}-detail"),
            label: &format!("a part of the requests that {} matched", row.name),
            size: ChartSize::Small,
            axis: &axis,
            bars: bars(columns),
            lines: Vec::new(),
            min_scale: 0,
        };
        let most = match traffic.total.denied {
            0 => "requests",
            _ => "denials",
        };
        let span = duration(width.micros() * columns.len() as u64);
        let start = axis.column_start(0);
        writeln!(
            f,
            "<figcaption>The {span} with the most {most}, from {start}:</figcaption>\n{chart}"
        )
    }
}

fn bars(columns: &[OutcomeCounts]) -> Vec<Series> {
    let columns = || columns.iter();
    let enforced = |counts: &OutcomeCounts| counts.denied - counts.shadow_denied;
    vec![
        Series::new(SeriesKind::AtOnce, columns().map(|counts| counts.at_once)),
        Series::new(SeriesKind::Delayed, columns().map(|counts| counts.delayed)),
        Series::new(
            SeriesKind::ShadowDenied,
            columns().map(|counts| counts.shadow_denied),
        ),
        Series::new(SeriesKind::Denied, columns().map(enforced)),
    ]
}

impl fmt::Display for RulesSection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "<section>\n<h2>By rule</h2>\n\
             <p>A request is charged to all rules that match it, or, if one refuses, to none. \
             Shadow rules do not see what enforced rules refuse.</p>"
        )?;
        let rows = self.rows;
        self.table(f)?;
        let unmatched = rows.iter().filter(|row| row.traffic.is_none());
        let names = name_list(unmatched.map(|row| row.name.as_str()), MAX_NAMES);
        if !names.is_empty() {
            writeln!(f, "<p>No request matched {names}.</p>")?;
        }
        writeln!(f, "<div class=\"charts\">")?;
        let matched = rows.iter().filter_map(|row| Some((row, row.traffic?)));
        for (index, (row, traffic)) in matched.clone().take(MAX_CHARTS).enumerate() {
            self.charts(f, index, row, traffic)?;
        }
        writeln!(f, "</div>")?;
        if matched.count() > MAX_CHARTS {
            let note = "Only the rules that refused most have a chart.";
            writeln!(f, "<p>{note}</p>")?;
        }
        writeln!(f, "</section>")
    }
}

/// A table of all bands, with the percentiles of their identities.
pub(super) struct CapacitiesSection<'a> {
    pub(super) rows: &'a [RuleRow<'a>],
    pub(super) usage: &'a IdentityUsage,
}

impl<'a> CapacitiesSection<'a> {
    /// Returns the bands that were used, in the order of the rules.
    fn bands(&self) -> Vec<(String, &'a Band, Percentiles)> {
        let mut bands = Vec::new();
        for row in self.rows {
            for (index, band) in row.rule.bands().iter().enumerate() {
                let used = self
                    .usage
                    .percentiles(row.rule.number(), index, band.limit());
                if let Some(used) = used {
                    bands.push((format!("{}/{}", row.name, band.id()), band, used));
                }
            }
        }
        bands
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, band: &Band, used: &Percentiles) -> fmt::Result {
    let limit = band.limit();
    let more = if used.is_partial { "+" } else { "" };
    write!(
        f,
        "<tr><td><span class=\"name\">{}</span><small>{}</small></td>",
        Escaped(name),
        describe_limit(limit)
    )?;
    let suggested = with_capacity(limit, used.p99).map(|limit| describe_limit(&limit));
    let cells = [
        format!("{}{more}", grouped(used.identities)),
        grouped(used.p50),
        grouped(used.p90),
        grouped(used.p99),
        grouped(used.max),
        percent(used.within, used.identities),
        // More than the algorithm can count.
        suggested.unwrap_or_else(|| "none".into()),
    ];
    end_row(f, cells)
}

impl fmt::Display for CapacitiesSection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bands = self.bands();
        if bands.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "<section>\n<h2>What identities use</h2>\n\
             <p>The units that an identity asks for in its busiest window, admitted or not. Half \
             of the identities ask for at most p50, 99 % for at most p99; the capacity is enough \
             for the share <code>within</code>. The suggested limit has p99 as its capacity: with \
             it, the band refuses nothing to 99 % of the identities. Retries of denied requests \
             count as well, so that it may be more than is needed.</p>"
        )?;
        let columns = "band|#identities|#p50|#p90|#p99|#most|#within|#suggested";
        begin_table(f, "capacities", columns)?;
        for (name, band, used) in bands.iter().take(MAX_ROWS) {
            row(f, name, band, used)?;
        }
        end_table(f, bands.len())?;
        writeln!(f, "</section>")
    }
}
