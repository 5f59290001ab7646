//! The bands of a rule.

use std::time::Duration;

use crate::band::Band;
use crate::calendar::{Calendar, CalendarUnit, TimeZone};
use crate::limit::{Algorithm, Limit, LimitBuilder, LimitError, MAX_UNITS};
use crate::rules::rule::push_band;
use crate::rules::values;
use crate::yaml::{Faults, Fields, Node, Position};

/// Replaces an id that has a fault. It is not valid either, but only the first fault of a
/// field is reported.
const FAULTY_ID: &str = "?";

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

/// What all bands of a rule have in common.
pub(super) struct BandStyle {
    pub(super) algorithm: Algorithm,
    /// Whether the algorithm is the one of the file, which has no fault.
    pub(super) is_known: bool,
    pub(super) shape: bool,
    pub(super) shape_at: Position,
    /// How long slots are held at most.
    pub(super) hold: Duration,
}

/// Reads the bands of a rule or of an override.
pub(super) fn read(node: &Node, style: &BandStyle, faults: &mut Faults) -> Vec<Band> {
    let mut bands = Vec::new();
    for node in node.list("`bands`", faults) {
        push_band(&mut bands, read_band(node, style, faults));
    }
    bands
}

fn read_band(node: &Node, style: &BandStyle, faults: &mut Faults) -> Band {
    if style.algorithm == Algorithm::Concurrency && !node.is_map() {
        let message = "a band of concurrency must be { capacity: N }, without a window";
        faults.add(node.position, message);
        return Band::new("", stand_in(style));
    }
    let is_rate = node.as_text().is_some();
    let fields = Some(node).filter(|_| !is_rate);
    let fields = Fields::read(fields, "a band", &FIELDS, faults);
    let mut reader = BandReader {
        node,
        fields,
        style,
        faults,
    };
    let id = reader.id();
    let limit = if is_rate {
        let limit = reader.rate_limit(node);
        limit.and_then(|limit| reader.limit(limit))
    } else {
        reader.band_limit()
    };
    Band::new(id, limit.unwrap_or_else(|| stand_in(style)))
}

struct BandReader<'n, 'r> {
    node: &'n Node,
    fields: Fields<'n>,
    style: &'r BandStyle,
    faults: &'r mut Faults,
}

