//! The section that compares the five algorithms.

use std::fmt;

use crate::report::chart::{Chart, ChartSize, TimeAxis, traffic_series};
use crate::report::comparison::{AlgorithmVariant, Comparison, algorithm_name};
use crate::report::html::{begin_table, end_row, name_list};
use crate::report::humanize::{duration, grouped};
use crate::report::traffic::Traffic;

/// The most rules that a remark names.
const MAX_NAMES: usize = 10;

/// A table and a chart for each algorithm, all on the same scale.
pub(super) struct AlgorithmsSection<'a> {
    pub(super) traffic: &'a Traffic,
    pub(super) comparison: &'a Comparison,
    pub(super) axis: &'a TimeAxis,
}

impl AlgorithmsSection<'_> {
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = "algorithm|#admitted|#denied|#shadow-denied|#delayed|#longest delay|\
                       #most released|#decided differently";
        begin_table(f, "algorithms", columns)?;
        self.row(f, "as configured", self.traffic, 0)?;
        for variant in &self.comparison.variants {
            let name = algorithm_name(variant.algorithm);
            self.row(f, name, &variant.traffic, variant.different)?;
        }
        writeln!(f, "</table></div>")
    }

    fn row(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        traffic: &Traffic,
        different: u64,
    ) -> fmt::Result {
        let total = traffic.total;
        let mut releases = traffic.releases.clone();
        releases.widen(self.axis.width);
        let peak = releases.columns().map(|(_, count)| count).max();
        let cells = [
            grouped(total.admitted()),
            grouped(total.denied),
            grouped(total.shadow_denied),
            grouped(total.delayed),
            duration(traffic.longest_delay.get()),
            format!(
                "{} per {}",
                grouped(peak.unwrap_or(0)),
                duration(releases.width.micros())
            ),
            grouped(different),
        ];
        write!(f, "<tr><td class=\"name\">{name}</td>")?;
        end_row(f, cells)
    }

    fn charts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variants = self.comparison.variants.iter();
        let highest = variants.map(|variant| self.chart(variant, 0).highest());
        let min_scale = highest.max().unwrap_or(0);
        writeln!(f, "<div class=\"charts\">")?;
        for variant in &self.comparison.variants {
            let name = algorithm_name(variant.algorithm);
            let chart = self.chart(variant, min_scale);
            writeln!(
                f,
                "<figure><h3 class=\"name\">{name}</h3>\n{chart}</figure>"
            )?;
        }
        writeln!(f, "</div>")
    }

    fn chart(&self, variant: &AlgorithmVariant, min_scale: u64) -> Chart<'_> {
        let name = algorithm_name(variant.algorithm);
        let (bars, lines) = traffic_series(&variant.traffic, self.axis);
        Chart {
            id: name,
            label: name,
            size: ChartSize::Small,
            axis: self.axis,
            bars,
            lines,
            min_scale,
        }
    }
}

impl fmt::Display for AlgorithmsSection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "<section>\n<h2>The five algorithms on this input</h2>\n\
             <p>The same requests under the same rules, with every rule under each algorithm in \
             turn. The leaky bucket is shaped unless its rule waits: it admits what the token \
             bucket admits, and the line shows when it releases those requests.</p>"
        )?;
        self.table(f)?;
        let remarks = &self.comparison.remarks.0;
        if !remarks.is_empty() {
            writeln!(f, "<ul id=\"remarks\">")?;
            for (remark, rules) in remarks {
                let rules = name_list(rules.iter().map(String::as_str), MAX_NAMES);
                writeln!(f, "<li>{remark}: {rules}.</li>")?;
            }
            writeln!(f, "</ul>")?;
        }
        self.charts(f)?;
        writeln!(f, "</section>")
    }
}
