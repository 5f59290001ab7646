//! Time zones, by their names in the IANA database.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// A time zone of the IANA database, such as `Asia/Seoul`.
///
/// ```
/// use fluxgate_core::TimeZone;
///
/// let seoul: TimeZone = "Asia/Seoul".parse()?;
/// assert_eq!(seoul.name(), "Asia/Seoul");
/// assert!("Asia/Soul".parse::<TimeZone>().is_err());
/// # Ok::<_, fluxgate_core::UnknownTimeZone>(())
/// ```
///
/// The database is part of the program, so all instances of a release agree.
#[derive(Clone, Copy)]
pub struct TimeZone(Option<&'static NamedZone>);

/// A name that no time zone has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a time zone; write a name such as UTC, Asia/Seoul or America/New_York")]
pub struct UnknownTimeZone {
    name: String,
}

/// More than any zone is ahead of UTC or behind it, in seconds.
const MAX_OFFSET: i64 = 26 * 3_600;

impl TimeZone {
    /// Universal time.
    pub const UTC: Self = Self(None);

    const UTC_NAME: &'static str = "UTC";

    /// Returns the name.
    pub fn name(&self) -> &'static str {
        self.0.map_or(Self::UTC_NAME, NamedZone::name)
    }

    /// Returns the seconds that local time is ahead of UTC at an instant.
    pub(super) fn offset_at(self, seconds: i64) -> i64 {
        self.0.map_or(0, |zone| zone.offset_at(seconds))
    }

    /// Returns the instants after this one at which the offset may change, and the offset
    /// from then on.
    pub(super) fn transitions_after(self, seconds: i64) -> impl Iterator<Item = (i64, i64)> {
        let zone = self.0.into_iter();
        zone.flat_map(move |zone| zone.transitions_after(seconds))
    }

    /// Returns the first instant at which local time has reached this one, in seconds since
    /// the local epoch.
    pub(super) fn first_instant(self, local: i64) -> i64 {
        let mut from = local - MAX_OFFSET;
        let mut offset = self.offset_at(from);
        for (at, next) in self.transitions_after(from) {
            if local - offset < at {
                break;
            }
            (from, offset) = (at, next);
        }
        // A local time that is skipped has been reached once the clocks have moved.
        from.max(local - offset)
    }
}

impl FromStr for TimeZone {
    type Err = UnknownTimeZone;

    fn from_str(name: &str) -> Result<Self, UnknownTimeZone> {
        if name == Self::UTC_NAME {
            return Ok(Self::UTC);
        }
        let named = NamedZone::find(name);
        let unknown = || UnknownTimeZone { name: name.into() };
        named.map(|named| Self(Some(named))).ok_or_else(unknown)
    }
}

// There is one `NamedZone` of each name, and comparing the names is as good.
impl PartialEq for TimeZone {
    fn eq(&self, other: &Self) -> bool {
        match (self.0, other.0) {
            (Some(zone), Some(other)) => std::ptr::eq(zone, other),
            (zone, other) => zone.is_none() && other.is_none(),
        }
    }
}

impl Eq for TimeZone {}

impl Hash for TimeZone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimeZone({})", self.name())
    }
}

impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(feature = "time-zones")]
mod named;
#[cfg(feature = "time-zones")]
use named::NamedZone;

/// Without the feature there is no zone but UTC.
#[cfg(not(feature = "time-zones"))]
enum NamedZone {}

#[cfg(not(feature = "time-zones"))]
impl NamedZone {
    fn find(_: &str) -> Option<&'static Self> {
        None
    }

    fn name(&'static self) -> &'static str {
        match *self {}
    }

    fn offset_at(&self, _: i64) -> i64 {
        match *self {}
    }

    fn transitions_after(&self, _: i64) -> std::iter::Empty<(i64, i64)> {
        match *self {}
    }
}
