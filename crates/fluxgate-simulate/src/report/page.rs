//! The page: its head, the traffic, and the sections.

mod algorithms;
mod changes;
mod rules;

use std::collections::HashMap;
use std::fmt;

use fluxgate_core::RuleSets;
use fluxgate_core::key::RuleNumber;

use super::chart::{self, Chart, ChartSize, TimeAxis, traffic_series};
use super::comparison::Comparison;
use super::html::{Escaped, begin_table};
use super::humanize::{date, duration, grouped, percent, time_of_day};
use super::timeline::Timeline;
use super::traffic::{RuleTraffic, Traffic};
use super::usage::IdentityUsage;
use crate::changes::{ChangeCounts, Changes};
use crate::summary::Summary;
use crate::time::DAY;
use algorithms::AlgorithmsSection;
use changes::ChangesSection;
use rules::{CapacitiesSection, RuleRow, RulesSection};

/// The browser loads nothing and runs nothing, whatever the input contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The names of the sources of a report.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportLabels<'a> {
    /// The name of the rules.
    pub rules: &'a str,
    /// The name of the input.
    pub input: &'a str,
    /// The name of the old rules, if there are any.
    pub old_rules: &'a str,
    /// Why the run ended early, if it did.
    pub early_end: Option<&'a str>,
}

/// All that a page shows.
pub(super) struct Page<'a> {
    pub(super) labels: &'a ReportLabels<'a>,
    pub(super) warnings: &'a [String],
    pub(super) rules: &'a RuleSets,
    pub(super) summary: &'a Summary,
    pub(super) traffic: &'a Traffic,
    pub(super) rule_traffic: &'a HashMap<RuleNumber, RuleTraffic>,
    pub(super) usage: &'a IdentityUsage,
    pub(super) comparison: &'a Comparison,
    /// The changes against the old rules, in total and over time, if there are old rules.
    pub(super) changes: Option<(&'a Changes, &'a Timeline<ChangeCounts>)>,
}

impl Page<'_> {
    fn head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = Escaped(self.labels.rules);
        let requests = grouped(self.traffic.total.requests());
        write!(
            f,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{rules}: {requests} requests</title>\n\
             <style id=\"chart-style\">\n{}</style>\n<style>\n{}</style>\n</head>\n<body>\n",
            chart::STYLE,
            include_str!("page.css"),
        )?;
        writeln!(
            f,
            "<header>\n<h1>{rules}: what it does to {requests} requests</h1>\n\
             <p>Recorded in <code>{}</code>{}, replayed on virtual time.</p>",
            Escaped(self.labels.input),
            self.period()
        )?;
        for warning in self.warnings {
            writeln!(f, "<p class=\"warn\">{}</p>", Escaped(warning))?;
        }
        self.tiles(f)?;
        writeln!(f, "</header>")
    }

    /// Returns the times of the first and the last request.
    fn period(&self) -> String {
        let (Some(first), Some(last)) = (self.traffic.first, self.traffic.last) else {
            return String::new();
        };
        let (first, last) = (first.micros(), last.micros());
        // The stream is synthetic, and counts from zero.
        if last < DAY {
            return format!(", from {} to {}", duration(first), duration(last));
        }
        let instant = |at| format!("{} {}", date(at), time_of_day(at, 1));
        format!(", {} to {} UTC", instant(first), instant(last))
    }

    fn tiles(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.traffic.total;
        let requests = total.requests();
        let (first, last) = (self.traffic.first, self.traffic.last);
        let micros = last.unwrap_or_default().micros() - first.unwrap_or_default().micros();
        let span = format!("in {}", duration(micros));
        let longest = match total.delayed {
            0 => String::new(),
            _ => format!("up to {}", duration(self.traffic.longest_delay.get())),
        };
        let tiles = [
            ("requests", "grid", requests, Some(span)),
            ("admitted", "at-once", total.admitted(), None),
            ("denied", "denied", total.denied, None),
            ("delayed", "delayed", total.delayed, Some(longest)),
            ("shadow-denied", "shadow", total.shadow_denied, None),
            ("no rule", "no-rule", total.no_rule, None),
        ];
        writeln!(f, "<dl class=\"tiles\">")?;
        for (name, colour, count, note) in tiles {
            let note = note.unwrap_or_else(|| percent(count, requests));
            let count = grouped(count);
            writeln!(
                f,
                "<div style=\"--tile: var(--{colour})\"><dt>{name}</dt>\
                 <dd>{count}<small>{note}</small></dd></div>"
            )?;
        }
        writeln!(f, "</dl>")
    }

    fn traffic(&self, f: &mut fmt::Formatter<'_>, axis: &TimeAxis) -> fmt::Result {
        let (bars, lines) = traffic_series(self.traffic, axis);
        let chart = Chart {
            id: "traffic",
            label: "all requests over time, by outcome",
            size: ChartSize::Wide,
            axis,
            bars,
            lines,
            min_scale: 0,
        };
        write!(
            f,
            "<section>\n<h2>Traffic</h2>\n<p>Every request by its arrival and its outcome.{}</p>\n{chart}</section>\n",
            match self.traffic.total.delayed {
                0 => "",
                _ => " The line shows when admitted requests are released, after their delay.",
            }
        )
    }

    fn most_denied(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.summary.most_denied();
        writeln!(f, "<section>\n<h2>Most denied identities</h2>")?;
        let Some(first) = most.first() else {
            return writeln!(f, "<p>No identity was denied.</p>\n</section>");
        };
        begin_table(f, "most-denied", "identity|rule|#denied|")?;
        for denied in &most {
            let share = denied.denied * 100 / first.denied;
            writeln!(
                f,
                "<tr><td class=\"name\"><bdi>{}</bdi></td><td class=\"name\">{}</td>\
                 <td class=\"n\">{}</td><td class=\"share-cell\">\
                 <span class=\"share\" style=\"width: {share}%\"></span></td></tr>",
                Escaped(&denied.identity),
                Escaped(denied.rule),
                grouped(denied.denied)
            )?;
        }
        writeln!(f, "</table></div>\n</section>")
    }
}

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        if self.traffic.arrivals.is_empty() {
            writeln!(f, "<p>There were no requests.</p>")?;
        } else {
            let variants = self.comparison.variants.iter();
            let others: Vec<_> = variants.map(|variant| &variant.traffic).collect();
            let axis = TimeAxis::of(self.traffic, &[]);
            let longer_axis = TimeAxis::of(self.traffic, &others);
            writeln!(f, "<main>")?;
            self.traffic(f, &axis)?;
            if let Some((changes, traffic)) = self.changes {
                let changes = ChangesSection {
                    old_rules: self.labels.old_rules,
                    changes,
                    traffic,
                    axis: &axis,
                };
                write!(f, "{changes}")?;
            }
            let rows = RuleRow::all(self.rules, self.rule_traffic);
            let rules = RulesSection {
                rows: &rows,
                summary: self.summary,
                axis: &axis,
            };
            write!(f, "{rules}")?;
            self.most_denied(f)?;
            let capacities = CapacitiesSection {
                rows: &rows,
                usage: self.usage,
            };
            write!(f, "{capacities}")?;
            let algorithms = AlgorithmsSection {
                traffic: self.traffic,
                comparison: self.comparison,
                axis: &longer_axis,
            };
            writeln!(f, "{algorithms}</main>")?;
        }
        let version = env!("CARGO_PKG_VERSION");
        writeln!(
            f,
            "<footer>fluxgate simulate {version}. The same input gives the same page. \
             Times are in UTC.</footer>\n</body>\n</html>"
        )
    }
}
