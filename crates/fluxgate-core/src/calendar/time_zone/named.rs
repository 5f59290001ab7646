//! The zones of the bundled database.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

/// A zone of the database. Those that were used stay in memory: they are some hundred at
/// most.
pub(super) struct NamedZone {
    name: Box<str>,
    zone: TimeZone,
}

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

static USED: Mutex<BTreeMap<&'static str, &'static NamedZone>> = Mutex::new(BTreeMap::new());

impl NamedZone {
    /// Returns the zone of exactly this name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        // A panic in another thread leaves nothing half-written.
        let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = used.get(name) {
            return Some(known);
        }
        let zone = DATABASE.get(name).ok()?;
        // The database ignores case, and has entries that are no time zone.
        if zone.iana_name() != Some(name) || zone.is_unknown() {
            return None;
        }
        let name = name.into();
        let named: &'static Self = Box::leak(Box::new(Self { name, zone }));
        used.insert(&named.name, named);
        Some(named)
    }

    pub(super) fn name(&'static self) -> &'static str {
        &self.name
    }

    pub(super) fn offset_at(&self, seconds: i64) -> i64 {
        self.zone.to_offset(timestamp(seconds)).seconds().into()
    }

    pub(super) fn transitions_after(&self, seconds: i64) -> impl Iterator<Item = (i64, i64)> {
        let transitions = self.zone.following(timestamp(seconds));
        transitions.map(|it| (it.timestamp().as_second(), it.offset().seconds().into()))
    }
}

/// Returns an instant. One that is too late for the database becomes its last.
fn timestamp(seconds: i64) -> Timestamp {
    let nearest = match seconds {
        ..0 => Timestamp::MIN,
        _ => Timestamp::MAX,
    };
    Timestamp::from_second(seconds).unwrap_or(nearest)
}
