//! Percentages with up to two decimals.

use std::fmt;
use std::str::FromStr;

/// A share from 0% to 100%, in hundredths of a percent.
///
/// ```
/// use fluxgate_core::Percent;
///
/// let share: Percent = "12.5%".parse()?;
/// assert_eq!(share.to_string(), "12.5%");
/// assert_eq!(share.of(1_001), 125);
/// assert_eq!("20%".parse(), Ok(Percent::new(20)));
/// # Ok::<_, fluxgate_core::PercentError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u16);

/// A text that is not a [`Percent`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a share from 0% to 100% with up to two decimals, such as 10% or 0.25%")]
pub struct PercentError(String);

impl Percent {
    /// Everything: 100%.
    pub(crate) const ALL: Self = Self::new(100);

    /// Creates a share of whole percents.
    ///
    /// # Panics
    /// If there are more than 100; in a `const` that is a compile-time error.
    pub const fn new(percent: u8) -> Self {
        assert!(percent <= 100, "a share is at most 100%");
        Self(percent as u16 * 100)
    }

    /// Creates a share of hundredths of a percent, unless there are more than 10,000.
    pub(crate) const fn from_hundredths(hundredths: u16) -> Option<Self> {
        if hundredths <= Self::ALL.0 {
            Some(Self(hundredths))
        } else {
            None
        }
    }

    /// Returns the hundredths of a percent.
    pub const fn hundredths(self) -> u16 {
        self.0
    }

    /// Returns this share of `units`, rounded down.
    pub const fn of(self, units: u64) -> u64 {
        // A share of a u64 is not greater than it.
        (units as u128 * self.0 as u128 / Self::ALL.0 as u128) as u64
    }

    /// Returns the fewest of `units` that are at least this share of them.
    pub const fn reached_at(self, units: u64) -> u64 {
        (units as u128 * self.0 as u128).div_ceil(Self::ALL.0 as u128) as u64
    }
}

impl FromStr for Percent {
    type Err = PercentError;

    fn from_str(text: &str) -> Result<Self, PercentError> {
        parse(text).ok_or_else(|| PercentError(text.into()))
    }
}

fn parse(text: &str) -> Option<Percent> {
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
    // At most 999.99%, which fits.
    Percent::from_hundredths(whole.parse::<u16>().ok()? * 100 + hundredths)
}

impl fmt::Display for Percent {
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
            let share: Percent = text.parse().unwrap();
            assert_eq!(share, Percent(hundredths));
            assert_eq!(share.to_string(), text);
        }
        assert_eq!("012.50%".parse(), Ok(Percent(1250)));
        let bad = [
            "", "%", "10", "-1%", "+1%", "1.%", ".5%", "0.001%", "100.01%", "101%", "1e1%", "10 %",
            "70000%", "1.2.3%",
        ];
        for text in bad {
            assert!(text.parse::<Percent>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_share_of_units_is_rounded_down() {
        let share = |text: &str| text.parse::<Percent>().unwrap();
        assert_eq!(share("20%").of(1_000), 200);
        assert_eq!(share("33.33%").of(10), 3);
        assert_eq!(share("99.99%").of(10_000), 9_999);
        assert_eq!(share("99.99%").of(9_999), 9_998);
        assert_eq!(share("0.01%").of(9_999), 0);
        assert_eq!(share("0%").of(u64::MAX), 0);
        assert_eq!(share("99.99%").of(1_000_000_000), 999_900_000);
        assert_eq!(share("100%").of(u64::MAX), u64::MAX, "without overflow");
    }

    #[test]
    fn a_share_is_reached_by_the_fewest_units_that_are_not_below_it() {
        let reached = |text: &str, units| text.parse::<Percent>().unwrap().reached_at(units);
        assert_eq!(reached("80%", 10), 8);
        assert_eq!(reached("80%", 9), 8, "7.2");
        assert_eq!(reached("0.01%", 1), 1);
        assert_eq!(reached("100%", u64::MAX), u64::MAX, "without overflow");
        for units in 1..1_000 {
            let least = reached("33.33%", units);
            assert!(least * 10_000 >= 3_333 * units && (least - 1) * 10_000 < 3_333 * units);
        }
    }
}
