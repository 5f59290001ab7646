//! `fluxgate events`: thresholds, changes of rules, failures of the store.

use std::path::{Path, PathBuf};

use http::Method;
use serde_json::{Value, json};

use super::span::instant_text;
use crate::cli::client::server::ServerArguments;
use crate::cli::client::{call, run};
use crate::cli::{Exit, Failure, print};
use crate::config::{Overrides, RawConfig, Secrets};
use crate::events::Receiver;
use crate::telemetry::unix_time;

/// The arguments of `fluxgate events`.
#[derive(Debug, clap::Args)]
pub(crate) struct EventsArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Only events of this kind, such as threshold (repeatable)
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// How many of the last events to list
    #[arg(short, long, value_name = "N", default_value_t = 50)]
    n: usize,
    /// Go on with new events until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Print each event as a line of JSON
    #[arg(long)]
    json: bool,
    /// Send a signed test event to every webhook of this config instead, and print the answers
    #[arg(long, value_name = "CONFIG", conflicts_with_all = ["kind", "n", "follow", "json"])]
    test_webhook: Option<PathBuf>,
}

/// Prints the last events, the oldest first, and the new ones if asked to.
pub(crate) fn events(arguments: &EventsArguments) -> Result<(), Failure> {
    if let Some(config) = &arguments.test_webhook {
        return run(test_webhooks(config));
    }
    let answer = call(&arguments.server, Method::GET, "/v1/events", None)?;
    let events = answer["events"].as_array().map_or(&[][..], Vec::as_slice);
    let events: Vec<_> = events.iter().filter(|it| is_shown(arguments, it)).collect();
    let last = events.len().saturating_sub(arguments.n);
    for event in &events[last..] {
        show(arguments, event)?;
    }
    if arguments.follow {
        return run(follow(arguments, answer["events"].as_array()));
    }
    if events.is_empty() && !arguments.json {
        print("no events\n")?;
    }
    Ok(())
}

async fn follow(arguments: &EventsArguments, known: Option<&Vec<Value>>) -> Result<(), Failure> {
    let server = arguments.server.server()?;
    // Those that have no id yet get one, and come again.
    let ids = known.into_iter().flatten().rev();
    let newest = { ids }.find_map(|event| event["id"].as_str());
    // From the beginning, if there were none.
    let after = newest.unwrap_or("0-0");
    let mut events = server.events("/v1/events", Some(after)).await?;
    while let Some(event) = events.next().await {
        if is_shown(arguments, &event) {
            show(arguments, &event)?;
        }
    }
    Ok(())
}

/// Sends a test event to every webhook of a config.
async fn test_webhooks(path: &Path) -> Result<(), Failure> {
    let overrides = Overrides::from_env(std::env::vars_os());
    let config = RawConfig::load(Some(path), &overrides)?.check()?;
    let secrets = Secrets::load(&config)?;
    if config.webhooks.is_empty() {
        let message = format!("{}: there are no webhooks", path.display());
        return Err(Failure::new(Exit::Config, message));
    }
    let mut failed = 0;
    for (webhook, (secret, ca)) in config.webhooks.iter().zip(&secrets.webhooks) {
        let url = webhook.url.without_query();
        let receiver = Receiver::new(webhook, secret.clone(), ca.as_ref())
            .map_err(|error| Failure::new(Exit::Config, format!("{url}: {error}")))?;
        let now = unix_time();
        let event = json!({
            "id": "test",
            "at_ms": now.as_millis() as u64,
            "kind": "test",
            "text": "a test of this webhook",
        });
        let answer = match receiver.post(&event.to_string(), now).await {
            Ok(delivery) => format!("accepted with {}", delivery.status),
            Err(error) => {
                failed += 1;
                error.to_string()
            }
        };
        print(&format!("{url}: {answer}\n"))?;
    }
    match failed {
        0 => Ok(()),
        _ => Err(Failure::new(
            Exit::Unavailable,
            "not every webhook accepted the event",
        )),
    }
}

fn is_shown(arguments: &EventsArguments, event: &Value) -> bool {
    let kinds = &arguments.kind;
    kinds.is_empty() || kinds.iter().any(|kind| event["kind"] == **kind)
}

fn show(arguments: &EventsArguments, event: &Value) -> Result<(), Failure> {
    if arguments.json {
        print(&format!("{event}\n"))
    } else {
        print(&event_line(event))
    }
}

fn event_line(event: &Value) -> String {
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    let at = instant_text(event["at_ms"].as_u64().unwrap_or_default());
    format!("{at}  {:<9}  {}\n", text("kind"), text("text"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_a_line() {
        let event = json!({ "id": "1-0", "at_ms": 1500, "kind": "store", "text": "Redis is back" });
        let expected = "1970-01-01T00:00:01Z  store      Redis is back\n";
        assert_eq!(event_line(&event), expected);
    }
}
