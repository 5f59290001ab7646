//! Readable output: tables and durations.

use std::fmt;
use std::time::Duration;

use fluxgate_core::text::{duration_text, is_printable};
use serde_json::Value;

/// A table with aligned columns.
#[derive(Debug)]
pub(super) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(super) fn new(head: [&str; N]) -> Self {
        Self {
            rows: vec![head.map(str::to_owned)],
        }
    }

    pub(super) fn row(&mut self, row: [String; N]) {
        self.rows.push(row.map(|cell| clean(&cell)));
    }
}

/// Replaces characters that a terminal would interpret: clients choose identities.
pub(super) fn clean(text: &str) -> String {
    let shown = |char: char| if is_printable(char) { char } else { '\u{fffd}' };
    text.chars().map(shown).collect()
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| columns(&row[column]));
            cells.max().unwrap_or_default()
        };
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let padding = width(column) - columns(cell) + 2;
                line += &format!("{cell}{:padding$}", "");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Returns how many columns of a terminal a text takes: letters of East Asia take two.
fn columns(text: &str) -> usize {
    let of_char = |char| match char {
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    };
    text.chars().map(of_char).sum()
}

/// Returns milliseconds as a readable duration.
pub(super) fn duration_of(millis: u64) -> String {
    duration_text(Duration::from_millis(millis))
}

/// Returns a number with its noun, such as `1 request` or `2 requests`.
pub(super) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Returns a share as a percentage.
#[expect(
    clippy::float_arithmetic,
    reason = "only to be looked at; no decision depends on it"
)]
pub(super) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Returns the row of a rule.
pub(super) fn rule_row(set: &Value, rule: &Value) -> [String; 6] {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let parts = rule["key"].as_array().into_iter().flatten();
    let key: Vec<_> = parts.filter_map(Value::as_str).collect();
    let bands = rule["bands"].as_array().into_iter().flatten();
    let limits: Vec<_> = bands.map(limit_of).collect();
    [
        format!("{}/{}", text(set), text(&rule["id"])),
        text(&rule["name"]),
        text(&rule["mode"]),
        text(&rule["algorithm"]),
        if key.is_empty() {
            "global".into()
        } else {
            key.join(" + ")
        },
        limits.join(", "),
    ]
}

fn limit_of(band: &Value) -> String {
    let capacity = &band["capacity"];
    if let Some(unit) = band["calendar"].as_str() {
        return format!("{capacity} a {unit}");
    }
    let number = |name: &str| band[name].as_u64();
    match (
        number("refill").zip(number("period_ms")),
        number("window_ms"),
    ) {
        (Some((refill, period)), _) if capacity.as_u64() != Some(refill) => {
            let period = duration_of(period);
            format!("{refill} per {period} with bursts of {capacity}")
        }
        (_, Some(window)) => format!("{capacity} per {}", duration_of(window)),
        (_, None) => format!("{capacity} at the same time"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_aligned_and_control_characters_are_not_sent_to_the_terminal() {
        let mut table = Table::new(["A", "B"]);
        table.row(["long".into(), "x\u{1b}[31m".into()]);
        assert_eq!(table.to_string(), "A     B\nlong  x\u{fffd}[31m\n");
        let mut table = Table::new(["A", "B"]);
        table.row(["한도".into(), "x".into()]);
        assert_eq!(table.to_string(), "A     B\n한도  x\n");
    }

    #[test]
    fn a_rule_is_one_row() {
        let rule = json!({
            "id": "r", "name": "주소별 한도", "mode": "enforce", "algorithm": "token_bucket", "key": ["user", "ip"],
            "bands": [{ "capacity": 5, "window_ms": 1000 }, { "capacity": 9, "calendar": "day" }],
        });
        let row = rule_row(&json!("s"), &rule);
        assert_eq!(row[..3], ["s/r", "주소별 한도", "enforce"]);
        assert_eq!(row[4..], ["user + ip", "5 per 1s, 9 a day"]);
        assert_eq!(
            limit_of(&json!({ "capacity": 2, "hold_ms": 5 })),
            "2 at the same time"
        );
        let mut band = json!({ "capacity": 5, "window_ms": 1000, "refill": 5, "period_ms": 1000 });
        assert_eq!(limit_of(&band), "5 per 1s");
        band["refill"] = 1.into();
        assert_eq!(limit_of(&band), "1 per 1s with bursts of 5");
    }
}
