//! The share of identities that a rule is enforced for.

use std::fmt;
use std::str::FromStr;

use crate::sip::Sip13;

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
pub struct Rollout(u16);

/// A text that is not a [`Rollout`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a share from 0% to 100% with up to two decimals, such as 10% or 0.25%")]
pub struct RolloutError(String);

/// Every identity.
const ALL: u16 = 10_000;

impl Rollout {
    /// Creates a share of whole percents.
    ///
    /// # Panics
    /// If there are more than 100; in a `const` that is a compile-time error.
    pub const fn percent(percent: u8) -> Self {
        assert!(percent <= 100, "a rollout has at most 100%");
        Self(percent as u16 * 100)
    }

    /// Returns whether the share includes a subject: a rule and an identity.
    ///
    /// Every subject has a fixed place among 10,000, and a share includes the first ones.
    /// So all instances and releases agree, and a larger share includes a smaller one.
    pub(crate) fn includes(self, subject: &[u8]) -> bool {
        let hash = Sip13::PUBLIC.hash(subject) as u64;
        let place = (u128::from(hash) * u128::from(ALL)) >> u64::BITS;
        place < u128::from(self.0)
    }
}

impl FromStr for Rollout {
    type Err = RolloutError;

    fn from_str(text: &str) -> Result<Self, RolloutError> {
        parse(text).ok_or_else(|| RolloutError(text.into()))
    }
}

fn parse(text: &str) -> Option<Rollout> {
    let number = text.strip_suffix('%')?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let is_number =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || whole.len() > 3 || decimals.len() > 2 {
        return None;
    }
    let hundredths = match decimals.len() {
        1 => decimals.parse::<u16>().ok()? * 10,
        _ => decimals.parse().ok()?,
    };
    let share = whole.parse::<u16>().ok()? * 100 + hundredths;
    (share <= ALL).then_some(Rollout(share))
}

impl fmt::Display for Rollout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, hundredths) = (self.0 / 100, self.0 % 100);
        match (hundredths, hundredths % 10) {
            (0, _) => write!(f, "{whole}%"),
            (_, 0) => write!(f, "{whole}.{}%", hundredths / 10),
            _ => write!(f, "{whole}.{hundredths:02}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_and_written() {
        for (text, hundredths) in [
            ("0%", 0),
            ("0.01%", 1),
            ("0.1%", 10),
            ("9.99%", 999),
            ("12.5%", 1250),
            ("100%", 10_000),
        ] {
            let share: Rollout = text.parse().unwrap();
            assert_eq!(share, Rollout(hundredths));
            assert_eq!(share.to_string(), text);
        }
        assert_eq!("012.50%".parse(), Ok(Rollout(1250)));
        let bad = [
            "", "%", "10", "-1%", "+1%", "1.%", ".5%", "0.001%", "100.01%", "101%", "1e1%", "10 %",
            "70000%", "1.2.3%",
        ];
        for text in bad {
            assert!(text.parse::<Rollout>().is_err(), "{text:?}");
        }
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
                    .filter(|it| Rollout(share).includes(it.as_bytes()))
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
            let included = Rollout(share).includes(subject);
            assert!(!included || Rollout(share + 1).includes(subject));
        }
    }
}
