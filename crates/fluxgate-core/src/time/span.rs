//! Instants and spans, in whole microseconds.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An instant: microseconds since the Unix epoch, up to the end of the year 9999.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The last instant: 9999-12-31T23:59:59.999999Z.
    pub const MAX: Self = Self(253_402_300_799_999_999);

    /// Returns the instant `micros` after the epoch, unless it is past [`Timestamp::MAX`].
    pub const fn from_micros(micros: u64) -> Option<Self> {
        if micros <= Self::MAX.0 {
            Some(Self(micros))
        } else {
            None
        }
    }

    /// Returns the instant `micros` after the epoch, or [`Timestamp::MAX`] if it is later.
    pub const fn saturating_from_micros(micros: u64) -> Self {
        match Self::from_micros(micros) {
            Some(timestamp) => timestamp,
            None => Self::MAX,
        }
    }

    /// Returns the instant `micros` later. The caller knows that it is not past
    /// [`Timestamp::MAX`].
    #[cfg(feature = "fast-clock")]
    pub(crate) const fn plus(self, micros: u64) -> Self {
        debug_assert!(self.0 + micros <= Self::MAX.0, "past the last instant");
        Self(self.0 + micros)
    }

    /// Reads the clock of the operating system.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the wall clock"
    )]
    pub(crate) fn of_system_clock() -> Self {
        SystemTime::now().into()
    }

    /// Returns the microseconds since the epoch.
    pub const fn micros(self) -> u64 {
        self.0
    }
}

/// An instant before 1970 becomes the epoch, one after the year 9999 its end. Fractions of
/// a microsecond are cut off.
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let micros = u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX);
        Self::saturating_from_micros(micros)
    }
}

impl From<Timestamp> for SystemTime {
    fn from(timestamp: Timestamp) -> Self {
        UNIX_EPOCH + Duration::from_micros(timestamp.0)
    }
}

/// A span of time in whole microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(u64);

impl Micros {
    /// The empty span.
    pub const ZERO: Self = Self(0);

    /// Creates a span of `micros` microseconds.
    pub const fn new(micros: u64) -> Self {
        Self(micros)
    }

    /// Creates a span of `millis` milliseconds, unless it overflows.
    pub const fn from_millis(millis: u64) -> Option<Self> {
        match millis.checked_mul(1000) {
            Some(micros) => Some(Self(micros)),
            None => None,
        }
    }

    /// Converts a [`Duration`], rounded up to a microsecond. A span that overflows
    /// is longer than any rule allows and becomes the longest one.
    pub const fn from_duration(span: Duration) -> Self {
        let micros = span.as_nanos().div_ceil(1000);
        Self(if micros > u64::MAX as u128 {
            u64::MAX
        } else {
            micros as u64
        })
    }

    /// Returns the number of microseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the milliseconds, rounded up.
    pub const fn ceil_millis(self) -> u64 {
        self.0.div_ceil(1000)
    }

    /// Returns the seconds, rounded up.
    pub const fn ceil_secs(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// Converts to a [`Duration`].
    pub const fn as_duration(self) -> Duration {
        const SECOND: u64 = 1_000_000;
        if self.0 < SECOND {
            // Without a division. Below a thousand million.
            return Duration::new(0, self.0 as u32 * 1000);
        }
        Duration::from_micros(self.0)
    }
}

impl From<Micros> for Duration {
    fn from(span: Micros) -> Self {
        span.as_duration()
    }
}

/// Rounds up to a microsecond.
impl From<Duration> for Micros {
    fn from(span: Duration) -> Self {
        Self::from_duration(span)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// The time until a denied request would pass. `Never` is longer than any span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retry {
    /// After this span, if no other request comes; zero for a request that passes.
    After(Micros),
    /// The request costs more than the limit ever holds.
    Never,
}

impl Retry {
    /// The request passes now.
    pub const NOW: Self = Self::After(Micros::ZERO);

    /// Returns the wait, or `None` for never.
    pub const fn after(self) -> Option<Micros> {
        match self {
            Self::After(wait) => Some(wait),
            Self::Never => None,
        }
    }
}
