//! The section on what changes against the old rules.

use std::cmp::Reverse;
use std::fmt;

use crate::changes::{Change, ChangeCounts, Changes, Presence, RuleChange};
use crate::report::chart::{Chart, ChartSize, Series, SeriesKind, TimeAxis};
use crate::report::html::{Escaped, MAX_ROWS, begin_table, end_row, end_table};
use crate::report::humanize::grouped;
use crate::report::timeline::Timeline;
use crate::time::format_rfc3339;

/// The requests that are newly denied or newly admitted, by rule, over time and by identity.
pub(super) struct ChangesSection<'a> {
    pub(super) old_rules: &'a str,
    pub(super) changes: &'a Changes,
    pub(super) traffic: &'a Timeline<ChangeCounts>,
    pub(super) axis: &'a TimeAxis,
}

impl ChangesSection<'_> {
    fn chart(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.axis.fit(self.traffic);
        let numbers = |number: fn(&ChangeCounts) -> u64| columns.iter().map(number);
        let chart = Chart {
            id: "changes",
            label: "requests that are newly denied or newly admitted, over time",
            size: ChartSize::Wide,
            axis: self.axis,
            bars: vec![
                Series::new(
                    SeriesKind::NewlyDenied,
                    numbers(|counts| counts.newly_denied),
                ),
                Series::new(
                    SeriesKind::NewlyAdmitted,
                    numbers(|counts| counts.newly_admitted),
                ),
            ],
            lines: Vec::new(),
            min_scale: 0,
        };
        write!(f, "{chart}")
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = "rule|#newly denied|#identities|#newly admitted|#identities";
        begin_table(f, "changed-rules", columns)?;
        let mut rules: Vec<_> = self.changes.rules().collect();
        rules.sort_by_key(|rule| (Reverse(rule.newly_denied + rule.newly_admitted), rule.rule));
        for rule in rules.iter().take(MAX_ROWS) {
            row(f, rule)?;
        }
        end_table(f, rules.len())
    }

    fn identities(&self, f: &mut fmt::Formatter<'_>, change: Change) -> fmt::Result {
        let identities = self.changes.identities(change);
        if identities.is_empty() {
            return Ok(());
        }
        let (name, id) = (change.name(), change.name().replace(' ', "-"));
        writeln!(f, "<h3>Identities that are {name}</h3>")?;
        begin_table(f, &id, "identity|rule|#requests|first")?;
        for changed in identities {
            writeln!(
                f,
                "<tr><td class=\"name\"><bdi>{}</bdi></td><td class=\"name\">{}</td>\
                 <td class=\"n\">{}</td><td class=\"time\">{}</td></tr>",
                Escaped(&changed.identity),
                Escaped(changed.rule),
                grouped(changed.requests),
                format_rfc3339(changed.first)
            )?;
        }
        writeln!(f, "</table></div>")
    }
}

fn row(f: &mut fmt::Formatter<'_>, rule: &RuleChange<'_>) -> fmt::Result {
    let remark = match rule.presence {
        Presence::Both => "",
        Presence::Added => "<small>only in the new rules</small>",
        Presence::Removed => "<small>only in the old rules</small>",
    };
    let name = Escaped(rule.rule);
    write!(f, "<tr><td><span class=\"name\">{name}</span>{remark}</td>")?;
    let numbers = [
        rule.newly_denied,
        rule.newly_denied_identities,
        rule.newly_admitted,
        rule.newly_admitted_identities,
    ];
    end_row(f, numbers.map(grouped))
}

impl fmt::Display for ChangesSection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.changes.total();
        writeln!(
            f,
            "<section>\n<h2>Against {}</h2>\n<p>{} requests are newly denied and {} newly \
             admitted. Both rule files decide every request, each with its own state. A newly \
             denied request counts for the new rules that deny it, a newly admitted one for the \
             old rules that denied it.</p>",
            Escaped(self.old_rules),
            grouped(total.newly_denied),
            grouped(total.newly_admitted),
        )?;
        if total.newly_denied + total.newly_admitted > 0 {
            self.chart(f)?;
        }
        self.table(f)?;
        for change in Change::ALL {
            self.identities(f, change)?;
        }
        writeln!(f, "</section>")
    }
}
