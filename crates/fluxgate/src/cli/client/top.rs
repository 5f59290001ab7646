//! `fluxgate top`: what happens, as a table that is refreshed every second.

use std::io::{self, IsTerminal};

use fluxgate_core::text;
use http::Method;
use serde_json::Value;

use super::server::{Server, ServerArguments};
use super::text::{Table, clean, percent};
use crate::cli::{Failure, print, print_unescaped};

/// How many identities are listed.
const IDENTITIES: usize = 10;

/// The arguments of `fluxgate top`.
#[derive(Debug, clap::Args)]
pub(crate) struct TopArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Rank identities by requests instead of denials
    #[arg(long)]
    requests: bool,
    /// Print once and exit; the default if standard output is not a terminal
    #[arg(long)]
    once: bool,
}

pub(super) async fn run(arguments: &TopArguments) -> Result<(), Failure> {
    let server = arguments.server.server()?;
    let by = if arguments.requests {
        "requests"
    } else {
        "denied"
    };
    let is_once = arguments.once || !io::stdout().is_terminal();
    let mut events = server.events("/v1/live", None).await?;
    // The first event describes the previous second.
    while let Some(event) = events.next().await {
        let top = heaviest(&server, by).await?;
        let screen = screen(server.name(), by, &event, &top);
        if is_once {
            return print(&screen);
        }
        // Moves the cursor to the top, and clears the screen below the last line.
        let lines = text::escape_unprintable(screen, &['\n']).replace('\n', "\x1b[K\n");
        print_unescaped(format!("\x1b[H{lines}\x1b[J").as_bytes())?;
    }
    Ok(())
}

async fn heaviest(server: &Server, by: &str) -> Result<Value, Failure> {
    let path = format!("/v1/top?by={by}&n={IDENTITIES}");
    server.call(Method::GET, &path, None).await
}

/// Returns the text of the screen.
fn screen(server: &str, by: &str, event: &Value, top: &Value) -> String {
    let total: u64 = event["decisions"]
        .as_object()
        .map(|counts| counts.values().filter_map(Value::as_u64).sum())
        .unwrap_or_default();
    let micros = |name: &str| match event["latency_us"][name].as_f64() {
        Some(micros) => format!("{micros:.1} us"),
        None => "-".to_owned(),
    };
    let mut text = format!(
        "{}  store {} ({})  rules {}\n{total} decisions/s, {} denied, {} shadow-denied  \
         p50 {}  p99 {}  waiting {}  slots {}\n\n",
        clean(server),
        event["store"]["kind"].as_str().unwrap_or("-"),
        event["store"]["breaker"].as_str().unwrap_or("-"),
        event["revision"].as_str().unwrap_or("-"),
        event["denied"],
        event["decisions"]["shadow_denied"]
            .as_u64()
            .unwrap_or_default(),
        micros("p50"),
        micros("p99"),
        event["waiting"],
        event["slots"],
    );
    let mut rules = Table::new(["RULE", "DECISIONS/S", "DENIED/S", "USED"]);
    for rule in event["rules"].as_array().into_iter().flatten() {
        let outcomes = &rule["outcomes"];
        let all: u64 = outcomes
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(_, count)| count.as_u64())
            .sum();
        rules.row([
            name_of(rule),
            all.to_string(),
            rule["denied"].to_string(),
            match rule["used"].as_f64() {
                Some(used) => percent(used),
                None => "-".to_owned(),
            },
        ]);
    }
    text += &rules.to_string();
    text += &format!("\nThe most {by} in the last minute:\n");
    let mut identities = Table::new(["IDENTITY", "RULE", "AT MOST", "AT LEAST"]);
    for entry in top["entries"].as_array().into_iter().flatten() {
        let of = |name: &str| entry[name].as_u64().unwrap_or_default();
        identities.row([
            entry["identity"].as_str().unwrap_or_default().to_owned(),
            name_of(entry),
            of("count").to_string(),
            (of("count") - of("error").min(of("count"))).to_string(),
        ]);
    }
    text + &identities.to_string()
}

fn name_of(value: &Value) -> String {
    let text = |name: &str| value[name].as_str().unwrap_or_default();
    format!("{}/{}", text("rule_set"), text("rule"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_screen_shows_the_second_and_the_minute() {
        let event = json!({
            "decisions": { "allowed": 8, "denied": 2 }, "denied": 2, "revision": "abc",
            "rules": [{
                "rule_set": "api", "rule": "r", "outcomes": { "allowed": 8, "denied": 2 },
                "denied": 2, "used": 0.934,
            }],
            "latency_us": { "p50": 1.25, "p99": null }, "waiting": 1, "slots": 0,
            "store": { "kind": "memory", "breaker": "closed" },
        });
        let top = json!({ "entries": [{
            "rule_set": "api", "rule": "r", "identity": "user=a\u{7}", "count": 7, "error": 2,
        }] });
        let expected = "\
http://x  store memory (closed)  rules abc
10 decisions/s, 2 denied, 0 shadow-denied  p50 1.2 us  p99 -  waiting 1  slots 0

RULE   DECISIONS/S  DENIED/S  USED
api/r  10           2         93%

The most denied in the last minute:
IDENTITY  RULE   AT MOST  AT LEAST
user=a\u{fffd}   api/r  7        5
";
        assert_eq!(screen("http://x", "denied", &event, &top), expected);
    }
}
