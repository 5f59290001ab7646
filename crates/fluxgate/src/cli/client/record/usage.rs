//! `fluxgate usage`: which identities use most of a limit, and when they run out.

use http::Method;
use serde_json::Value;
use url::form_urlencoded::Serializer;

use super::{RuleFilter, path_of};
use crate::cli::client::call;
use crate::cli::client::server::ServerArguments;
use crate::cli::client::text::{Table, count, duration_of, percent};
use crate::cli::{Failure, print};

/// The arguments of `fluxgate usage`.
#[derive(Debug, clap::Args)]
pub(crate) struct UsageArguments {
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    rule: RuleFilter,
    /// How many identities to list
    #[arg(short, long, value_name = "N", default_value_t = 20)]
    n: usize,
    /// Print the response as JSON
    #[arg(long)]
    json: bool,
}

/// Prints the identities that use most of a limit.
pub(crate) fn usage(arguments: &UsageArguments) -> Result<(), Failure> {
    let mut query = Serializer::new(String::new());
    arguments.rule.add_to(&mut query);
    query.append_pair("n", &arguments.n.to_string());
    let path = path_of("/v1/usage", query);
    let usage = call(&arguments.server, Method::GET, &path, None)?;
    if arguments.json {
        return print(&format!("{usage}\n"));
    }
    print(&usage_text(&usage))
}

fn usage_text(usage: &Value) -> String {
    let rows = usage["usage"].as_array().map_or(&[][..], Vec::as_slice);
    if rows.is_empty() {
        return "no identity has used anything lately\n".into();
    }
    let mut table = Table::new([
        "IDENTITY",
        "RULE",
        "BAND",
        "USED",
        "LEFT",
        "LIMIT",
        "PER HOUR",
        "RUNS OUT IN",
        "FULL IN",
    ]);
    for row in rows {
        let text = |name: &str| row[name].as_str().unwrap_or("-").to_owned();
        let number = |name: &str| match &row[name] {
            Value::Null => "-".to_owned(),
            number => number.to_string(),
        };
        let span = |name: &str, zero: &str| match row[name].as_u64() {
            None => "-".to_owned(),
            Some(0) => zero.to_owned(),
            Some(millis) => duration_of(millis),
        };
        table.row([
            text("identity"),
            format!("{}/{}", text("rule_set"), text("rule")),
            text("band"),
            row["used_share"].as_f64().map_or("-".into(), percent),
            number("remaining"),
            number("limit"),
            number("per_hour"),
            span("exhausted_in_ms", "now"),
            span("reset_after_ms", "now"),
        ]);
    }
    format!("{table}{}\n", count(rows.len() as u64, "row"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_says_what_is_left_and_for_how_long() {
        let usage = json!({ "usage": [{
            "rule_set": "api", "rule": "per-user", "band": "month", "identity": "user=ann",
            "handle": "h", "limit": 100, "remaining": 7, "used_share": 0.93,
            "reset_after_ms": 86_400_000, "per_hour": 12, "exhausted_in_ms": null,
        }, {
            "rule_set": "api", "rule": "all", "band": "b0", "identity": null,
            "handle": "h", "limit": 5, "remaining": 0, "used_share": 1.0,
            "reset_after_ms": 0, "per_hour": 5, "exhausted_in_ms": 0,
        }] });
        let expected = "\
IDENTITY  RULE          BAND   USED  LEFT  LIMIT  PER HOUR  RUNS OUT IN  FULL IN
user=ann  api/per-user  month  93%   7     100    12        -            1d
-         api/all       b0     100%  0     5      5         now          now
2 rows
";
        assert_eq!(usage_text(&usage), expected);
        assert!(usage_text(&json!({ "usage": [] })).starts_with("no identity"));
    }
}
