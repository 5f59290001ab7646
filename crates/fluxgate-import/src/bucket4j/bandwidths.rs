//! Bandwidths.

use std::time::Duration;

use fluxgate_core::Algorithm;
use fluxgate_core::yaml::Faults;

use crate::draft::{BandDraft, MAX_UNITS, MAX_WINDOW, Remark, largest_capacity};
use crate::fields::{Fields, whole_number};
use crate::names::{band_id, band_id_remark};

/// A bandwidth.
#[derive(Debug)]
pub(super) struct Bandwidth {
    pub(super) band: BandDraft,
    /// Whether all units return at once.
    pub(super) is_window: bool,
    pub(super) line: usize,
}

/// The units of `java.time.temporal.ChronoUnit` and their lengths in milliseconds.
const UNITS: [(&str, u64); 7] = [
    ("millis", 1),
    ("seconds", 1_000),
    ("minutes", 60_000),
    ("hours", 3_600_000),
    ("half_days", 43_200_000),
    ("days", 86_400_000),
    ("weeks", 7 * 86_400_000),
];

/// The fields of a bandwidth.
const READ: &str = "id capacity time unit refillcapacity initialcapacity refillspeed \
    fixedrefillinterval";

impl Bandwidth {
    pub(super) fn read(
        fields: &Fields<'_>,
        remarks: &mut Vec<Remark>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let line = fields.position.line;
        remarks.extend(fields.unread("a bandwidth", &[READ]));
        let number = |name: &str, shown: &str, faults: &mut Faults| {
            let node = fields.get(name)?;
            let number = whole_number(node, &format!("`{shown}`"), 1..=u64::MAX, faults);
            Some((number, node.position.line))
        };
        let capacity = number("capacity", "capacity", faults);
        let time = number("time", "time", faults);
        let refill = number("refillcapacity", "refill-capacity", faults);
        let initial = number("initialcapacity", "initial-capacity", faults);
        let unit = fields.get("unit").map(|unit| {
            let written = unit.as_text().unwrap_or_default();
            let given = written.to_ascii_lowercase().replace('-', "_");
            match UNITS.iter().find(|(name, _)| *name == given) {
                Some((_, length)) => Some(*length),
                None => unit.one_of("`unit`", &UNITS, faults),
            }
        });
        let (Some((capacity, _)), Some((time, _)), Some(unit)) = (capacity, time, unit) else {
            let text = "a bandwidth needs `capacity`, `time` and `unit`";
            faults.add(fields.position, text);
            return None;
        };
        let (capacity, millis) = (capacity?, time?.saturating_mul(unit?));
        let window = Duration::from_millis(millis);
        let refill = refill.and_then(|(refill, _)| refill).unwrap_or(capacity);
        if let Some((Some(initial), line)) = initial
            && initial != capacity
        {
            let text = format!("`initial-capacity: {initial}`: buckets start full");
            remarks.push(Remark::lost(line, text));
        }
        if window > MAX_WINDOW {
            let text = "a bandwidth whose time is longer than 366 days";
            remarks.push(Remark::lost(line, text));
            return None;
        }
        let allowed_refill = refill.min(MAX_UNITS);
        let most = largest_capacity(allowed_refill, window);
        if capacity > most || refill > MAX_UNITS {
            let text = format!("a capacity of {capacity} is reduced to {most}, the maximum");
            remarks.push(Remark::changed(line, text));
        }
        let mut band = BandDraft::new(capacity.min(most), window);
        band.refill = (allowed_refill != band.capacity).then_some(allowed_refill);
        if let Some(id) = fields.text("id", faults) {
            band.id = band_id(id);
            remarks.extend(band_id_remark(id, line));
        }
        let is_interval = is_interval(fields, faults);
        if is_interval && band.refill.is_some() {
            let text = "the interval refill of a part of the capacity is continuous";
            remarks.push(Remark::changed(line, text));
        }
        Some(Self {
            is_window: is_interval && band.refill.is_none(),
            band,
            line,
        })
    }

    /// Returns a remark on how an interval refill changes, if this is one.
    pub(super) fn remark(&self, algorithm: Algorithm) -> Option<Remark> {
        let text = match algorithm {
            _ if !self.is_window => return None,
            Algorithm::FixedWindow => {
                "intervals begin at fixed times, not with the first request of a key"
            }
            _ => "the interval refill is continuous: a rule has one algorithm for all bands",
        };
        Some(Remark::changed(self.line, text))
    }
}

/// Returns whether the refill happens at the end of an interval.
fn is_interval(fields: &Fields<'_>, faults: &mut Faults) -> bool {
    let speeds = [
        ("greedy", false),
        ("interval", true),
        ("GREEDY", false),
        ("INTERVAL", true),
    ];
    if let Some(speed) = fields.get("refillspeed")
        && let Some(is_interval) = speed.one_of("`refill-speed`", &speeds, faults)
    {
        return is_interval;
    }
    // The older setting.
    let interval = fields.get("fixedrefillinterval");
    interval.is_some_and(|node| node.as_text() != Some("0"))
}
