//! The order in which identities are listed.

use std::cmp::Ordering;

use fluxgate_core::store::Micros;
use fluxgate_http::Problem;
use serde_json::Value;

use crate::api::query;

/// A band of an identity.
pub(super) struct Row {
    /// Whether its units are slots.
    pub(super) is_slots: bool,
    pub(super) used_units: u64,
    pub(super) limit: u64,
    /// The units used within the last hour.
    pub(super) per_hour: u64,
    /// When nothing is left, if it goes on.
    pub(super) exhausted: Option<Micros>,
    /// As it is shown.
    pub(super) json: Value,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum UsageBy {
    /// Those that use the highest share.
    #[default]
    Share,
    /// Those that used most units within the last hour.
    Hour,
    /// Those that run out first, if they go on.
    Soon,
    /// Those that hold the highest share of their slots.
    Slots,
}

impl UsageBy {
    pub(super) fn read(text: &str) -> Result<Self, Problem> {
        Ok(match text {
            "share" => Self::Share,
            "hour" => Self::Hour,
            "soon" => Self::Soon,
            "slots" => Self::Slots,
            _ => return Err(query::expected("by", "share, hour, soon or slots", text)),
        })
    }

    pub(super) fn includes(self, row: &Row) -> bool {
        match self {
            Self::Share | Self::Hour => true,
            Self::Soon => row.exhausted.is_some() && !row.is_slots,
            Self::Slots => row.is_slots && row.used_units > 0,
        }
    }

    /// Returns which of two rows comes first. On a tie, the higher share and then the heavier use do.
    pub(super) fn compare(self, a: &Row, b: &Row) -> Ordering {
        let by_hour = b.per_hour.cmp(&a.per_hour);
        let first = match self {
            Self::Share | Self::Slots => Ordering::Equal,
            Self::Hour => by_hour,
            Self::Soon => a.exhausted.cmp(&b.exhausted),
        };
        first
            .then(share_of(b, a).cmp(&share_of(a, b)))
            .then(by_hour)
    }
}

/// Returns the used share of a row as a number that compares exactly with that of `other`.
fn share_of(row: &Row, other: &Row) -> u128 {
    u128::from(row.used_units) * u128::from(other.limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(used_units: u64, limit: u64, per_hour: u64, exhausted: Option<u64>) -> Row {
        Row {
            is_slots: false,
            used_units,
            limit,
            per_hour,
            exhausted: exhausted.map(Micros::new),
            json: Value::Null,
        }
    }

    /// Returns the limits of the rows that are listed, which are all different.
    fn listed(by: UsageBy) -> Vec<u64> {
        let mut rows = vec![
            row(5, 10, 7, Some(90)),
            row(9, 20, 9, None),
            row(30, 30, 7, Some(0)),
            Row {
                is_slots: true,
                ..row(4, 5, 1, None)
            },
            Row {
                is_slots: true,
                ..row(0, 3, 0, None)
            },
        ];
        rows.retain(|row| by.includes(row));
        rows.sort_by(|a, b| by.compare(a, b));
        rows.iter().map(|row| row.limit).collect()
    }

    #[test]
    fn rows_are_listed_by_share_use_or_when_they_run_out() {
        assert_eq!(listed(UsageBy::Share), [30, 5, 10, 20, 3]);
        assert_eq!(listed(UsageBy::Hour), [20, 30, 10, 5, 3]);
        assert_eq!(listed(UsageBy::Soon), [30, 10]);
        assert_eq!(listed(UsageBy::Slots), [5]);
    }
}
