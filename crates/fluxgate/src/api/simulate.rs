//! `POST /v1/simulate`: what rules would decide, without touching the store.

use axum::extract::{Request, State};
use fluxgate_core::json::Text;
use fluxgate_core::rules::RuleOptions;
use fluxgate_core::{RuleSets, RulesError};
use fluxgate_http::Problem;
use fluxgate_simulate::{Change, Changes, Options, Simulation, SimulationError, Summary};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::body;
use super::response::{ApiResult, json_response};
use super::state::SharedState;
use super::validate::read_rules;
use crate::admin::Role;
use crate::engine::EngineError;

const MAX_EVENTS: usize = 10_000;
/// Events with long texts come near it.
const MAX_BYTES: usize = 8 * 1024 * 1024;
/// How many rules are applied to events in all: 20 to each, if there are as many as allowed.
/// Each counter takes memory until the end.
const MAX_APPLIED: u64 = 200_000;
const MAX_WARNINGS: usize = 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SimulateRequest<'a> {
    #[serde(borrow)]
    rules: Option<Text<'a>>,
    rule_set: Option<String>,
    #[serde(borrow)]
    events: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    lenient: bool,
}

/// Decides events by rules in the body, or by the active ones.
pub(super) async fn simulate(State(api): SharedState, request: Request) -> ApiResult {
    let (head, body) = request.into_parts();
    api.admin.authorize(&head, Role::Viewer)?;
    let body = body::read_up_to(MAX_BYTES, &head.headers, body).await?;
    let active = api.engine.rules().ok_or(EngineError::NotReady)?;
    let rule_options = api.admin.options;
    let work = move || run(body::parse(&body)?, &active, rule_options);
    Ok(json_response(api.read_pool.run(work).await?))
}

fn run(
    request: SimulateRequest<'_>,
    active: &RuleSets,
    rule_options: RuleOptions,
) -> Result<String, Problem> {
    let events = request.events.ok_or_else(|| body::missing("events"))?;
    if events.len() > MAX_EVENTS {
        let detail = format!(
            "`events` has {}; at most {MAX_EVENTS} are allowed",
            events.len()
        );
        return Err(Problem::bad_request(detail));
    }
    let options = Options {
        rule_set: request.rule_set,
        lenient: request.lenient,
        summary: true,
        max_applied: Some(MAX_APPLIED),
        ..Options::default()
    };
    let mut simulation = match request.rules {
        Some(Text(text)) => {
            let rules = read_rules(&text, rule_options).map_err(|RulesError(faults)| {
                Problem::bad_request("the rules are invalid").with_faults(faults)
            });
            let (_, rules) = rules?;
            Simulation::new(rules, options).against(active.clone())
        }
        None => Simulation::new(active.clone(), options),
    };
    let mut lines = Vec::new();
    for event in events {
        // Each is one line; a string in JSON has no line breaks.
        let bytes = event.get().bytes();
        lines.extend(bytes.map(|byte| {
            if matches!(byte, b'\n' | b'\r') {
                b' '
            } else {
                byte
            }
        }));
        lines.push(b'\n');
    }
    let mut decisions = Vec::new();
    let result = simulation.run(&lines[..], &mut decisions, |_| {});
    result.map_err(|error| match error {
        SimulationError::BadLine { line, reason } => {
            Problem::bad_request(format!("`events[{}]`: {reason}", line - 1))
        }
        SimulationError::TooMuch { line, max } => Problem::bad_request(format!(
            "`events[{}]`: the events before it were counted by {max} rules in all, the most \
             that is allowed",
            line - 1
        )),
        error => Problem::bad_request(error.to_string()),
    })?;
    let mut answer = String::from("{\"decisions\":[");
    // The simulation writes UTF-8.
    let decisions = String::from_utf8(decisions).unwrap_or_default();
    for (index, decision) in decisions.lines().enumerate() {
        answer.push_str(if index == 0 { "" } else { "," });
        answer.push_str(decision);
    }
    let summary = simulation.summary().map(summary_json);
    let changes = simulation.changes().map(changes_json);
    let (summary, changes) = (json!(summary), json!(changes));
    let mut warnings = simulation.warnings();
    warnings.truncate(MAX_WARNINGS);
    let (skipped, warnings) = (simulation.skipped(), json!(warnings));
    answer.push_str(&format!(
        "],\"summary\":{summary},\"changes\":{changes},\"skipped\":{skipped},\"warnings\":{warnings}}}"
    ));
    Ok(answer)
}

fn summary_json(summary: &Summary) -> Value {
    let total = summary.total();
    let rules = summary.rules().map(|(name, counts)| {
        let (rule_set, rule) = name.rsplit_once('/').unwrap_or(("", name));
        json!({
            "rule_set": rule_set,
            "rule": rule,
            "requests": counts.requests,
            "allowed": counts.allowed(),
            "denied": counts.denied,
            "shadow_denied": counts.shadow_denied,
        })
    });
    json!({
        "total": {
            "requests": total.requests,
            "allowed": total.allowed(),
            "denied": total.denied,
            "shadow_denied": total.shadow_denied,
        },
        "rules": rules.collect::<Vec<_>>(),
    })
}

fn changes_json(changes: &Changes) -> Value {
    let mut identities = Vec::new();
    for (change, name) in [
        (Change::NewlyDenied, "newly_denied"),
        (Change::NewlyAdmitted, "newly_allowed"),
    ] {
        for changed in changes.identities(change) {
            let (rule_set, rule) = changed.rule.rsplit_once('/').unwrap_or(("", changed.rule));
            let mut identity = json!({
                "rule_set": rule_set,
                "rule": rule,
                "identity": changed.identity,
                "newly_denied": 0,
                "newly_allowed": 0,
            });
            identity[name] = changed.requests.into();
            identities.push(identity);
        }
    }
    let total = changes.total();
    json!({
        "newly_denied": total.newly_denied,
        "newly_allowed": total.newly_admitted,
        "identities": identities,
    })
}
