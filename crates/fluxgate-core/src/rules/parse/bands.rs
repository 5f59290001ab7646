//! The bands of a rule, and those of its overrides.

use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

use hashbrown::HashMap;

use super::{MAX_NAME, RuleReader};
use crate::decision::MISSING_KEY;
use crate::key::{self, KeyPart, SubjectBytes};
use crate::limit::{Algorithm, Field, Limit, LimitBuilder, LimitError, MAX_UNITS};
use crate::rules::Band;
use crate::yaml::{Faults, Node, Position, Value};

impl RuleReader<'_> {
    pub(super) fn bands(&mut self, node: &Node, style: &BandStyle) -> Vec<Band> {
        let mut bands: Vec<Band> = Vec::new();
        let mut ids = HashSet::new();
        for (index, node) in self.faults.list(node, "`bands`").iter().enumerate() {
            let Some((id, id_at, limit)) = self.band(index, node, style) else {
                continue;
            };
            if !ids.insert(id.clone()) {
                self.faults.add(
                    id_at,
                    format!("a band `{id}` stands in this rule already (without an `id`, a band is b0, b1, … by its position)"),
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
        let [id, capacity, window, refill, period] = self.faults.fields(
            node,
            "a band",
            ["id", "capacity", "window", "refill", "period"],
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
            node.and_then(|node| faults.whole(node, what, 1, MAX_UNITS as i64))
        };
        let capacity_units = units_of(self.faults, capacity, "`capacity`");
        let refill_units = units_of(self.faults, refill, "`refill`");
        let window_span = window.and_then(|node| self.faults.duration(node, "`window`"));
        let period_span = period.and_then(|node| self.faults.duration(node, "`period`"));
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
        let places = BandPlaces {
            band: node.position,
            capacity: capacity.map(|node| node.position),
            refill: refill.map(|node| node.position),
            period: period.map(|node| node.position),
        };
        let limit = self.limit(limit, style, &places);
        Some((id, id_at, limit))
    }

    fn limit(
        &mut self,
        limit: LimitBuilder,
        style: &BandStyle,
        places: &BandPlaces,
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
                        Field::Capacity => places.capacity,
                        Field::Refill => places.refill,
                        Field::Period => places.period,
                        _ => None,
                    },
                    LimitError::FillTooLong => None,
                };
                self.faults
                    .add(at.unwrap_or(places.band), error.to_string());
                None
            }
        }
    }

    fn band_id(&mut self, node: &Node) -> Option<String> {
        let id = self.faults.text(node, "a band's `id`")?;
        let starts_well = id
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric());
        let goes_on_well = id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
        if !starts_well || !goes_on_well || id.len() > MAX_NAME {
            self.faults.add(
                node.position,
                format!("`{id}` is no band id; allowed is [A-Za-z0-9][A-Za-z0-9_.-]* up to {MAX_NAME} characters"),
            );
            return None;
        }
        if id == MISSING_KEY {
            self.faults.add(
                node.position,
                format!("`{id}` is no band id: `RULE/{id}` tells of a key that is missing"),
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
        for node in self.faults.list(node, "`overrides`") {
            let [identity, bands] = self
                .faults
                .fields(node, "an override", ["identity", "bands"]);
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
                // The key itself is wrong, and that is noted.
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
                let nodes = self.faults.list(node, "`identity`");
                nodes
                    .iter()
                    .map(|node| self.faults.text(node, "a value of `identity`"))
                    .collect()
            }
            _ => self
                .faults
                .text(node, "`identity`")
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

/// What all bands of a rule have in common.
pub(super) struct BandStyle {
    /// `None` where the name is wrong, and that is noted.
    pub(super) algorithm: Option<Algorithm>,
    pub(super) shape: bool,
    pub(super) shape_at: Position,
    pub(super) max_wait: Option<Duration>,
}

/// Where the numbers of a band stand.
struct BandPlaces {
    band: Position,
    capacity: Option<Position>,
    refill: Option<Position>,
    period: Option<Position>,
}
