//! `fluxgate history`: what each rule did over time.

use http::Method;
use serde_json::Value;
use url::form_urlencoded::Serializer;

use super::span::{SpanArguments, instant_text};
use super::{RuleFilter, path_of};
use crate::cli::client::call;
use crate::cli::client::server::ServerArguments;
use crate::cli::client::text::{Table, duration_of};
use crate::cli::{Failure, print};

/// The width of the charts, in characters.
const WIDTH: usize = 40;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The arguments of `fluxgate history`.
#[derive(Debug, clap::Args)]
pub(crate) struct HistoryArguments {
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    rule: RuleFilter,
    #[command(flatten)]
    span: SpanArguments,
    /// Print the response as JSON
    #[arg(long)]
    json: bool,
}

/// Prints the counts of each rule, and when rules changed.
pub(crate) fn history(arguments: &HistoryArguments) -> Result<(), Failure> {
    let mut query = Serializer::new(String::new());
    arguments.rule.add_to(&mut query);
    arguments.span.add_to(&mut query)?;
    let path = path_of("/v1/history", query);
    let history = call(&arguments.server, Method::GET, &path, None)?;
    if arguments.json {
        return print(&format!("{history}\n"));
    }
    print(&history_text(&history))
}

fn history_text(history: &Value) -> String {
    let series = history["series"].as_array().map_or(&[][..], Vec::as_slice);
    let step = history["step_s"].as_u64().unwrap_or(1);
    let from = history["from_ms"].as_u64().unwrap_or_default();
    let mut steps = 0;
    let mut table = Table::new(["RULE", "OUTCOME", "TOTAL", "MOST", "OVER TIME"]);
    for series in series {
        let text = |name: &str| series[name].as_str().unwrap_or("-").to_owned();
        let values: Vec<u64> = series["values"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|value| value.as_u64().unwrap_or_default())
            .collect();
        steps = steps.max(values.len());
        let most = values.iter().max().copied().unwrap_or_default();
        table.row([
            format!("{}/{}", text("rule_set"), text("rule")),
            text("outcome"),
            values.iter().sum::<u64>().to_string(),
            format!("{most}/{}", duration_of(step * 1000)),
            chart(&values),
        ]);
    }
    let mut text = if series.is_empty() {
        "no decisions in this time\n".to_owned()
    } else {
        let until = from + steps as u64 * step * 1000;
        format!(
            "{table}from {} to {}, counted every {}\n",
            instant_text(from),
            instant_text(until),
            duration_of(step * 1000)
        )
    };
    for change in history["changes"].as_array().into_iter().flatten() {
        let of = |name: &str| change[name].as_str();
        text += &format!(
            "{}  rules of {} changed to {}{}\n",
            instant_text(change["at_ms"].as_u64().unwrap_or_default()),
            of("rule_set").unwrap_or("-"),
            match &change["revision"] {
                Value::String(revision) => revision.clone(),
                revision => revision.to_string(),
            },
            of("who").map_or(String::new(), |who| format!(" by {who}")),
        );
    }
    text
}

/// Returns the values as a line of bars. Each bar is the sum of as many values as any other.
fn chart(values: &[u64]) -> String {
    let bars = values.chunks(values.len().div_ceil(WIDTH).max(1));
    let bars: Vec<u64> = bars.map(|values| values.iter().sum()).collect();
    let most = bars.iter().max().copied().unwrap_or_default();
    let bar = |value: &u64| match value * BARS.len() as u64 {
        0 => ' ',
        value => BARS[(value.div_ceil(most) - 1) as usize],
    };
    bars.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_series_is_a_row_with_its_chart() {
        let history = json!({
            "step_s": 60, "from_ms": 0,
            "series": [
                { "rule_set": "api", "rule": "r", "outcome": "denied", "values": [0, 1, 8, 4] },
                { "rule_set": "api", "rule": null, "outcome": "no_rule", "values": [1, 0, 0, 0] },
            ],
            "changes": [{ "at_ms": 60_000, "rule_set": "api", "revision": "7", "who": "ops" }],
        });
        let expected = "\
RULE   OUTCOME  TOTAL  MOST  OVER TIME
api/r  denied   13     8/1m   ▁█▄
api/-  no_rule  1      1/1m  █
from 1970-01-01T00:00:00Z to 1970-01-01T00:04:00Z, counted every 1m
1970-01-01T00:01:00Z  rules of api changed to 7 by ops
";
        assert_eq!(history_text(&history), expected);
        let none = json!({ "step_s": 1, "from_ms": 0, "series": [], "changes": [] });
        assert_eq!(history_text(&none), "no decisions in this time\n");
    }

    #[test]
    fn a_chart_has_at_most_its_width() {
        for (steps, width) in [(0, 0), (1, 1), (40, 40), (41, 21), (900, 40)] {
            assert_eq!(chart(&vec![1; steps]).chars().count(), width, "{steps}");
        }
    }
}
