//! `GET /v1/top`: the heaviest identities of the last minute.

use std::collections::HashMap;
use std::time::Duration;

use axum::extract::State;
use fluxgate_core::rules::values::parse_duration;
use fluxgate_http::Problem;
use http::request::Parts;
use serde_json::json;

use super::query;
use super::response::{ApiResult, json_response};
use super::state::SharedState;
use crate::admin::Role;
use crate::telemetry::{MAX_WINDOW, TopBy};

const DEFAULT_COUNT: usize = 20;
const MAX_COUNT: usize = 1000;
const MIN_WINDOW: Duration = Duration::from_secs(1);

#[derive(Debug, PartialEq, Eq)]
struct TopQuery {
    by: TopBy,
    window: Duration,
    count: usize,
}

impl TopQuery {
    fn read(query: &str) -> Result<Self, Problem> {
        let mut wanted = Self {
            by: TopBy::Denied,
            window: MAX_WINDOW,
            count: DEFAULT_COUNT,
        };
        for field in query::fields(query) {
            let (name, value) = field?;
            match &*name {
                "by" => {
                    wanted.by = match &*value {
                        "denied" => TopBy::Denied,
                        "requests" => TopBy::Requests,
                        _ => return Err(query::expected("by", "denied or requests", &value)),
                    }
                }
                "window" => {
                    let window = parse_duration(&value)
                        .filter(|it| (MIN_WINDOW..=MAX_WINDOW).contains(it))
                        .ok_or_else(|| query::expected("window", "1s to 60s", &value));
                    wanted.window = window?;
                }
                "n" => wanted.count = query::count("n", &value, MAX_COUNT)?,
                _ => return Err(query::unknown(&name)),
            }
        }
        Ok(wanted)
    }
}

/// Returns the identities with the most requests or denials, by rule.
pub(super) async fn top(State(api): SharedState, head: Parts) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    let query = TopQuery::read(head.uri.query().unwrap_or_default())?;
    let TopQuery { by, window, count } = query;
    let rules = api.engine.rules().unwrap_or_default();
    let mut names = HashMap::new();
    for set in rules.iter() {
        for rule in set.rules() {
            names.insert(rule.number(), (set.name(), rule.id()));
        }
    }
    let (telemetry, identities) = (api.engine.telemetry(), api.engine.identities());
    // Identities of removed rules are left out.
    let top = telemetry.top(by, window, count, |rule| names.contains_key(&rule));
    let entries = top.entries.iter().filter_map(|entry| {
        let (rule_set, rule) = names.get(&entry.rule)?;
        let stored = entry
            .encoded()
            .map(|it| identities.stored(rule_set, rule, it));
        let identity = match &stored {
            Some(stored) => identities.show_live(stored),
            None if api.admin.hides_identities => identities.pseudonyms().of_value(&entry.identity),
            None => entry.describe(),
        };
        let handle = stored.and_then(|it| identities.handle(rule_set, rule, &it));
        Some(json!({
            "rule_set": rule_set,
            "rule": rule,
            "identity": identity,
            "handle": handle,
            "count": entry.count,
            "error": entry.error,
        }))
    });
    let list = json!({
        "by": match by {
            TopBy::Denied => "denied",
            TopBy::Requests => "requests",
        },
        "window_ms": window.as_millis() as u64,
        "total": top.total,
        "error": top.error,
        "entries": entries.collect::<Vec<_>>(),
    });
    Ok(json_response(list.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_strictly() {
        let read = |query| TopQuery::read(query).map_err(|problem| problem.detail().to_owned());
        assert_eq!(
            read("by=requests&window=10s&n=5"),
            Ok(TopQuery {
                by: TopBy::Requests,
                window: Duration::from_secs(10),
                count: 5
            })
        );
        assert_eq!(
            read("").map(|it| (it.by, it.count)),
            Ok((TopBy::Denied, 20))
        );
        for bad in [
            "by=x",
            "window=2m",
            "window=0s",
            "n=0",
            "n=1001",
            "n=x",
            "m=1",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