impl<'n> BandReader<'n, '_> {
    fn get(&self, field: &str) -> Option<&'n Node> {
        self.fields.get(field)
    }

    fn id(&mut self) -> &'n str {
        let Some(node) = self.get("id") else {
            return "";
        };
        let id = node.text("a band's `id`", self.faults);
        if id == Some("") {
            let message = "a band's `id` must not be empty";
            self.faults.add(node.position, message);
        }
        id.filter(|id| !id.is_empty()).unwrap_or(FAULTY_ID)
    }

    /// Reads the numbers of a band, which come in one of three forms: with a window, a rate
    /// or a calendar.
    fn band_limit(&mut self) -> Option<Limit> {
        if self.style.algorithm == Algorithm::Concurrency {
            return self.slots();
        }
        let (rate, calendar) = (self.get("rate"), self.get("calendar"));
        let (form, needed, others): (_, &[_], &[_]) = match (rate, calendar) {
            (Some(_), _) => (
                "a `rate`",
                &["rate"],
                &[
                    "capacity",
                    "window",
                    "refill",
                    "period",
                    "calendar",
                    "time_zone",
                ],
            ),
            (None, Some(_)) => (
                "a `calendar`",
                &["capacity"],
                &["window", "refill", "period", "burst"],
            ),
            (None, None) => (
                "a `window`",
                &["capacity", "window"],
                &["burst", "time_zone"],
            ),
        };
        let before = self.faults.count();
        for field in others {
            if let Some(node) = self.get(field) {
                let message = match (*field, rate, calendar) {
                    ("burst", None, _) => "`burst` belongs to a `rate`".to_owned(),
                    ("time_zone", _, None) => "`time_zone` belongs to a `calendar`".to_owned(),
                    _ => format!("a band with {form} has no `{field}`"),
                };
                self.faults.add(node.position, message);
            }
        }
        for field in needed.iter().filter(|_| self.node.is_map()) {
            if self.get(field).is_none() {
                let message = format!("a band needs a `{field}`");
                self.faults.add(self.node.position, message);
            }
        }
        let limit = match (rate, calendar) {
            (Some(rate), _) => self.rate_limit(rate),
            (None, Some(calendar)) => self.calendar_limit(calendar),
            (None, None) => self.window_limit(),
        };
        // What has a fault leaves nothing to check.
        let limit = limit.filter(|_| self.faults.count() == before)?;
        self.limit(limit)
    }

    /// Reads the number of slots, which is all that a band of concurrency has.
    fn slots(&mut self) -> Option<Limit> {
        let before = self.faults.count();
        for field in FIELDS.iter().skip(2) {
            if let Some(node) = self.get(field) {
                let message = format!("a band of concurrency has no `{field}`");
                self.faults.add(node.position, message);
            }
        }
        if self.get("capacity").is_none() {
            let message = "a band needs a `capacity`";
            self.faults.add(self.node.position, message);
        }
        let limit = Limit::concurrency(self.units("capacity")??).hold(self.style.hold);
        let is_valid = self.faults.count() == before;
        is_valid.then(|| self.limit(limit))?
    }

    fn window_limit(&mut self) -> Option<LimitBuilder> {
        let (capacity, refill) = (self.units("capacity"), self.units("refill"));
        let (window, period) = (self.span("window"), self.span("period"));
        let mut limit = Limit::builder(self.style.algorithm, capacity??, window??);
        if let Some(units) = refill {
            limit = limit.refill(units?);
        }
        if let Some(span) = period {
            limit = limit.period(span?);
        }
        Some(limit)
    }

    /// Reads a rate, such as `100/m`, which may have a burst.
    fn rate_limit(&mut self, node: &Node) -> Option<LimitBuilder> {
        let algorithm = self.style.algorithm;
        let rate = self.rate(node);
        let Some(capacity) = self.units("burst") else {
            let (units, window) = rate?;
            return Some(Limit::builder(algorithm, units, window));
        };
        if !algorithm.is_bucket() {
            let at = self
                .get("burst")
                .map_or(node.position, |node| node.position);
            let message = "`burst` belongs to token_bucket and leaky_bucket only";
            self.faults.add(at, message);
        }
        let (units, period) = rate?;
        let limit = Limit::builder(algorithm, capacity?, period);
        Some(limit.refill(units).period(period))
    }

    fn calendar_limit(&mut self, calendar: &Node) -> Option<LimitBuilder> {
        let capacity = self.units("capacity");
        let unit = calendar.one_of("`calendar`", &CalendarUnit::NAMES, self.faults);
        let time_zone = match self.get("time_zone") {
            Some(node) => node.parsed("`time_zone`", self.faults),
            None => Some(TimeZone::UTC),
        };
        let calendar = Calendar::new(unit?).in_time_zone(time_zone?);
        let mut limit = Limit::calendar(capacity??, calendar);
        if self.style.is_known {
            limit.algorithm = self.style.algorithm;
        }
        Some(limit)
    }

    /// Reads units, if the field is given. They are `None` if they have a fault.
    fn units(&mut self, field: &str) -> Option<Option<u64>> {
        let node = self.get(field)?;
        let units = node.whole(&format!("`{field}`"), 1, MAX_UNITS as i64, self.faults);
        Some(units.and_then(|units| u64::try_from(units).ok()))
    }

    /// Reads a span, if the field is given. It is `None` if it has a fault.
    fn span(&mut self, field: &str) -> Option<Option<Duration>> {
        let node = self.get(field)?;
        Some(values::duration(node, &format!("`{field}`"), self.faults))
    }

    /// Reads the units and the window of a rate.
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

    fn limit(&mut self, limit: LimitBuilder) -> Option<Limit> {
        let error = match limit.shape(self.style.shape).build() {
            Ok(limit) => return Some(limit),
            Err(error) => error,
        };
        let at = match &error {
            LimitError::ShapeOnOther | LimitError::ShapeAndWait => Some(self.style.shape_at),
            LimitError::CalendarOnOther => self.get("calendar").map(|node| node.position),
            LimitError::Units { field, .. }
            | LimitError::Span { field }
            | LimitError::NotABucket { field } => self.get(field.name()).map(|node| node.position),
            LimitError::FillTooLong | LimitError::Hold | LimitError::WaitForSlots => None,
        };
        let at = at.unwrap_or(self.node.position);
        self.faults.add(at, error.to_string());
        None
    }
}

/// Returns a limit in place of one that has a fault.
fn stand_in(style: &BandStyle) -> Limit {
    let limit = Limit::builder(style.algorithm, 1, Duration::from_secs(1));
    let shaped = limit.clone().shape(style.shape).build();
    // One unit, for a second, is a limit of every algorithm.
    shaped.or_else(|_| limit.build()).expect("a valid limit")
}
