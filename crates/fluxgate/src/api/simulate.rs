//! `POST /v1/simulate`: what rules would decide, without touching the store.

mod answer;
mod recorded;

use std::sync::Arc;

use axum::extract::{Request, State};
use fluxgate_core::RuleSets;
use fluxgate_core::json::Text;
use fluxgate_core::rules::RuleOptions;
use fluxgate_http::Problem;
use fluxgate_simulate::{Options, Simulation, SimulationError};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::body;
use super::response::{ApiResult, json_response};
use super::state::SharedState;
use crate::admin::Role;
use crate::engine::EngineError;
use answer::{MAX_APPLIED, changes_json, summary_json, valid_rules};

const MAX_EVENTS: usize = 10_000;
/// Events with long texts come near it.
const MAX_BYTES: usize = 8 * 1024 * 1024;
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
    /// Whether to decide the recorded requests of all instances.
    #[serde(default)]
    recent: bool,
    /// Whether to start from the counters as they stood when the recording began.
    #[serde(default)]
    from_state: bool,
}

/// Decides events by rules in the body, or by the active ones.
pub(super) async fn simulate(State(api): SharedState, request: Request) -> ApiResult {
    let (head, body) = request.into_parts();
    api.admin.authorize(&head, Role::Viewer)?;
    let body = body::read_up_to(MAX_BYTES, &head.headers, body).await?;
    let active = api.engine.rules().ok_or(EngineError::NotReady)?;
    let rule_options = api.admin.options;
    let rules = Arc::clone(&active);
    let work = move || {
        let request: SimulateRequest<'_> = body::parse(&body)?;
        if request.recent {
            return Ok(Work::Trial(request.into_trial(rule_options)?));
        }
        if request.from_state {
            return Err(Problem::bad_request("`from_state` needs `recent`"));
        }
        run(request, &rules, rule_options).map(Work::Done)
    };
    let json = match api.read_pool.run(work).await? {
        Work::Done(json) => json,
        Work::Trial(trial) => recorded::run(&api, active, trial).await?,
    };
    Ok(json_response(json))
}

/// What is left to do once a request has been read.
enum Work {
    /// Nothing: this is the answer.
    Done(String),
    /// To try rules on the recorded requests.
    Trial(recorded::RecordedTrial),
}

impl SimulateRequest<'_> {
    /// Returns what to try on the recorded requests.
    fn into_trial(self, rule_options: RuleOptions) -> Result<recorded::RecordedTrial, Problem> {
        if self.events.is_some() {
            return Err(Problem::bad_request(
                "expected `events` or `recent`, found both",
            ));
        }
        Ok(recorded::RecordedTrial {
            rules: self.rules.map(|Text(text)| text.into_owned()),
            rule_set: self.rule_set,
            from_state: self.from_state,
            rule_options,
        })
    }
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
            let rules = valid_rules(&text, rule_options)?;
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
