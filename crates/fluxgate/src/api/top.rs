//! `GET /v1/top`: the heaviest identities of the last minute, over all instances.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use fluxgate_core::rules::values::parse_duration;
use fluxgate_http::Problem;
use http::request::Parts;
use serde_json::{Map, Value, json};

use super::identity::open_handle;
use super::query;
use super::response::{ApiResult, compressed_json};
use super::state::SharedState;
use crate::admin::Role;
use crate::identities::{HandleTarget, Identities};
use crate::telemetry::{MAX_WINDOW, OutcomeCounts, TopBy, TopOutcome};
use crate::usage::{FleetEntry, FleetTop, OwnTop, RuleNames, TopWindow};

const DEFAULT_COUNT: usize = 20;
const MAX_COUNT: usize = 1000;
const MIN_WINDOW: Duration = Duration::from_secs(1);
/// How many identities of this instance are listed before they are filtered.
const MAX_OWN: usize = 5000;

#[derive(Debug, PartialEq, Eq)]
struct TopQuery {
    by: TopBy,
    window: Duration,
    count: usize,
    rule_set: Option<String>,
    rule: Option<String>,
    /// `PART=VALUE` texts.
    identity: Vec<String>,
    handle: Option<String>,
    outcome: Option<TopOutcome>,
}

impl TopQuery {
    fn read(query: &str) -> Result<Self, Problem> {
        let mut wanted = Self {
            by: TopBy::Denied,
            window: MAX_WINDOW,
            count: DEFAULT_COUNT,
            rule_set: None,
            rule: None,
            identity: Vec::new(),
            handle: None,
            outcome: None,
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
                "rule_set" => wanted.rule_set = Some(value),
                "rule" => wanted.rule = Some(value),
                "identity" => wanted.identity.push(value),
                "handle" => wanted.handle = Some(value),
                "outcome" => {
                    let names = TopOutcome::ALL.map(|(name, _)| name).join(", ");
                    let mut known = TopOutcome::ALL.into_iter();
                    let known = known.find(|(name, _)| *name == value);
                    let known = known.ok_or_else(|| query::expected("outcome", &names, &value));
                    wanted.outcome = Some(known?.1);
                }
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
    let identities = Arc::clone(api.engine.identities());
    if let Some(handle) = &query.handle {
        open_handle(&identities, handle)?;
    }
    let filter = identities.filter(&query.identity);
    let filter = filter.map_err(|error| Problem::bad_request(format!("`identity`: {error}")))?;
    let is_fleet = api.engine.store().redis().is_some();
    let covering = TopWindow::covering(query.window);
    // Instances share whole windows.
    let window = if is_fleet {
        covering.as_duration()
    } else {
        query.window
    };
    let names = RuleNames::of(&api.engine);
    let telemetry = Arc::clone(api.engine.telemetry());
    // Identities of removed rules are left out.
    let by = query.by;
    let own = {
        let identities = Arc::clone(&identities);
        move || {
            let top = telemetry.top(by, window, MAX_OWN, |rule, _| names.knows(rule));
            let handle = |rule, identity: &[u8]| names.handle(&identities, rule, identity);
            Ok(OwnTop::new(top, MAX_OWN, handle))
        }
    };
    let own = api.read_pool.run(own).await?;
    let top = api
        .usage
        .fleet_top(&api.engine, &api.instances, covering, query.by, own);
    let FleetTop {
        total,
        error,
        instances,
        failure,
        entries,
    } = top.await;
    let names = RuleNames::of(&api.engine);
    let work = move || {
        let is_wanted = |wanted: &Option<String>, name: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == name)
        };
        let mut listed: Vec<Listed> = entries
            .into_iter()
            .filter_map(|entry| Listed::new(entry, &names, &identities, query.outcome))
            .filter(|it| {
                let target = it.target.as_ref();
                let has_identity = match target {
                    Some(target) => identities.matches(&filter, &target.identity),
                    None => query.identity.is_empty(),
                };
                has_identity
                    && query
                        .handle
                        .as_ref()
                        .is_none_or(|it2| it.handle.as_ref() == Some(it2))
                    && is_wanted(&query.rule_set, &it.rule_set)
                    && is_wanted(&query.rule, &it.rule)
            })
            .collect();
        listed.sort_by(|a, b| (b.count, &a.identity).cmp(&(a.count, &b.identity)));
        listed.truncate(query.count);
        let list = json!({
            "by": match query.by {
                TopBy::Denied => "denied",
                TopBy::Requests => "requests",
            },
            "window_ms": window.as_millis() as u64,
            "total": total,
            "error": error,
            "scope": if is_fleet && failure.is_none() { "fleet" } else { "instance" },
            "instances": instances,
            "failure": failure,
            "entries": listed.iter().map(Listed::json).collect::<Vec<_>>(),
        });
        Ok(list.to_string())
    };
    let json = api.read_pool.run(work).await?;
    Ok(compressed_json(&head.headers, json))
}

