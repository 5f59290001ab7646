//! The bands of a rule, and the identities of its overrides.

use std::time::Duration;

use super::rule::{BandStyle, RuleReader};
use crate::band::Band;
use crate::limit::{Limit, LimitBuilder, LimitError, LimitField, MAX_UNITS};
use crate::rules::rule::push_band;
use crate::rules::values;
use crate::yaml::{Faults, Node, Position, Value};

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
        let [id, capacity, window, refill, period] = node.fields(
            "a band",
            ["id", "capacity", "window", "refill", "period"],
            self.faults,
        );
        let id = match id {
            Some(node) => match node.text("a band's `id`", self.faults) {
                Some("") => {
                    self.faults
                        .add(node.position, "a band's `id` must not be empty");
                    FAULTY_ID
                }
                Some(id) => id,
                None => FAULTY_ID,
            },
            None => "",
        };
        if node.is_map() {
            for (field, given) in [("capacity", capacity), ("window", window)] {
                if given.is_none() {
                    self.faults
                        .add(node.position, format!("a band needs a `{field}`"));
                }
            }
        }
        let units_of = |faults: &mut Faults, node: Option<&Node>, what: &str| {
            let units = node.map(|node| node.whole(what, 1, MAX_UNITS as i64, faults));
            units.map(|units| units.and_then(|units| u64::try_from(units).ok()))
        };
        let span_of = |faults: &mut Faults, node: Option<&Node>, what: &str| {
            node.map(|node| values::duration(node, what, faults))
        };
        let numbers = (
            units_of(self.faults, capacity, "`capacity`"),
            units_of(self.faults, refill, "`refill`"),
            span_of(self.faults, window, "`window`"),
            span_of(self.faults, period, "`period`"),
        );
        // A number that is given and has a fault leaves nothing to check.
        let limit = match numbers {
            (_, Some(None), ..) | (.., Some(None)) => None,
            (Some(Some(capacity)), refill, Some(Some(window)), period) => {
                let mut limit = Limit::builder(style.algorithm, capacity, window);
                if let Some(units) = refill.flatten() {
                    limit = limit.refill(units);
                }
                if let Some(span) = period.flatten() {
                    limit = limit.period(span);
                }
                Some(limit.shape(style.shape))
            }
            _ => None,
        };
        let position = |node: Option<&Node>| node.map(|node| node.position);
        let positions = BandPositions {
            band: node.position,
            capacity: position(capacity),
            refill: position(refill),
            period: position(period),
        };
        let limit = limit.and_then(|limit| self.limit(limit, style, &positions));
        Band::new(id, limit.unwrap_or_else(|| stand_in(style)))
    }

    fn limit(
        &mut self,
        limit: LimitBuilder,
        style: &BandStyle,
        positions: &BandPositions,
    ) -> Option<Limit> {
        let error = match limit.build() {
            Ok(limit) => return Some(limit),
            Err(error) => error,
        };
        let at = match &error {
            LimitError::ShapeOnOther | LimitError::ShapeAndWait => Some(style.shape_at),
            LimitError::Units { field, .. }
            | LimitError::Span { field }
            | LimitError::NotABucket { field } => match field {
                LimitField::Capacity => positions.capacity,
                LimitField::Refill => positions.refill,
                LimitField::Period => positions.period,
                _ => None,
            },
            LimitError::FillTooLong => None,
        };
        let at = at.unwrap_or(positions.band);
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
    // One unit a second is a limit of every algorithm.
    shaped.or_else(|_| limit.build()).expect("a valid limit")
}

/// The positions of a band's numbers.
struct BandPositions {
    band: Position,
    capacity: Option<Position>,
    refill: Option<Position>,
    period: Option<Position>,
}
