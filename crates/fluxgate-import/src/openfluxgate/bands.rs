//! The bands of a rule document.

use fluxgate_core::internals::yaml::{Faults, Node};

use crate::draft::{Algorithm, Band, MAX_UNITS, MAX_WINDOW_MS, Remark};
use crate::fields::{Fields, whole};
use crate::names::band_id;

/// The fields of a band.
const READ: [&str; 7] = [
    "windowSeconds",
    "window",
    "capacity",
    "label",
    "algorithm",
    "quotaPeriod",
    "zoneId",
];

/// Bands with one algorithm. A rule of FluxGate has only one, so a document with several
/// becomes several rules, which apply together.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) algorithm: Algorithm,
    pub(super) bands: Vec<Band>,
    pub(super) remarks: Vec<Remark>,
}

impl Part {
    /// Returns the end of a rule's id.
    pub(super) fn suffix(&self) -> &'static str {
        match self.algorithm {
            Algorithm::FixedWindow => "-fixed",
            Algorithm::SlidingWindow => "-sliding",
            _ => "-bucket",
        }
    }
}

/// Reads bands, and groups them by their algorithm.
pub(super) fn read(nodes: &[Node], lost: &mut Vec<Remark>, faults: &mut Faults) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for node in nodes {
        let fields = Fields::read(node, "a band", faults);
        let mut remarks = fields.unread("a band", &READ, &[]);
        let Some((algorithm, band)) = band(&fields, &mut remarks, faults) else {
            lost.append(&mut remarks);
            continue;
        };
        let index = parts.iter().position(|part| part.algorithm == algorithm);
        let index = index.unwrap_or_else(|| {
            parts.push(Part {
                algorithm,
                bands: Vec::new(),
                remarks: Vec::new(),
            });
            parts.len() - 1
        });
        let part = &mut parts[index];
        part.bands.push(band);
        part.remarks.append(&mut remarks);
    }
    parts
}

fn band(
    fields: &Fields<'_>,
    remarks: &mut Vec<Remark>,
    faults: &mut Faults,
) -> Option<(Algorithm, Band)> {
    let line = fields.position.line;
    let algorithms = [
        ("TOKEN_BUCKET", Algorithm::TokenBucket),
        ("SLIDING_WINDOW", Algorithm::SlidingWindow),
        ("FIXED_WINDOW", Algorithm::FixedWindow),
    ];
    let algorithm = fields.get("algorithm");
    let algorithm = algorithm.filter(|node| node.as_text() != Some(""));
    let algorithm = match algorithm {
        Some(node) => node.one_of("`algorithm`", &algorithms, faults)?,
        None => Algorithm::TokenBucket,
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
    let periods = [("DAILY", "day"), ("WEEKLY", "week"), ("MONTHLY", "month")];
    let period = fields.get("quotaPeriod");
    let period = period.and_then(|node| node.one_of("`quotaPeriod`", &periods, faults));
    let mut band = match period.filter(|_| algorithm == Algorithm::FixedWindow) {
        Some(unit) => {
            let zone = fields.text("zoneId", faults).unwrap_or("UTC");
            Band::calendar(capacity, unit, time_zone(zone, fields, faults)?)
        }
        None if window > MAX_WINDOW_MS => {
            let text = format!("{capacity} units per {window} ms: a window has at most 366 d");
            remarks.push(Remark::lost(line, text));
            return None;
        }
        None => Band::new(capacity, window),
    };
    if algorithm == Algorithm::SlidingWindow {
        let text = "the window slides smoothly, not by sub-windows";
        remarks.push(Remark::changed(line, text));
    }
    band.id = fields.text("label", faults).and_then(band_id);
    Some((algorithm, band))
}

/// Reads `windowSeconds`, or `window` as an ISO 8601 duration, into milliseconds.
fn window(fields: &Fields<'_>, faults: &mut Faults) -> Option<u64> {
    if let Some(node) = fields.get("windowSeconds") {
        let seconds = number(node, "windowSeconds", faults)?;
        return Some(seconds.saturating_mul(1_000));
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

/// Returns the milliseconds of a duration such as `PT1H30M`.
fn iso_duration(text: &str) -> Option<u64> {
    let mut rest = text.strip_prefix("PT")?;
    let mut total = 0_u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().ok()?;
        let unit = match rest.as_bytes().get(digits)? {
            b'H' => 3_600_000,
            b'M' => 60_000,
            b'S' => 1_000,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = &rest[digits + 1..];
    }
    Some(total).filter(|total| *total > 0)
}

/// Reads a number, which MongoDB may write as `{ "$numberLong": "60" }`.
fn number(node: &Node, name: &str, faults: &mut Faults) -> Option<u64> {
    let what = format!("`{name}`");
    let Some((kind, _, inner)) = extended(node) else {
        return whole(node, &what, (1, u64::MAX), faults);
    };
    match kind {
        "$numberLong" | "$numberInt" | "$numberDouble" => {
            whole(inner, &what, (1, u64::MAX), faults)
        }
        _ => whole(node, &what, (1, u64::MAX), faults),
    }
}

fn extended(node: &Node) -> Option<(&str, &Node, &Node)> {
    let pairs = node.map("a number", &mut Faults::default());
    match pairs.as_slice() {
        [pair] => Some(*pair),
        _ => None,
    }
}

/// Returns the IANA name of a Java zone id.
fn time_zone<'n>(zone: &'n str, fields: &Fields<'_>, faults: &mut Faults) -> Option<&'n str> {
    if matches!(zone, "" | "Z" | "UTC" | "GMT" | "UT" | "Etc/UTC") {
        return Some("UTC");
    }
    let is_letter =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'/');
    let is_name = zone.contains('/') && zone.bytes().all(is_letter);
    if !is_name {
        let at = fields
            .get("zoneId")
            .map_or(fields.position, |node| node.position);
        faults.add(
            at,
            format!("`{zone}` is not the name of a time zone such as Asia/Seoul"),
        );
    }
    is_name.then_some(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso_durations() {
        assert_eq!(iso_duration("PT1M"), Some(60_000));
        assert_eq!(iso_duration("PT1H30M"), Some(5_400_000));
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
