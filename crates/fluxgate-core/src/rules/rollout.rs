//! The share of identities that a rule is enforced for.

use std::fmt;
use std::str::FromStr;

use crate::key::place_of;
use crate::percent::{Percent, PercentError};

/// A share of identities, in hundredths of a percent.
///
/// ```
/// use fluxgate_core::Rollout;
///
/// let share: Rollout = "12.5%".parse()?;
/// assert_eq!(share.to_string(), "12.5%");
/// assert_eq!("10%".parse(), Ok(Rollout::percent(10)));
/// # Ok::<_, fluxgate_core::RolloutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rollout(Percent);

/// A text that is not a [`Rollout`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct RolloutError(PercentError);

impl Rollout {
    /// Creates a share of whole percents.
    ///
    /// # Panics
    /// If there are more than 100; in a `const` that is a compile-time error.
    pub const fn percent(percent: u8) -> Self {
        Self(Percent::new(percent))
    }

    /// Returns whether the share includes a subject: a rule and an identity.
    ///
    /// Every subject has a fixed place among 10,000, and a share includes the first ones.
    /// So all instances and releases agree, and a larger share includes a smaller one.
    pub(crate) fn includes(self, subject: &[u8]) -> bool {
        self.includes_place(place_of(subject))
    }

    /// Returns whether the share includes the subject at a place among 10,000.
    pub(crate) fn includes_place(self, place: u16) -> bool {
        place < self.0.hundredths()
    }
}

impl FromStr for Rollout {
    type Err = RolloutError;

    fn from_str(text: &str) -> Result<Self, RolloutError> {
        text.parse().map(Self).map_err(RolloutError)
    }
}

impl fmt::Display for Rollout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rollout(hundredths: u16) -> Rollout {
        Rollout(Percent::from_hundredths(hundredths).unwrap())
    }

    /// The same in every release: identities must not change sides with an update.
    #[test]
    fn the_place_of_a_subject_is_fixed() {
        let subjects: Vec<String> = (0..10_000).map(|user| format!("user-{user}")).collect();
        let counts: Vec<_> = (0..=10_000)
            .step_by(500)
            .map(|share| {
                let included = subjects.iter();
                included
                    .filter(|it| rollout(share).includes(it.as_bytes()))
                    .count()
            })
            .collect();
        assert!(counts.is_sorted());
        assert_eq!((counts[0], counts[20]), (0, 10_000));
        assert_eq!(
            &counts[1..4],
            [471, 947, 1436],
            "recorded from the first release"
        );
        for (twentieth, count) in counts.iter().enumerate() {
            assert!(count.abs_diff(twentieth * 500) < 150, "{counts:?}");
        }
        for share in (0..10_000).step_by(7) {
            let subject = subjects[usize::from(share)].as_bytes();
            let included = rollout(share).includes(subject);
            assert!(!included || rollout(share + 1).includes(subject));
        }
    }
}
