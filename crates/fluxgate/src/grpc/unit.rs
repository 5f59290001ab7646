//! Windows as Envoy names them.

use fluxgate_core::Micros;

use super::messages::Unit;

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// What Envoy takes a month and a year for.
const MONTH: u64 = 30 * DAY;
const YEAR: u64 = 365 * DAY;

/// The unit that a window is exactly one of.
pub(super) fn of(window: Micros) -> Unit {
    match window.get() {
        SECOND => Unit::Second,
        MINUTE => Unit::Minute,
        HOUR => Unit::Hour,
        DAY => Unit::Day,
        MONTH => Unit::Month,
        YEAR => Unit::Year,
        _ => Unit::Unknown,
    }
}
