//! Instants and spans, in whole microseconds.

use std::fmt;
use std::time::Duration;

/// An instant: microseconds since the Unix epoch, up to the end of the year 9999.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The last instant there is: 9999-12-31T23:59:59.999999Z.
    pub const MAX: Self = Self(253_402_300_799_999_999);

    /// The instant `micros` after the epoch, if it is not past [`Timestamp::MAX`].
    pub const fn from_micros(micros: u64) -> Option<Self> {
        if micros <= Self::MAX.0 {
            Some(Self(micros))
        } else {
            None
        }
    }

    /// Like [`Timestamp::from_micros`], with what is past the end taken as the end.
    pub const fn saturating_from_micros(micros: u64) -> Self {
        match Self::from_micros(micros) {
            Some(timestamp) => timestamp,
            None => Self::MAX,
        }
    }

    /// Microseconds since the epoch.
    pub const fn micros(self) -> u64 {
        self.0
    }
}

/// A span of time in whole microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(u64);

impl Micros {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of `micros` microseconds.
    pub const fn new(micros: u64) -> Self {
        Self(micros)
    }

    /// A span of `millis` milliseconds, if it can be told in microseconds.
    pub const fn from_millis(millis: u64) -> Option<Self> {
        match millis.checked_mul(1000) {
            Some(micros) => Some(Self(micros)),
            None => None,
        }
    }

    /// A span that the standard library tells, rounded up to a microsecond.
    pub const fn from_duration(span: Duration) -> Self {
        let micros = span.as_nanos().div_ceil(1000);
        // Longer than any rule can say.
        Self(if micros > u64::MAX as u128 {
            u64::MAX
        } else {
            micros as u64
        })
    }

    /// The number of microseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Milliseconds, rounded up.
    pub const fn ceil_millis(self) -> u64 {
        self.0.div_ceil(1000)
    }

    /// Seconds, rounded up.
    pub const fn ceil_secs(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// Seconds, rounded up, as headers tell them that know whole seconds only: what
    /// is shorter than one is not told.
    pub const fn told_secs(self) -> Option<u64> {
        match self.0 {
            0..1_000_000 => None,
            _ => Some(self.ceil_secs()),
        }
    }

    /// The same span as the standard library tells it.
    pub const fn as_duration(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// How long until a refused request would pass. *Never* is longer than any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retry {
    /// After this long, if nothing else comes; zero for what passes now.
    After(Micros),
    /// It asks for more than the limit ever holds.
    Never,
}

impl Retry {
    /// What passes now.
    pub const NOW: Self = Self::After(Micros::ZERO);

    /// The wait, or `None` for never.
    pub const fn after(self) -> Option<Micros> {
        match self {
            Self::After(wait) => Some(wait),
            Self::Never => None,
        }
    }
}
