//! Parses rates in tokens per second, with up to six decimals, exactly.

use std::time::Duration;

use fluxgate_core::json::whole_number;
use fluxgate_core::limit::MAX_UNITS;
use fluxgate_core::{Algorithm, Band, Limit, LimitError};

/// How many decimals a rate may have.
const DECIMALS: u64 = 6;

/// Returns the bucket with this capacity that refills at this rate, which comes from the field
/// `name`.
pub(super) fn band(capacity: &str, rate: &str, name: &str) -> Result<Band, String> {
    let capacity = whole_number(capacity)
        .filter(|units| (1..=MAX_UNITS).contains(units))
        .ok_or_else(|| format!("`capacity` must be a whole number from 1 to {MAX_UNITS}"))?;
    let (refill, seconds) = parse_rate(rate).ok_or_else(|| {
        format!("`{name}` must be a number above 0 with at most {DECIMALS} decimals")
    })?;
    if refill > MAX_UNITS {
        return Err(format!(
            "`{name}` must be at most {MAX_UNITS}, and so must be its numerator as a fraction in \
             lowest terms (1.5 is 3/2): give it fewer digits"
        ));
    }
    // A band starts again when its window changes, but not when its rate changes: so the
    // window is always the same.
    let limit = Limit::builder(Algorithm::TokenBucket, capacity, Duration::from_secs(1))
        .refill(refill)
        .period(Duration::from_secs(seconds))
        .build()
        .map_err(|error| match error {
            LimitError::FillTooLong => format!(
                "`capacity` and `{name}`: filling from empty would take more than 3660 days"
            ),
            error => format!("`capacity` and `{name}`: {error}"),
        })?;
    Ok(Band::new("b0", limit))
}

/// Returns the rate as tokens per seconds, a fraction in lowest terms. Tokens that do not fit
/// become `u64::MAX`.
fn parse_rate(rate: &str) -> Option<(u64, u64)> {
    let (digits, exponent) = rate.split_once(['e', 'E']).unwrap_or((rate, "0"));
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    let digits = format!("{whole}{decimals}");
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let significant = digits.trim_end_matches('0');
    let tokens = match significant.trim_start_matches('0') {
        "" => return None,
        // These are only digits, so the number can only be too large.
        digits => digits.parse().unwrap_or(u64::MAX),
    };
    let zeros = digits.len() - significant.len();
    let power = power_of_ten(exponent)?
        .saturating_add(i64::try_from(zeros).ok()?)
        .saturating_sub(i64::try_from(decimals.len()).ok()?);
    let ten_to = |power: u64| {
        u32::try_from(power)
            .ok()
            .and_then(|it| 10_u64.checked_pow(it))
    };
    if power >= 0 {
        let times = ten_to(power.unsigned_abs()).unwrap_or(u64::MAX);
        return Some((tokens.saturating_mul(times), 1));
    }
    let places = power.unsigned_abs();
    let seconds = ten_to(places).filter(|_| places <= DECIMALS)?;
    let common = greatest_common_divisor(tokens, seconds);
    Some((tokens / common, seconds / common))
}

/// Parses an exponent. One that does not fit becomes the largest or smallest `i64`.
fn power_of_ten(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let bound = if text.starts_with('-') {
        i64::MIN
    } else {
        i64::MAX
    };
    is_number.then(|| text.parse().unwrap_or(bound))
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
    fn rates_are_parsed_exactly() {
        for (rate, expected) in [
            ("10", (10, 1)),
            ("10.0", (10, 1)),
            ("0.5", (1, 2)),
            ("0.000001", (1, 1_000_000)),
            ("3.333333", (3_333_333, 1_000_000)),
            ("1.250000000", (5, 4)),
            ("1000000000", (1_000_000_000, 1)),
            ("5e-05", (1, 20_000)),
            ("1e-6", (1, 1_000_000)),
            ("10e-7", (1, 1_000_000)),
            ("1.5e0", (3, 2)),
            ("1.5E+3", (1_500, 1)),
            ("0.00012e4", (6, 5)),
            ("1234.567891", (1_234_567_891, 1_000_000)),
            // Larger than allowed: `band` reports that.
            ("99999999999999999999", (u64::MAX, 1)),
            ("1e20", (u64::MAX, 1)),
            ("1e99999999999999999999", (u64::MAX, 1)),
        ] {
            assert_eq!(parse_rate(rate), Some(expected), "{rate}");
        }
        for bad in [
            "0",
            "0.0",
            "-1",
            "-1e3",
            "0e3",
            "0.0000001",
            "1e-7",
            "1.5e-6",
            "1e-99999999999999999999",
            "1e",
            "1e+",
            "1e2e3",
            "\"1\"",
            "null",
            "1.2.3",
        ] {
            assert_eq!(parse_rate(bad), None, "{bad}");
        }
    }

    #[test]
    fn values_out_of_bounds_are_reported() {
        let name = "refill_tokens_per_second";
        assert!(band("10", "0.5", name).is_ok());
        for (capacity, rate, what) in [
            ("0", "1", "`capacity` must"),
            ("1.5", "1", "`capacity` must"),
            ("10", "0", "`refill_tokens_per_second` must"),
            (
                "10",
                "1234.567891",
                "`refill_tokens_per_second` must be at most",
            ),
            ("10", "1e10", "`refill_tokens_per_second` must be at most"),
            (
                "1000000000",
                "0.000001",
                "`capacity` and `refill_tokens_per_second`: filling",
            ),
        ] {
            let error = band(capacity, rate, name).unwrap_err();
            assert!(error.starts_with(what), "{capacity} {rate}: {error}");
        }
    }
}
