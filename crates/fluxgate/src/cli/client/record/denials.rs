//! `fluxgate denials`: who was refused, and by which rule.

use http::Method;
use serde_json::Value;
use url::form_urlencoded::Serializer;

use super::span::{SpanArguments, instant_text};
use super::{RuleFilter, path_of};
use crate::cli::client::call;
use crate::cli::client::server::ServerArguments;
use crate::cli::client::text::{Table, count};
use crate::cli::{Failure, print};

/// The arguments of `fluxgate denials`.
#[derive(Debug, clap::Args)]
pub(crate) struct DenialsArguments {
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    rule: RuleFilter,
    #[command(flatten)]
    span: SpanArguments,
    /// Only this identity, such as user=ann
    #[arg(long, value_name = "PART=VALUE")]
    identity: Option<String>,
    /// How many rows to list
    #[arg(short, long, value_name = "N", default_value_t = 50)]
    n: usize,
    /// Continue where a list has ended: its last line names the cursor
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// Print the response as JSON
    #[arg(long)]
    json: bool,
}

/// Prints the denials, the newest first.
pub(crate) fn denials(arguments: &DenialsArguments) -> Result<(), Failure> {
    let mut query = Serializer::new(String::new());
    arguments.rule.add_to(&mut query);
    arguments.span.add_to(&mut query)?;
    if let Some(identity) = &arguments.identity {
        query.append_pair("identity", identity);
    }
    query.append_pair("n", &arguments.n.to_string());
    if let Some(cursor) = &arguments.cursor {
        query.append_pair("cursor", cursor);
    }
    let path = path_of("/v1/denials", query);
    let denials = call(&arguments.server, Method::GET, &path, None)?;
    if arguments.json {
        return print(&format!("{denials}\n"));
    }
    print(&denials_text(&denials))
}

fn denials_text(denials: &Value) -> String {
    let rows = denials["denials"].as_array().map_or(&[][..], Vec::as_slice);
    let mut table = Table::new([
        "LAST (UTC)",
        "COUNT",
        "IDENTITY",
        "RULE",
        "BAND",
        "OUTCOME",
        "EXAMPLE",
    ]);
    for row in rows {
        let text = |name: &str| row[name].as_str().unwrap_or("-").to_owned();
        let example: Vec<_> = ["method", "path"]
            .iter()
            .filter_map(|name| row[name].as_str())
            .collect();
        table.row([
            row["last_ms"].as_u64().map_or("-".into(), instant_text),
            row["count"].to_string(),
            text("identity"),
            format!("{}/{}", text("rule_set"), text("rule")),
            text("band"),
            text("outcome"),
            example.join(" "),
        ]);
    }
    let mut text = match rows {
        [] => "no denials in this time\n".to_owned(),
        rows => format!("{table}{}\n", count(rows.len() as u64, "row")),
    };
    if let Some(dropped) = denials["dropped"].as_u64().filter(|dropped| *dropped > 0) {
        let denials = count(dropped, "more denial");
        text += &format!("{denials} had no room in the record\n");
    }
    if let Some(cursor) = denials["cursor"].as_str() {
        text += &format!("older: --cursor {cursor}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_are_followed_by_what_is_missing() {
        let row = json!({
            "rule_set": "api", "rule": "r", "band": "b0", "outcome": "denied",
            "identity": "user=ann", "handle": "h", "first_ms": 60_000, "last_ms": 61_500,
            "count": 7, "method": "GET", "path": "/x",
        });
        let denials = json!({ "denials": [row], "cursor": "c1", "dropped": 1 });
        let expected = "\
LAST (UTC)            COUNT  IDENTITY  RULE   BAND  OUTCOME  EXAMPLE
1970-01-01T00:01:01Z  7      user=ann  api/r  b0    denied   GET /x
1 row
1 more denial had no room in the record
older: --cursor c1
";
        assert_eq!(denials_text(&denials), expected);
        let none = json!({ "denials": [], "cursor": null, "dropped": 0 });
        assert_eq!(denials_text(&none), "no denials in this time\n");
    }
}
