//! The bands of a rule, and the identities of its overrides.

use std::time::Duration;

use super::rule::{BandStyle, RuleReader};
use crate::band::Band;
use crate::calendar::{Calendar, CalendarUnit, TimeZone};
use crate::limit::{Algorithm, Limit, LimitBuilder, LimitError, MAX_UNITS};
use crate::rules::rule::push_band;
use crate::rules::values;
use crate::yaml::{Node, Value};

/// Replaces an id that has a fault. It is not valid either, but only the first fault of a
/// field is reported.
const FAULTY_ID: &str = "?";

impl RuleReader<'_> {
    pub(super) fn bands(&mut self, node: &Node, style: &BandStyle) -> Vec<Band> {
        let mut bands = Vec::new();
        for node in node.list("`bands`", self.faults) {
            let band = self.band(node, style);
            push_band(&mut bands, band);
        }
        bands
    }

    fn band(&mut self, node: &Node, style: &BandStyle) -> Band {
        if style.algorithm == Algorithm::Concurrency && !node.is_map() {
            let message = "a band of concurrency must be { capacity: N }, without a window";
            self.faults.add(node.position, message);
            return Band::new("", stand_in(style));
        }
        if node.as_text().is_some() && !node.is_null() {
            let short = BandNodes {
                band: node,
                fields: [None; FIELDS.len()],
            };
            let limit = self.rate(node).and_then(|(units, window)| {
                let limit = Limit::builder(style.algorithm, units, window);
                self.limit(limit.shape(style.shape), style, &short)
            });
            return Band::new("", limit.unwrap_or_else(|| stand_in(style)));
        }
        let nodes = BandNodes {
            band: node,
            fields: node.fields("a band", FIELDS, self.faults),
        };
        let id = nodes.get("id").map_or("", |node| self.band_id(node));
        let limit = self.band_limit(&nodes, style);
        Band::new(id, limit.unwrap_or_else(|| stand_in(style)))
    }

    fn band_id<'n>(&mut self, node: &'n Node) -> &'n str {
        match node.text("a band's `id`", self.faults) {
            Some("") => {
                self.faults
                    .add(node.position, "a band's `id` must not be empty");
                FAULTY_ID
            }
            Some(id) => id,
            None => FAULTY_ID,
        }
    }

    /// Reads the numbers of a band, which come in one of three forms: with a window, a rate
    /// or a calendar.
    fn band_limit(&mut self, nodes: &BandNodes<'_>, style: &BandStyle) -> Option<Limit> {
        if style.algorithm == Algorithm::Concurrency {
            return self.slots(nodes, style);
        }
        let (form, needed, others) = match (nodes.get("rate"), nodes.get("calendar")) {
            (Some(_), _) => (
                "a `rate`",
                &["rate"][..],
                &[
                    "capacity",
                    "window",
                    "refill",
                    "period",
                    "calendar",
                    "time_zone",
                ][..],
            ),
            (None, Some(_)) => (
                "a `calendar`",
                &["capacity"][..],
                &["window", "refill", "period", "burst"][..],
            ),
            (None, None) => (
                "a `window`",
                &["capacity", "window"][..],
                &["burst", "time_zone"][..],
            ),
        };
        let before = self.faults.count();
        for field in others {
            if let Some(node) = nodes.get(field) {
                let message = match (*field, nodes.get("rate"), nodes.get("calendar")) {
                    ("burst", None, _) => "`burst` belongs to a `rate`".to_owned(),
                    ("time_zone", _, None) => "`time_zone` belongs to a `calendar`".to_owned(),
                    _ => format!("a band with {form} has no `{field}`"),
                };
                self.faults.add(node.position, message);
            }
        }
        if nodes.band.is_map() {
            for field in needed {
                if nodes.get(field).is_none() {
                    self.faults
                        .add(nodes.band.position, format!("a band needs a `{field}`"));
                }
            }
        }
        let limit = match (nodes.get("rate"), nodes.get("calendar")) {
            (Some(rate), _) => self.rate_limit(rate, nodes.get("burst"), style),
            (None, Some(calendar)) => self.calendar_limit(calendar, nodes, style),
            (None, None) => self.window_limit(nodes, style),
        };
        // What has a fault leaves nothing to check.
        let limit = limit.filter(|_| self.faults.count() == before)?;
        self.limit(limit.shape(style.shape), style, nodes)
    }

    /// Reads the number of slots, which is all that a band of concurrency has.
    fn slots(&mut self, nodes: &BandNodes<'_>, style: &BandStyle) -> Option<Limit> {
        let before = self.faults.count();
        for field in FIELDS.iter().skip(2) {
            if let Some(node) = nodes.get(field) {
                let message = format!("a band of concurrency has no `{field}`");
                self.faults.add(node.position, message);
            }
        }
        let Some(node) = nodes.get("capacity") else {
            self.faults
                .add(nodes.band.position, "a band needs a `capacity`");
            return None;
        };
        let capacity = self.units(node, "`capacity`")?;
        let limit = Limit::concurrency(capacity).hold(style.hold);
        let is_valid = self.faults.count() == before;
        is_valid.then(|| self.limit(limit.shape(style.shape), style, nodes))?
    }

    fn window_limit(&mut self, nodes: &BandNodes<'_>, style: &BandStyle) -> Option<LimitBuilder> {
        let capacity = nodes
            .get("capacity")
            .map(|node| self.units(node, "`capacity`"));
        let refill = nodes.get("refill").map(|node| self.units(node, "`refill`"));
        let mut span =
            |node: Option<&Node>, what| node.map(|node| values::duration(node, what, self.faults));
        let (window, period) = (
            span(nodes.get("window"), "`window`"),
            span(nodes.get("period"), "`period`"),
        );
        let mut limit = Limit::builder(style.algorithm, capacity??, window??);
        if let Some(units) = refill {
            limit = limit.refill(units?);
        }
        if let Some(span) = period {
            limit = limit.period(span?);
        }
        Some(limit)
    }

    fn rate_limit(
        &mut self,
        rate: &Node,
        burst: Option<&Node>,
        style: &BandStyle,
    ) -> Option<LimitBuilder> {
        let rate = self.rate(rate);
        let Some(node) = burst else {
            let (units, window) = rate?;
            return Some(Limit::builder(style.algorithm, units, window));
        };
        let capacity = self.units(node, "`burst`");
        if !style.algorithm.is_bucket() {
            let message = "`burst` belongs to token_bucket and leaky_bucket only";
            self.faults.add(node.position, message);
        }
        let (units, period) = rate?;
        let limit = Limit::builder(style.algorithm, capacity?, period);
        Some(limit.refill(units).period(period))
    }

    fn calendar_limit(
        &mut self,
        calendar: &Node,
        nodes: &BandNodes<'_>,
        style: &BandStyle,
    ) -> Option<LimitBuilder> {
        let capacity = nodes
            .get("capacity")
            .map(|node| self.units(node, "`capacity`"));
        let unit = calendar.one_of("`calendar`", &CalendarUnit::NAMES, self.faults);
        let time_zone = nodes
            .get("time_zone")
            .map(|node| {
                let name = node.text("`time_zone`", self.faults)?;
                let zone = name.parse::<TimeZone>();
                zone.map_err(|error| self.faults.add(node.position, error.to_string()))
                    .ok()
            })
            .unwrap_or(Some(TimeZone::UTC));
        let calendar = Calendar::new(unit?).in_time_zone(time_zone?);
        let mut limit = Limit::calendar(capacity??, calendar);
        if style.is_known {
            limit.algorithm = style.algorithm;
        }
        Some(limit)
    }

    fn units(&mut self, node: &Node, what: &str) -> Option<u64> {
        let units = node.whole(what, 1, MAX_UNITS as i64, self.faults)?;
        u64::try_from(units).ok()
    }

    /// Reads a rate: units and a window, such as `100/m`.
    fn rate(&mut self, node: &Node) -> Option<(u64, Duration)> {
        let rate = node.as_text().and_then(values::parse_rate);
        if rate.is_none() {
            let given = node
                .as_text()
                .map_or_else(|| node.kind().into(), |it| format!("`{it}`"));
            let message = format!(
                "{given} is not a rate; write 1 to {MAX_UNITS} units and a window of 1ms to \
                 366d, such as 10/s, 100/m or 5/15m"
            );
            self.faults.add(node.position, message);
        }
        rate
    }

    fn limit(
        &mut self,
        limit: LimitBuilder,
        style: &BandStyle,
        nodes: &BandNodes<'_>,
    ) -> Option<Limit> {
        let error = match limit.build() {
            Ok(limit) => return Some(limit),
            Err(error) => error,
        };
        let at = match &error {
            LimitError::ShapeOnOther | LimitError::ShapeAndWait => Some(style.shape_at),
            LimitError::CalendarOnOther => nodes.get("calendar").map(|node| node.position),
            LimitError::Units { field, .. }
            | LimitError::Span { field }
            | LimitError::NotABucket { field } => nodes.get(field.name()).map(|node| node.position),
            LimitError::FillTooLong | LimitError::Hold | LimitError::WaitForSlots => None,
        };
        let at = at.unwrap_or(nodes.band.position);
        self.faults.add(at, error.to_string());
        None
    }

    pub(super) fn identity(&mut self, node: &Node) -> Option<Vec<Box<str>>> {
        let values: Option<Vec<_>> = match &node.value {
            Value::List(_) => {
                let nodes = node.list("`identity`", self.faults).iter();
                let texts = nodes.map(|node| node.text("a value of `identity`", self.faults));
                texts.map(|text| text.map(Into::into)).collect()
            }
            _ => node
                .text("`identity`", self.faults)
                .map(|value| vec![value.into()]),
        };
        values.filter(|values| !values.is_empty())
    }
}

/// Returns a limit in place of one that has a fault.
fn stand_in(style: &BandStyle) -> Limit {
    let limit = Limit::builder(style.algorithm, 1, Duration::from_secs(1));
    let shaped = limit.clone().shape(style.shape).build();
    // One unit, for a second, is a limit of every algorithm.
    shaped.or_else(|_| limit.build()).expect("a valid limit")
}

/// The fields of a band.
const FIELDS: [&str; 9] = [
    "id",
    "capacity",
    "window",
    "refill",
    "period",
    "rate",
    "burst",
    "calendar",
    "time_zone",
];

/// A band and its fields, in the order of [`FIELDS`].
struct BandNodes<'n> {
    band: &'n Node,
    fields: [Option<&'n Node>; FIELDS.len()],
}

impl<'n> BandNodes<'n> {
    fn get(&self, field: &str) -> Option<&'n Node> {
        let index = FIELDS.iter().position(|known| *known == field)?;
        self.fields[index]
    }
}
