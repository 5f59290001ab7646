//! The bands of a rule, and those of its overrides.

use std::collections::HashSet;
use std::ops::Range;

use hashbrown::HashMap;

use super::{BandStyle, MAX_NAME, RuleReader};
use crate::band::Band;
use crate::key::{self, KeyPart, SubjectBytes};
use crate::limit::{Field, Limit, LimitBuilder, LimitError, MAX_UNITS};
use crate::rules::values;
use crate::yaml::{Faults, Node, Position, Value};

impl RuleReader<'_> {
    pub(super) fn bands(&mut self, node: &Node, style: &BandStyle) -> Vec<Band> {
        let mut bands: Vec<Band> = Vec::new();
        let mut ids = HashSet::new();
        for (index, node) in node.list("`bands`", self.faults).iter().enumerate() {
            let Some((id, id_at, limit)) = self.band(index, node, style) else {
                continue;
            };
            if !ids.insert(id.clone()) {
                self.faults.add(
                    id_at,
                    format!("this rule already has a band `{id}` (without an `id`, a band is b0, b1, … by its position)"),
                );
            }
            bands.extend(limit.map(|limit| Band::new(&id, limit)));
        }
        bands
    }

    fn band(
        &mut self,
        index: usize,
        node: &Node,
        style: &BandStyle,
    ) -> Option<(String, Position, Option<Limit>)> {
        let [id, capacity, window, refill, period] = node.fields(
            "a band",
            ["id", "capacity", "window", "refill", "period"],
            self.faults,
        );
        if !node.is_map() {
            return None;
        }
        let id_at = id.map_or(node.position, |node| node.position);
        let id = match id {
            Some(node) => self.band_id(node)?,
            None => format!("b{index}"),
        };
        for (field, given) in [("capacity", capacity), ("window", window)] {
            if given.is_none() {
                self.faults
                    .add(node.position, format!("a band needs a `{field}`"));
            }
        }
        let before = self.faults.count();
        let units_of = |faults: &mut Faults, node: Option<&Node>, what: &str| {
            node.and_then(|node| node.whole(what, 1, MAX_UNITS as i64, faults))
        };
        let capacity_units = units_of(self.faults, capacity, "`capacity`");
        let refill_units = units_of(self.faults, refill, "`refill`");
        let window_span = window.and_then(|node| values::duration(node, "`window`", self.faults));
        let period_span = period.and_then(|node| values::duration(node, "`period`", self.faults));
        let (Some(algorithm), Some(capacity_units), Some(window_span)) =
            (style.algorithm, capacity_units, window_span)
        else {
            return Some((id, id_at, None));
        };
        if self.faults.count() > before {
            return Some((id, id_at, None));
        }
        let mut limit = Limit::builder(algorithm, capacity_units as u64, window_span);
        if let Some(units) = refill_units {
            limit = limit.refill(units as u64);
        }
        if let Some(span) = period_span {
            limit = limit.period(span);
        }
        let positions = BandPositions {
            band: node.position,
            capacity: capacity.map(|node| node.position),
            refill: refill.map(|node| node.position),
            period: period.map(|node| node.position),
        };
        let limit = self.limit(limit, style, &positions);
        Some((id, id_at, limit))
    }

    fn limit(
        &mut self,
        limit: LimitBuilder,
        style: &BandStyle,
        positions: &BandPositions,
    ) -> Option<Limit> {
        let mut limit = limit.shape(style.shape);
        if let Some(max_wait) = style.max_wait {
            limit = limit.max_wait(max_wait);
        }
        match limit.build() {
            Ok(limit) => Some(limit),
            Err(error) => {
                let at = match &error {
                    LimitError::ShapeOnOther | LimitError::ShapeAndWait => Some(style.shape_at),
                    LimitError::Units { field, .. }
                    | LimitError::Span { field }
                    | LimitError::NotABucket { field } => match field {
                        Field::Capacity => positions.capacity,
                        Field::Refill => positions.refill,
                        Field::Period => positions.period,
                        _ => None,
                    },
                    LimitError::FillTooLong => None,
                };
                self.faults
                    .add(at.unwrap_or(positions.band), error.to_string());
                None
            }
        }
    }

    fn band_id(&mut self, node: &Node) -> Option<String> {
        let id = node.text("a band's `id`", self.faults)?;
        let has_good_start = id
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric());
        let has_good_rest = id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
        if !has_good_start || !has_good_rest || id.len() > MAX_NAME {
            self.faults.add(
                node.position,
                format!("`{id}` is not a band id; allowed is [A-Za-z0-9][A-Za-z0-9_.-]* up to {MAX_NAME} characters"),
            );
            return None;
        }
        if id == Band::MISSING_KEY {
            self.faults.add(
                node.position,
                format!("`{id}` is not a band id: `RULE/{id}` reports a missing key"),
            );
            return None;
        }
        Some(id.to_owned())
    }

    pub(super) fn overrides(
        &mut self,
        node: &Node,
        key: Option<&[KeyPart]>,
        style: &BandStyle,
        all_bands: &mut Vec<Band>,
    ) -> HashMap<Box<[u8]>, Range<u32>> {
        let mut overrides = HashMap::new();
        for node in node.list("`overrides`", self.faults) {
            let [identity, bands] = node.fields("an override", ["identity", "bands"], self.faults);
            if !node.is_map() {
                continue;
            }
            let encoded = match (identity, key) {
                (None, _) => {
                    self.faults
                        .add(node.position, "an override needs an `identity`");
                    None
                }
                (Some(identity), Some(key)) => self.identity(identity, key),
                // The key has a fault, which has been reported.
                (Some(_), None) => None,
            };
            let bands = match bands {
                Some(bands) => self.bands(bands, style),
                None => {
                    self.faults.add(node.position, "an override needs `bands`");
                    Vec::new()
                }
            };
            let Some(encoded) = encoded else { continue };
            let start = all_bands.len() as u32;
            all_bands.extend(bands);
            let range = start..all_bands.len() as u32;
            if overrides.insert(encoded, range).is_some() {
                let at = identity.map_or(node.position, |node| node.position);
                self.faults
                    .add(at, "there is an override for this identity already");
            }
        }
        overrides
    }

    fn identity(&mut self, node: &Node, key: &[KeyPart]) -> Option<Box<[u8]>> {
        if key.is_empty() {
            self.faults.add(
                node.position,
                "a global rule has no identities that could be overridden",
            );
            return None;
        }
        let values: Option<Vec<&str>> = match &node.value {
            Value::List(_) => {
                let nodes = node.list("`identity`", self.faults);
                nodes
                    .iter()
                    .map(|node| node.text("a value of `identity`", self.faults))
                    .collect()
            }
            _ => node
                .text("`identity`", self.faults)
                .map(|value| vec![value]),
        };
        let values = values.filter(|values| !values.is_empty())?;
        let mut encoded = SubjectBytes::new();
        match key::encode_values(key, &values, self.options.ipv6_prefix, &mut encoded) {
            Ok(()) => Some(encoded.to_vec().into()),
            Err(error) => {
                self.faults.add(node.position, error.to_string());
                None
            }
        }
    }
}

/// The positions of a band's numbers.
struct BandPositions {
    band: Position,
    capacity: Option<Position>,
    refill: Option<Position>,
    period: Option<Position>,
}
