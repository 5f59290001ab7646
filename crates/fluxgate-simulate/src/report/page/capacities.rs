//! The section on what identities use, and the capacities that this suggests.

use std::fmt;

use fluxgate_core::Band;

use super::rules::RuleRow;
use crate::report::conversion::with_capacity;
use crate::report::describe;
use crate::report::html::{Escaped, MAX_ROWS, begin_table, end_row, end_table};
use crate::report::humanize::{grouped, percent};
use crate::report::usage::{IdentityUsage, Percentiles};

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
        describe::limit(limit)
    )?;
    let suggested = with_capacity(limit, used.p99).map(|limit| describe::limit(&limit));
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