/// An identity as it is listed.
struct Listed {
    rule_set: String,
    rule: String,
    identity: String,
    handle: Option<String>,
    /// `None` if the identity is too long.
    target: Option<HandleTarget>,
    count: u64,
    error: u64,
    outcomes: OutcomeCounts,
}

impl Listed {
    /// Creates it from the counts of all instances; `None` if it had no request with `outcome`.
    fn new(
        entry: FleetEntry,
        names: &RuleNames,
        identities: &Identities,
        outcome: Option<TopOutcome>,
    ) -> Option<Self> {
        let FleetEntry {
            handle,
            own,
            error,
            outcomes,
            ..
        } = entry;
        let count = match outcome.map(|outcome| outcomes[outcome as usize]) {
            Some(0) => return None,
            // Those before it was listed may have had it, too.
            Some(count) => count.saturating_add(error),
            None => entry.count,
        };
        let target = match (&handle, &own) {
            (Some(handle), _) => identities.open(handle).ok(),
            (None, Some(own)) => {
                let found = own.encoded().and_then(|it| names.resolve(own.rule, it));
                found.map(|(rule_set, rule, identity)| HandleTarget {
                    identity: identities.stored(&rule_set, &rule, &identity),
                    rule_set,
                    rule,
                })
            }
            (None, None) => return None,
        };
        let (rule_set, rule, identity) = match (&target, &own) {
            (Some(target), _) => {
                let shown = identities.show_live(&target.identity);
                (target.rule_set.clone(), target.rule.clone(), shown)
            }
            (None, Some(own)) => {
                let (rule_set, rule) = names.rule(own.rule)?;
                let shown = identities.show_long(&own.describe());
                (rule_set.into(), rule.into(), shown)
            }
            (None, None) => return None,
        };
        Some(Self {
            rule_set,
            rule,
            identity,
            handle,
            target,
            count,
            error,
            outcomes,
        })
    }

    fn json(&self) -> Value {
        let outcomes = TopOutcome::ALL.iter().zip(self.outcomes);
        let outcomes = outcomes.filter(|(_, count)| *count > 0);
        let outcomes: Map<_, _> = outcomes
            .map(|((name, _), count)| ((*name).to_owned(), json!(count)))
            .collect();
        let mut json = json!({
            "rule_set": self.rule_set,
            "rule": self.rule,
            "identity": self.identity,
            "handle": self.handle,
            "count": self.count,
            "error": self.error,
            "outcomes": outcomes,
        });
        if self.rule_set.is_empty() {
            // A limit that comes with the call.
            json["rule_set"] = Value::Null;
            json["rule"] = Value::Null;
            json["rule_id"] = json!(Some(&self.rule).filter(|name| !name.is_empty()));
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_strictly() {
        let read = |query| TopQuery::read(query).map_err(|problem| problem.detail().to_owned());
        let query = read("by=requests&window=10s&n=5&identity=user=ann&outcome=never").unwrap();
        assert_eq!((query.by, query.count), (TopBy::Requests, 5));
        assert_eq!(query.window, Duration::from_secs(10));
        assert_eq!(query.identity, ["user=ann"]);
        assert_eq!(query.outcome, Some(TopOutcome::Never));
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
            "outcome=x",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
