//! The page itself.

use std::fmt;
use std::path::Path;

use fluxgate_core::RuleSets;

use super::RuleCourse;
use super::axis::TimeAxis;
use super::by_rule::ByRule;
use super::chart::{self, Chart, Size};
use super::compare::Comparison;
use super::course::Course;
use super::escape::Escaped;
use super::most_denied::MostDenied;
use super::series::{Kind, Series};
use super::side_by_side::SideBySide;
use super::width::DAY;
use super::words::{date, grouped, percent, span, time_of_day};
use crate::simulate::summary::Summary;

/// Nothing is loaded and nothing is run, whatever the input holds.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// What the simulation itself knows.
pub(in crate::simulate) struct Told<'a> {
    pub(in crate::simulate) rules_file: &'a Path,
    pub(in crate::simulate) input: &'a Path,
    pub(in crate::simulate) rules: &'a RuleSets,
    pub(in crate::simulate) summary: &'a Summary,
    /// What a reader must know besides: lines left out, an early end.
    pub(in crate::simulate) warnings: Vec<String>,
}

/// All that a page shows.
pub(super) struct Page<'a> {
    pub(super) told: &'a Told<'a>,
    pub(super) course: &'a Course,
    pub(super) rules: &'a [RuleCourse],
    pub(super) comparison: &'a Comparison,
}

impl Page<'_> {
    fn head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = file_name(self.told.rules_file);
        let (rules, requests) = (Escaped(&rules), self.course.all.requests());
        let requests = grouped(requests);
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
        let input = file_name(self.told.input);
        let input = match input.as_str() {
            "-" => "standard input",
            name => name,
        };
        writeln!(
            f,
            "<header>\n<h1>{rules}: what it does to {requests} requests</h1>\n\
             <p>Recorded in <code>{}</code>{}, decided on virtual time.</p>",
            Escaped(input),
            self.when()
        )?;
        for warning in &self.told.warnings {
            writeln!(f, "<p class=\"warn\">{}</p>", Escaped(warning))?;
        }
        self.tiles(f)?;
        writeln!(f, "</header>")
    }

    /// From when to when.
    fn when(&self) -> String {
        let (Some(first), Some(last)) = (self.course.first, self.course.last) else {
            return String::new();
        };
        let (first, last) = (first.micros(), last.micros());
        // Such a stream is made up, and counts from zero.
        if last < DAY {
            return format!(", from {} to {}", span(first), span(last));
        }
        let instant = |at| format!("{} {}", date(at), time_of_day(at, 1));
        format!(", {} to {} UTC", instant(first), instant(last))
    }

    fn tiles(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.course.all;
        let requests = all.requests();
        let share = |part| percent(part, requests);
        let longest = match all.delayed {
            0 => String::new(),
            _ => format!("up to {}", span(self.course.longest_delay.get())),
        };
        let (first, last) = (self.course.first, self.course.last);
        let lasted = last.unwrap_or_default().micros() - first.unwrap_or_default().micros();
        let tiles = [
            (
                "requests",
                "",
                grouped(requests),
                format!("in {}", span(lasted)),
            ),
            (
                "admitted",
                "at-once",
                grouped(all.admitted()),
                share(all.admitted()),
            ),
            ("denied", "denied", grouped(all.denied), share(all.denied)),
            ("delayed", "delayed", grouped(all.delayed), longest),
            (
                "shadow-denied",
                "shadow",
                grouped(all.shadow_denied),
                share(all.shadow_denied),
            ),
            (
                "no rule",
                "no-rule",
                grouped(all.no_rule),
                share(all.no_rule),
            ),
        ];
        writeln!(f, "<dl class=\"tiles\">")?;
        for (name, colour, number, more) in tiles {
            let colour = match colour {
                "" => String::new(),
                name => format!(" style=\"--tile: var(--{name})\""),
            };
            writeln!(
                f,
                "<div{colour}><dt>{name}</dt><dd>{number}<small>{more}</small></dd></div>"
            )?;
        }
        writeln!(f, "</dl>")
    }

    fn traffic(&self, f: &mut fmt::Formatter<'_>, axis: &TimeAxis) -> fmt::Result {
        let (bars, lines) = drawn(self.course, axis);
        let chart = Chart {
            id: "traffic",
            label: "all requests over time, by how they fared",
            size: Size::Wide,
            axis,
            bars,
            lines,
            most: 0,
        };
        write!(
            f,
            "<section>\n<h2>Traffic</h2>\n<p>Every request, by when it came and how it fared.{}</p>\n{chart}</section>\n",
            match self.course.all.delayed {
                0 => "",
                _ => " The line shows when what was admitted goes on, after its delay.",
            }
        )
    }
}

/// A course as bars and lines.
pub(super) fn drawn(course: &Course, axis: &TimeAxis) -> (Vec<Series>, Vec<Series>) {
    let fates = axis.fit(&course.fates);
    let fates = || fates.iter();
    let bars = vec![
        Series::new(Kind::NoRule, fates().map(|fates| fates.no_rule)),
        Series::new(Kind::AtOnce, fates().map(|fates| fates.at_once)),
        Series::new(Kind::Delayed, fates().map(|fates| fates.delayed)),
        Series::new(Kind::Denied, fates().map(|fates| fates.denied)),
    ];
    let mut lines = vec![Series::new(
        Kind::ShadowDenied,
        fates().map(|fates| fates.shadow_denied),
    )];
    if course.all.delayed > 0 {
        lines.push(Series::spread(Kind::LetGo, &course.let_go, axis));
    }
    (bars, lines)
}

/// Without the folder, so that the page is the same wherever it is made.
fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        if self.course.fates.is_empty() {
            writeln!(f, "<p>There were no requests.</p>")?;
        } else {
            let variants = self.comparison.variants.iter();
            let others: Vec<_> = variants.map(|variant| &variant.course).collect();
            let axis = TimeAxis::of(self.course, &others);
            writeln!(f, "<main>")?;
            self.traffic(f, &axis)?;
            let by_rule = ByRule {
                told: self.told,
                rules: self.rules,
                axis: &axis,
            };
            write!(f, "{by_rule}{}", MostDenied(self.told.summary))?;
            let side_by_side = SideBySide {
                course: self.course,
                comparison: self.comparison,
                axis: &axis,
            };
            writeln!(f, "{side_by_side}</main>")?;
        }
        let version = env!("CARGO_PKG_VERSION");
        writeln!(
            f,
            "<footer>fluxgate {version} simulate. The same input gives the same page. \
             Times are UTC.</footer>\n</body>\n</html>"
        )
    }
}
