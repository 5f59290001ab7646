//! Clocks that differ.

/// A clock with an offset and a speed of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The virtual time at which it shows `start`.
    since: u64,
    start: u64,
    /// How much faster than virtual time it runs, in millionths; negative if it is slower.
    drift: i64,
}

impl Clock {
    pub(crate) fn new(since: u64, start: u64, drift: i64) -> Self {
        Self {
            since,
            start,
            drift,
        }
    }

    /// Returns its time at a virtual time, in microseconds.
    pub(crate) fn at(&self, now: u64) -> u64 {
        let elapsed = i128::from(now - self.since) * i128::from(1_000_000 + self.drift);
        // Not negative, because no clock runs backwards.
        self.start + (elapsed / 1_000_000) as u64
    }
}
