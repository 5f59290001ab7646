//! The five algorithms, side by side.

use std::fmt;

use super::axis::TimeAxis;
use super::by_rule::names_in_short;
use super::chart::{Chart, Size};
use super::compare::{Comparison, Variant};
use super::course::Course;
use super::mapping;
use super::page::drawn;
use super::words::{grouped, span};

/// More rules than this are not named in a remark.
const MOST_NAMES: usize = 10;

/// A table and a chart for each algorithm, all on the same scale.
pub(super) struct SideBySide<'a> {
    pub(super) course: &'a Course,
    pub(super) comparison: &'a Comparison,
    pub(super) axis: &'a TimeAxis,
}

impl SideBySide<'_> {
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "<div class=\"scroll\"><table id=\"algorithms\">\n<tr><th>every rule as</th>\
             <th class=\"n\">admitted</th><th class=\"n\">denied</th>\
             <th class=\"n\">shadow-denied</th><th class=\"n\">delayed</th>\
             <th class=\"n\">longest delay</th><th class=\"n\">most let go</th>\
             <th class=\"n\">decided otherwise</th></tr>\n"
        )?;
        self.row(f, "the rules say", self.course, 0)?;
        for variant in &self.comparison.variants {
            let name = mapping::name(variant.algorithm);
            self.row(f, name, &variant.course, variant.otherwise)?;
        }
        writeln!(f, "</table></div>")
    }

    fn row(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        course: &Course,
        otherwise: u64,
    ) -> fmt::Result {
        let (all, longest) = (course.all, course.longest_delay.get());
        let mut let_go = course.let_go.clone();
        let_go.widen(self.axis.width);
        let peak = let_go.columns().map(|(_, count)| count).max();
        let peak = grouped(peak.unwrap_or(0));
        let cells = [
            grouped(all.admitted()),
            grouped(all.denied),
            grouped(all.shadow_denied),
            grouped(all.delayed),
            span(longest),
            format!("{peak} per {}", span(let_go.width().micros())),
            grouped(otherwise),
        ];
        write!(f, "<tr><td class=\"name\">{name}</td>")?;
        for cell in cells {
            write!(f, "<td class=\"n\">{cell}</td>")?;
        }
        writeln!(f, "</tr>")
    }

    fn charts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variants = self.comparison.variants.iter();
        let most = variants
            .map(|variant| self.chart(variant, 0).highest())
            .max();
        writeln!(f, "<div class=\"charts\">")?;
        for variant in &self.comparison.variants {
            let name = mapping::name(variant.algorithm);
            let chart = self.chart(variant, most.unwrap_or(0));
            writeln!(
                f,
                "<figure><h3 class=\"name\">{name}</h3>\n{chart}</figure>"
            )?;
        }
        writeln!(f, "</div>")
    }

    fn chart(&self, variant: &Variant, most: u64) -> Chart<'_> {
        let name = mapping::name(variant.algorithm);
        let (bars, lines) = drawn(&variant.course, self.axis);
        Chart {
            id: name,
            label: name,
            size: Size::Small,
            axis: self.axis,
            bars,
            lines,
            most,
        }
    }
}

impl fmt::Display for SideBySide<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "<section>\n<h2>The five algorithms on this input</h2>\n\
             <p>The same requests through the same rules, every rule under each algorithm in \
             turn. The leaky bucket is shaped wherever its rule does not wait: it admits what \
             the token bucket admits, and the line shows when that goes on.</p>"
        )?;
        self.table(f)?;
        let remarks = &self.comparison.remarks.0;
        if !remarks.is_empty() {
            writeln!(f, "<ul id=\"remarks\">")?;
            for (remark, rules) in remarks {
                let rules = names_in_short(rules, MOST_NAMES);
                writeln!(f, "<li>{remark}: {rules}.</li>")?;
            }
            writeln!(f, "</ul>")?;
        }
        self.charts(f)?;
        writeln!(f, "</section>")
    }
}
