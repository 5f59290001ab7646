//! Values that rule files and configurations share.
//!
//! Like the methods of [`Node`], each function returns the value if it is as it must be,
//! and otherwise adds a fault.

use std::time::Duration;

use super::names::lower_header_name;
use super::rule::OnError;
use super::set::OnMissingRuleSet;
use crate::hold::{MAX_HOLD, MIN_HOLD};
use crate::limit::{MAX_SPAN, MAX_UNITS, MIN_SPAN};
use crate::matcher::Pattern;
use crate::yaml::{Faults, Node, Position};

/// Reads a duration: `500ms 1s 90s 5m 1h 1d`.
pub fn duration(node: &Node, what: &str, faults: &mut Faults) -> Option<Duration> {
    let parsed = node.as_text().and_then(parse_duration);
    if parsed.is_none() {
        faults.add(
            node.position,
            format!(
                "{what} must be a whole number with a unit (ms, s, m, h or d) \
                 from 1ms to 366d, such as 500ms or 5m"
            ),
        );
    }
    parsed
}

/// Reads a whole number with a unit, such as `500ms` or `5m`; `None` if it is not one.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let millis = number.parse::<u64>().ok()?.checked_mul(unit_millis)?;
    let span = Duration::from_millis(millis);
    (MIN_SPAN.as_duration()..=MAX_SPAN.as_duration())
        .contains(&span)
        .then_some(span)
}

/// Reads how long slots are held: a duration from 1s to 24h.
pub(super) fn hold(node: &Node, faults: &mut Faults) -> Option<Duration> {
    let parsed = node.as_text().and_then(parse_hold);
    if parsed.is_none() {
        let given = node.as_text().unwrap_or(node.kind());
        let message = format!("`hold` must be a duration from 1s to 24h, such as 60s, not {given}");
        faults.add(node.position, message);
    }
    parsed
}

/// Parses how long a charge is held: a duration from 1s to 24h.
pub fn parse_hold(text: &str) -> Option<Duration> {
    let allowed = MIN_HOLD.as_duration()..=MAX_HOLD.as_duration();
    parse_duration(text).filter(|span| allowed.contains(span))
}

/// Parses a rate, units and a window: `10/s 100/m 5/15m`.
pub(super) fn parse_rate(text: &str) -> Option<(u64, Duration)> {
    let (units, window) = text.split_once('/')?;
    if !units.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let units = units
        .parse()
        .ok()
        .filter(|it| (1..=MAX_UNITS).contains(it))?;
    let window = if window.starts_with(|first: char| first.is_ascii_digit()) {
        parse_duration(window)
    } else {
        parse_duration(&format!("1{window}"))
    };
    Some((units, window?))
}

/// Reads a list of path patterns that is not empty.
pub fn patterns(node: &Node, what: &str, faults: &mut Faults) -> Vec<Pattern> {
    let nodes = node.list(what, faults).iter();
    nodes.filter_map(|node| pattern(node, faults)).collect()
}

/// Reads a path pattern.
pub fn pattern(node: &Node, faults: &mut Faults) -> Option<Pattern> {
    let text = node.text("a path pattern", faults)?;
    let pattern = Pattern::parse(text);
    pattern
        .map_err(|error| faults.add(node.position, error.to_string()))
        .ok()
}

/// Checks the name of a header and converts it to lower case.
pub fn header_name(name: &str, at: Position, faults: &mut Faults) -> Option<Box<str>> {
    let lower = lower_header_name(name);
    if lower.is_none() {
        faults.add(at, format!("`{name}` cannot be the name of a header"));
    }
    lower
}

/// Reads `on_error`.
pub fn on_error(node: &Node, faults: &mut Faults) -> Option<OnError> {
    node.one_of("`on_error`", &OnError::NAMES, faults)
}

/// Reads `on_missing_rule_set`.
pub fn on_missing_rule_set(node: &Node, faults: &mut Faults) -> Option<OnMissingRuleSet> {
    let names = [
        ("allow", OnMissingRuleSet::Allow),
        ("deny", OnMissingRuleSet::Deny),
    ];
    node.one_of("`on_missing_rule_set`", &names, faults)
}

/// Reads `keys.ipv6_prefix`.
pub fn ipv6_prefix(node: &Node, faults: &mut Faults) -> Option<u8> {
    let prefix = node.whole("`ipv6_prefix`", 1, 128, faults)?;
    u8::try_from(prefix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("1ms"), Some(Duration::from_millis(1)));
        assert_eq!(parse_duration("90s"), Some(Duration::from_secs(90)));
        assert_eq!(
            parse_duration("366d"),
            Some(Duration::from_secs(366 * 86_400))
        );
    }

    #[test]
    fn a_rate_has_units_and_a_window() {
        for (text, units, millis) in [
            ("10/s", 10, 1_000),
            ("100/m", 100, 60_000),
            ("5/15m", 5, 900_000),
            ("1000/h", 1_000, 3_600_000),
            ("1/d", 1, 86_400_000),
            ("1000000000/ms", 1_000_000_000, 1),
        ] {
            let window = Duration::from_millis(millis);
            assert_eq!(parse_rate(text), Some((units, window)), "{text}");
        }
        let bad = [
            "",
            "/",
            "10",
            "10/",
            "/s",
            "0/s",
            "10/0s",
            "-1/s",
            "+1/s",
            "1.5/s",
            "10 / s",
            "10/s/s",
            "10/w",
            "1000000001/s",
            "10/367d",
            "10/S",
            "1e3/s",
        ];
        for text in bad {
            assert_eq!(parse_rate(text), None, "{text:?}");
        }
    }

    #[test]
    fn other_texts_are_not_durations() {
        let bad = [
            "",
            "1",
            "s",
            "0s",
            "1.5s",
            "-1s",
            "+1s",
            "1S",
            " 1s",
            "1s ",
            "1m30s",
            "1us",
            "367d",
            "99999999999999999999d",
            "18446744073709551615d",
            "1w",
        ];
        for text in bad {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
    }
}
