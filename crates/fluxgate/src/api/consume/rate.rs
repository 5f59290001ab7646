//! A rate in tokens a second, with up to six decimals, taken exactly.

use std::time::Duration;

use fluxgate_core::limit::MAX_UNITS;
use fluxgate_core::{Algorithm, Band, Limit};

use crate::request_json::whole_number;

/// Decimals that a rate may have.
const DECIMALS: u32 = 6;

/// The bucket of this capacity that refills at this rate.
pub(super) fn band(capacity: &str, rate: &str) -> Result<Band, String> {
    let capacity = whole_number(capacity).filter(|units| (1..=MAX_UNITS).contains(units));
    let capacity = capacity
        .ok_or_else(|| format!("`capacity` must be a whole number from 1 to {MAX_UNITS}"))?;
    let (refill, seconds) = exact(rate).ok_or_else(|| {
        format!(
            "`refill_tokens_per_second` must be a number above 0 with at most {DECIMALS} decimals, \
             written without an exponent"
        )
    })?;
    // A band whose window changes starts afresh, which another rate must not do.
    let limit = Limit::builder(Algorithm::TokenBucket, capacity, Duration::from_secs(1))
        .refill(refill)
        .period(Duration::from_secs(seconds))
        .build()
        .map_err(|error| format!("`capacity` and `refill_tokens_per_second`: {error}"))?;
    Ok(Band::new("b0", limit))
}

/// The same rate as whole tokens in whole seconds, both as small as can be.
fn exact(rate: &str) -> Option<(u64, u64)> {
    let (whole, decimals) = rate.split_once('.').unwrap_or((rate, ""));
    // JSON has no digits missing before or after the point.
    let decimals = decimals.trim_end_matches('0');
    let places = u32::try_from(decimals.len())
        .ok()
        .filter(|places| *places <= DECIMALS)?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) {
        return None;
    }
    let seconds = 10_u64.pow(places);
    let fraction = match decimals {
        "" => 0,
        decimals => decimals.parse::<u64>().ok()?,
    };
    let tokens = whole.parse::<u64>().ok()?.checked_mul(seconds)?;
    let tokens = tokens.checked_add(fraction).filter(|tokens| *tokens > 0)?;
    let common = greatest_common_divisor(tokens, seconds);
    Some((tokens / common, seconds / common))
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        b => greatest_common_divisor(b, a % b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_taken_exactly() {
        for (rate, expected) in [
            ("10", (10, 1)),
            ("10.0", (10, 1)),
            ("0.5", (1, 2)),
            ("0.000001", (1, 1_000_000)),
            ("3.333333", (3_333_333, 1_000_000)),
            ("1.250000000", (5, 4)),
            ("1000000000", (1_000_000_000, 1)),
        ] {
            assert_eq!(exact(rate), Some(expected), "{rate}");
        }
        for bad in [
            "0",
            "0.0",
            "-1",
            "1e3",
            "0.0000001",
            "\"1\"",
            "null",
            "1.2.3",
        ] {
            assert_eq!(exact(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_told() {
        assert!(band("10", "0.5").is_ok());
        for (capacity, rate, what) in [
            ("0", "1", "`capacity` must"),
            ("1.5", "1", "`capacity` must"),
            ("10", "0", "`refill_tokens_per_second` must"),
            ("10", "123456.123457", "`capacity` and"),
            ("1000000000", "0.000001", "`capacity` and"),
        ] {
            let error = band(capacity, rate).unwrap_err();
            assert!(error.starts_with(what), "{capacity} {rate}: {error}");
        }
    }
}
