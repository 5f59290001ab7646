//! How many units of a band were used within the last span of a lease.

/// The units of one band that were used recently: a sliding window as long as a lease, of two
/// counts. The previous count is weighted by how much of it the window still covers.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecentUse {
    span: u64,
    /// When the current count began.
    began: u64,
    current: u64,
    previous: u64,
}

impl RecentUse {
    /// Creates a window of this span, with units that were used until now.
    pub(super) fn new(span: u64, units: u64, now: u64) -> Self {
        Self {
            span,
            began: now,
            current: units,
            previous: 0,
        }
    }

    /// Returns the span of a lease.
    pub(super) fn span(&self) -> u64 {
        self.span
    }

    /// Adds units that are used now.
    pub(super) fn add(&mut self, units: u64, now: u64) {
        self.settle(now);
        self.current = self.current.saturating_add(units);
    }

    /// Returns the units that were used within the last span.
    pub(super) fn units(&mut self, now: u64) -> u64 {
        self.settle(now);
        // A thread may read the clock before another one and get the lock after it.
        let left = self.span - now.saturating_sub(self.began);
        let previous = u128::from(self.previous) * u128::from(left) / u128::from(self.span);
        // At most `previous`.
        self.current.saturating_add(previous as u64)
    }

    fn settle(&mut self, now: u64) {
        let elapsed = now.saturating_sub(self.began);
        if elapsed < self.span {
            return;
        }
        let is_next = elapsed < 2 * self.span;
        self.previous = if is_next { self.current } else { 0 };
        self.current = 0;
        self.began = if is_next { self.began + self.span } else { now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_count_for_as_long_as_a_lease() {
        let mut recent = RecentUse::new(100, 3, 1_000);
        assert_eq!(recent.units(1_000), 3);
        recent.add(5, 1_099);
        assert_eq!(recent.units(1_099), 8);
        assert_eq!(recent.units(1_100), 8);
        recent.add(2, 1_125);
        assert_eq!(recent.units(1_125), 8, "three quarters of 8, and 2");
        assert_eq!(recent.units(1_199), 2);
        assert_eq!(recent.units(1_250), 1, "a half of 2");
        assert_eq!(recent.units(1_300), 0);
    }

    #[test]
    fn nothing_counts_after_a_pause() {
        let mut recent = RecentUse::new(100, 3, 1_000);
        assert_eq!(recent.units(1_200), 0);
        recent.add(7, 5_000);
        assert_eq!(recent.units(5_050), 7);
        // A thread that was late.
        recent.add(1, 4_990);
        assert_eq!(recent.units(4_990), 8);
    }
}
