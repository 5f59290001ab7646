//! What each rule did.

use std::fmt;

use fluxgate_core::{Rule, RuleSets};

use super::RuleCourse;
use super::axis::TimeAxis;
use super::chart::{Chart, Size};
use super::escape::Escaped;
use super::mapping;
use super::page::Told;
use super::series::{Kind, Series};
use super::words::{grouped, span};

/// More rules than this are not in the table.
const MOST_ROWS: usize = 200;
/// More rules than this have no chart.
const MOST_CHARTS: usize = 12;
/// More rules than this are not named as those that no request met.
const MOST_NAMES: usize = 50;

/// A table and a chart for each rule; the one that refused most is first.
pub(super) struct ByRule<'a> {
    pub(super) told: &'a Told<'a>,
    /// By name.
    pub(super) rules: &'a [RuleCourse],
    pub(super) axis: &'a TimeAxis,
}

impl ByRule<'_> {
    fn table(&self, f: &mut fmt::Formatter<'_>, rules: &[&RuleCourse]) -> fmt::Result {
        write!(
            f,
            "<div class=\"scroll\"><table id=\"rules\">\n<tr><th>rule</th>\
             <th class=\"n\">requests</th><th class=\"n\">allowed</th><th class=\"n\">denied</th>\
             <th class=\"n\">shadow-denied</th><th class=\"n\">delayed</th></tr>\n"
        )?;
        for course in rules.iter().take(MOST_ROWS) {
            let name = Escaped(&course.name);
            let rule = find(self.told.rules, &course.name);
            let says = rule.map(says).unwrap_or_default();
            write!(
                f,
                "<tr><td><span class=\"name\">{name}</span><small>{}</small></td>",
                Escaped(&says)
            )?;
            let counts = self.told.summary.of_rule(&course.name);
            let numbers = [
                counts.requests,
                counts.allowed(),
                counts.denied,
                counts.shadow_denied,
                course.all.delayed,
            ];
            for number in numbers {
                write!(f, "<td class=\"n\">{}</td>", grouped(number))?;
            }
            writeln!(f, "</tr>")?;
        }
        writeln!(f, "</table></div>")?;
        match rules.len().saturating_sub(MOST_ROWS) {
            0 => Ok(()),
            more => writeln!(f, "<p>And {} more.</p>", grouped(more as u64)),
        }
    }

    fn chart(&self, f: &mut fmt::Formatter<'_>, index: usize, rule: &RuleCourse) -> fmt::Result {
        let taken = self.axis.fit(&rule.taken);
        let taken = || taken.iter();
        let refused = match rule.is_shadow {
            true => Kind::ShadowDenied,
            false => Kind::Denied,
        };
        let chart = Chart {
            id: &format!("rule-{index}"),
            label: &format!("the requests that {} was asked about, over time", rule.name),
            size: Size::Small,
            axis: self.axis,
            bars: vec![
                Series::new(Kind::AtOnce, taken().map(|taken| taken.passed)),
                Series::new(Kind::Delayed, taken().map(|taken| taken.delayed)),
                Series::new(refused, taken().map(|taken| taken.refused)),
            ],
            lines: Vec::new(),
            most: 0,
        };
        let name = Escaped(&rule.name);
        writeln!(
            f,
            "<figure><h3 class=\"name\">{name}</h3>\n{chart}</figure>"
        )
    }

    /// Rules that could as well not be there, by name.
    fn unmet(&self) -> Vec<RuleCourse> {
        let mut names = Vec::new();
        for set in self.told.rules.iter() {
            let rules = set.rules().iter();
            names.extend(rules.map(|rule| format!("{}/{}", set.name(), rule.id())));
        }
        let met = |name: &String| {
            let found = self.rules.binary_search_by(|rule| rule.name.cmp(name));
            found.is_ok()
        };
        names.retain(|name| !met(name));
        names.sort_unstable();
        let unmet = names.into_iter().map(|name| RuleCourse {
            name,
            ..RuleCourse::default()
        });
        unmet.collect()
    }
}

impl fmt::Display for ByRule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "<section>\n<h2>By rule</h2>")?;
        writeln!(
            f,
            "<p>A request is charged to all rules that match it, or, if one refuses, to none. \
             What the enforced rules refuse is not asked of shadow rules.</p>"
        )?;
        let mut rules: Vec<_> = self.rules.iter().collect();
        // Stable: of equals the first by name.
        rules.sort_by_key(|rule| std::cmp::Reverse((rule.all.refused, rule.all.requests())));
        let unmet = self.unmet();
        let rows: Vec<_> = rules.iter().copied().chain(&unmet).collect();
        self.table(f, &rows)?;
        if !unmet.is_empty() {
            let names = names_in_short(unmet.iter().map(|rule| &rule.name), MOST_NAMES);
            writeln!(f, "<p>No request met {names}.</p>")?;
        }
        writeln!(f, "<div class=\"charts\">")?;
        for (index, rule) in rules.iter().take(MOST_CHARTS).enumerate() {
            self.chart(f, index, rule)?;
        }
        writeln!(f, "</div>")?;
        if rules.len() > MOST_CHARTS {
            let shown = "The rules that refused most have a chart.";
            writeln!(f, "<p>{shown}</p>")?;
        }
        writeln!(f, "</section>")
    }
}

/// Names as markup; more than `most` are only counted.
pub(super) fn names_in_short<'a, T: AsRef<str> + 'a>(
    names: impl IntoIterator<Item = &'a T>,
    most: usize,
) -> String {
    let mut shown = Vec::new();
    let mut more = 0;
    for name in names {
        match shown.len() < most {
            true => shown.push(format!("<code>{}</code>", Escaped(name.as_ref()))),
            false => more += 1,
        }
    }
    let mut text = shown.join(", ");
    if more > 0 {
        text += &format!(" and {} more", grouped(more));
    }
    text
}

fn find<'a>(rules: &'a RuleSets, name: &str) -> Option<&'a Rule> {
    let (set, rule) = name.rsplit_once('/')?;
    rules.get(set)?.rule(rule)
}

/// A rule in a few words: `token_bucket, 10 per 1 s and 100 per 1 min`.
fn says(rule: &Rule) -> String {
    let bands: Vec<_> = rule.bands().iter().map(band_says).collect();
    let algorithm = rule.bands().first().map(|band| band.limit().algorithm());
    let algorithm = algorithm.map_or("", mapping::name);
    let mut text = format!("{algorithm}, {}", bands.join(" and "));
    if let Some(name) = rule.name() {
        text = format!("{name}: {text}");
    }
    text
}

fn band_says(band: &fluxgate_core::Band) -> String {
    let limit = band.limit();
    let (capacity, rate) = (grouped(limit.capacity()), limit.rate());
    let window = span(limit.window().get());
    let is_plain = rate.refill() == limit.capacity() && rate.period() == limit.window();
    if is_plain || !limit.algorithm().is_bucket() {
        return format!("{capacity} per {window}");
    }
    let (refill, period) = (grouped(rate.refill()), span(rate.period().get()));
    format!("{capacity} at once, {refill} per {period}")
}
