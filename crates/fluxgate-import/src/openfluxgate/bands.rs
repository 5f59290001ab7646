//! The bands of a rule document.

use std::time::Duration;

use fluxgate_core::yaml::{Faults, Node};
use fluxgate_core::{Algorithm, Calendar, CalendarUnit, TimeZone};

use crate::draft::{BandDraft, MAX_UNITS, MAX_WINDOW, Remark};
use crate::fields::{Fields, whole_number};
use crate::names::{band_id, band_id_remark};

/// The fields of a band.
const READ: &str = "windowSeconds window capacity label algorithm quotaPeriod zoneId";

/// Bands with one algorithm. A rule of FluxGate has only one, so a document with several
/// becomes several rules, which apply together.
#[derive(Debug)]
pub(super) struct AlgorithmBands {
    pub(super) algorithm: Algorithm,
    pub(super) bands: Vec<BandDraft>,
    pub(super) remarks: Vec<Remark>,
}

impl AlgorithmBands {
    /// Returns the end of a rule's id.
    pub(super) fn id_suffix(&self) -> &'static str {
        match self.algorithm {
            Algorithm::FixedWindow => "-fixed",
            Algorithm::SlidingWindow => "-sliding",
            _ => "-bucket",
        }
    }

    /// Returns no bands, for a rule whose bands are given elsewhere.
    pub(super) fn none() -> Self {
        Self {
            algorithm: Algorithm::TokenBucket,
            bands: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// Returns all bands as those of one rule, whose algorithm is given elsewhere.
    pub(super) fn joined(parts: Vec<Self>) -> Vec<Self> {
        let mut joined = Self::none();
        for part in parts {
            joined.bands.extend(part.bands);
            joined.remarks.extend(part.remarks);
        }
        vec![joined]
    }
}

/// Reads bands, and groups them by their algorithm.
pub(super) fn read(
    nodes: &[Node],
    lost: &mut Vec<Remark>,
    faults: &mut Faults,
) -> Vec<AlgorithmBands> {
    let mut parts: Vec<AlgorithmBands> = Vec::new();
    for node in nodes {
        let fields = Fields::read(node, "a band", faults);
        let mut remarks = fields.unread("a band", &[READ]);
        let Some((algorithm, mut band)) = band(&fields, &mut remarks, faults) else {
            lost.append(&mut remarks);
            continue;
        };
        let known = parts.iter().position(|part| part.algorithm == algorithm);
        let index = known.unwrap_or_else(|| {
            parts.push(AlgorithmBands {
                algorithm,
                bands: Vec::new(),
                remarks: Vec::new(),
            });
            parts.len() - 1
        });
        let part = &mut parts[index];
        remarks.extend(band.drop_repeated_id(&part.bands, fields.position.line));
        part.bands.push(band);
        part.remarks.append(&mut remarks);
    }
    parts
}

fn band(
    fields: &Fields<'_>,
    remarks: &mut Vec<Remark>,
    faults: &mut Faults,
) -> Option<(Algorithm, BandDraft)> {
    let line = fields.position.line;
    let algorithms = [
        ("TOKEN_BUCKET", Algorithm::TokenBucket),
        ("SLIDING_WINDOW", Algorithm::SlidingWindow),
        ("FIXED_WINDOW", Algorithm::FixedWindow),
    ];
    let algorithm = match fields.get("algorithm") {
        Some(node) if node.as_text() != Some("") => {
            node.one_of("`algorithm`", &algorithms, faults)?
        }
        _ => Algorithm::TokenBucket,
    };
    let Some(capacity) = fields.get("capacity") else {
        faults.add(fields.position, "a band needs a `capacity`");
        return None;
    };
    let capacity = number(capacity, "capacity", faults);
    let window = window(fields, faults);
    let (capacity, window) = (capacity?, window?);
    if capacity > MAX_UNITS {
        let text = format!("a capacity of {capacity} is reduced to {MAX_UNITS}, the maximum");
        remarks.push(Remark::changed(line, text));
    }
    let capacity = capacity.min(MAX_UNITS);
    let periods = [
        ("DAILY", CalendarUnit::Day),
        ("WEEKLY", CalendarUnit::Week),
        ("MONTHLY", CalendarUnit::Month),
    ];
    let period = fields.one_of("quotaPeriod", &periods, faults);
    let mut band = match period.filter(|_| algorithm == Algorithm::FixedWindow) {
        Some(unit) => {
            let zone = time_zone(fields, faults)?;
            BandDraft::calendar(capacity, Calendar::new(unit).in_time_zone(zone))
        }
        None if window > MAX_WINDOW => {
            let millis = window.as_millis();
            let text = format!("{capacity} units per {millis} ms: a window has at most 366 d");
            remarks.push(Remark::lost(line, text));
            return None;
        }
        None => BandDraft::new(capacity, window),
    };
    if algorithm == Algorithm::SlidingWindow {
        let text = "the window slides smoothly, not by sub-windows";
        remarks.push(Remark::changed(line, text));
    }
    if let Some(label) = fields.text("label", faults) {
        band.id = band_id(label);
        remarks.extend(band_id_remark(label, fields.line("label")));
    }
    Some((algorithm, band))
}

/// Reads `windowSeconds`, or `window` as an ISO 8601 duration.
fn window(fields: &Fields<'_>, faults: &mut Faults) -> Option<Duration> {
    if let Some(node) = fields.get("windowSeconds") {
        return number(node, "windowSeconds", faults).map(Duration::from_secs);
    }
    let Some(node) = fields.get("window") else {
        faults.add(fields.position, "a band needs `windowSeconds`");
        return None;
    };
    let found = node.as_text().and_then(iso_duration);
    if found.is_none() {
        let text = "`window` must be a duration such as PT1S, PT1M or PT1H";
        faults.add(node.position, text);
    }
    found
}

/// Parses a duration such as `PT1H30M`, in whole hours, minutes and seconds.
fn iso_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix("PT")?;
    let mut seconds = 0_u64;
    while !rest.is_empty() {
        let (digits, after) = rest.split_at(rest.find(|char: char| !char.is_ascii_digit())?);
        let number: u64 = digits.parse().ok()?;
        let unit = match after.as_bytes()[0] {
            b'H' => 3_600,
            b'M' => 60,
            b'S' => 1,
            _ => return None,
        };
        seconds = seconds.checked_add(number.checked_mul(unit)?)?;
        rest = &after[1..];
    }
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Reads a number, which MongoDB may write as `{ "$numberLong": "60" }`.
fn number(node: &Node, name: &str, faults: &mut Faults) -> Option<u64> {
    let pairs = node.map("a number", &mut Faults::default());
    let number = match pairs.as_slice() {
        [("$numberLong" | "$numberInt" | "$numberDouble", _, number)] => number,
        _ => node,
    };
    whole_number(number, &format!("`{name}`"), 1..=u64::MAX, faults)
}

/// Reads `zoneId`, a zone id of Java.
fn time_zone(fields: &Fields<'_>, faults: &mut Faults) -> Option<TimeZone> {
    let Some(node) = fields.get("zoneId") else {
        return Some(TimeZone::UTC);
    };
    let zone = node.text("`zoneId`", faults)?;
    if matches!(zone, "" | "Z" | "UTC" | "GMT" | "UT" | "Etc/UTC") {
        return Some(TimeZone::UTC);
    }
    let found = zone.parse().ok();
    if found.is_none() {
        let text = format!("`{zone}` is not the name of a time zone such as Asia/Seoul");
        faults.add(node.position, text);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso_durations() {
        assert_eq!(iso_duration("PT1M"), Some(Duration::from_secs(60)));
        assert_eq!(iso_duration("PT1H30M"), Some(Duration::from_secs(5_400)));
        for text in [
            "",
            "PT",
            "P1D",
            "PTxS",
            "PT1",
            "PT0S",
            "PT99999999999999999999S",
        ] {
            assert_eq!(iso_duration(text), None, "{text}");
        }
    }
}
