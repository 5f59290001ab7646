//! What rules would have decided about the recorded requests of all instances.
//!
//! The trial answers: what if these rules had been applied when the recording began? So it starts from
//! the counters as they stood then, which [`CounterTrace`] derives from the state of now and from what
//! was recorded since. The active rules are tried in the same way: where they decide as was recorded,
//! the trial can be believed, and the answer says how often that is. What was really decided stands
//! beside it.
//!
//! Requests whose outcome is not that of the rules are left out: those that were decided while the
//! store failed, and those that a rule with slots refused, because nothing records when slots are
//! released. For the same reason slots are not counted at all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::rules::RuleOptions;
use fluxgate_core::store::Micros;
use fluxgate_core::{
    BandState, IdentityRef, LimiterError, Outcome, RequestContextBuilder, RuleSets, Timestamp,
};
use fluxgate_http::Problem;
use fluxgate_simulate::{
    CounterTrace, Options, RecordedDecision, Simulation, SimulationError, StartCharge,
};
use futures_util::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};

use super::answer::{MAX_APPLIED, changes_json_naming, summary_json, valid_rules};
use crate::api::state::ApiState;
use crate::engine::EngineError;
use crate::recording::{FleetRecording, RequestFilter, context_of};
use crate::telemetry::{RecentRequest, unix_time};

/// How many identities start from their state; those with the most requests. The others start from
/// what the record shows.
const MAX_STATES: usize = 5000;
/// How many states the store is asked for at once.
const STATES_AT_ONCE: usize = 250;
/// How long other instances have to answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// Slots are released at once.
const SLOT_SPAN: Micros = Micros::new(1);

/// What to try.
pub(super) struct RecordedTrial {
    /// The text of a rule file; `None` for the active rules.
    pub(super) rules: Option<String>,
    /// The only rule set whose requests are tried.
    pub(super) rule_set: Option<String>,
    /// Whether to start from the counters as they stood when the recording began.
    pub(super) from_state: bool,
    pub(super) rule_options: RuleOptions,
}

/// The recorded requests of a trial.
struct Record {
    requests: Vec<RecentRequest>,
    left_out: LeftOut,
    /// When the active rules were applied, if that is known to be within the recording.
    changed_ms: Option<u64>,
}

/// How many requests are left out, by reason.
#[derive(Default)]
struct LeftOut {
    other_sets: usize,
    slots: usize,
    store_failed: usize,
}

/// How a trial of some rules went.
struct Tried {
    simulation: Simulation,
    delayed: u64,
    /// How many requests were decided as recorded.
    as_recorded: u64,
}

/// Tries rules on the recorded requests. Returns the answer as JSON.
pub(super) async fn run(
    api: &Arc<ApiState>,
    active: Arc<RuleSets>,
    trial: RecordedTrial,
) -> Result<String, Problem> {
    let (text, options) = (trial.rules, trial.rule_options);
    let rules = match text {
        None => None,
        // In turn: what was recorded is of no use if the rules have faults.
        Some(text) => {
            let read = move || valid_rules(&text, options);
            Some(api.read_pool.run(read).await?)
        }
    };
    let wanted = RequestFilter::default();
    let others = api
        .recordings
        .others(&api.engine, &api.instances, &wanted, PATIENCE)
        .await;
    let engine = Arc::clone(&api.engine);
    let with_own = move || Ok(others.with_own(&engine, &wanted));
    let mut fleet = api.read_pool.run(with_own).await?;
    if fleet.recording == 0 {
        let detail = "requests are not recorded: set `admin: { record: true }` in the config";
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    }
    let requests = std::mem::take(&mut fleet.requests);
    let record = Record::of(requests, trial.rule_set.as_deref(), &active);
    let changed_ms = record.changed_ms(api, trial.rule_set).await;
    let record = Record {
        changed_ms,
        ..record
    };
    let (record, start) = if trial.from_state {
        start_of(api, record, &active).await?
    } else {
        (record, Start::default())
    };
    let identities = Arc::clone(api.engine.identities());
    let work = move || {
        let decisions = record.decisions();
        let before = try_rules(simulation(&active, &active, &start), &decisions)?;
        let after = match rules {
            None => None,
            Some(rules) => {
                let new = Simulation::new(rules, trial_options()).against((*active).clone());
                Some(try_rules(
                    new.starting_from(&active, &start.charges),
                    &decisions,
                )?)
            }
        };
        let changes = after.as_ref().and_then(|it| it.simulation.changes());
        let changes = changes.map(|changes| {
            changes_json_naming(changes, |rule_set, rule, changed| {
                let identity = identities.stored(rule_set, rule, changed.encoded);
                json!({
                    "identity": identities.show(&identity),
                    "handle": identities.handle(rule_set, rule, &identity),
                })
            })
        });
        let tried = after.as_ref().unwrap_or(&before);
        let answer = json!({
            "summary": tried.summary(),
            "active": before.summary(),
            "changes": changes,
            "recorded": record.to_json(&decisions, &fleet),
            "start": {
                "from_state": trial.from_state,
                "counters": start.counters,
                "charged": start.charges.len(),
                "as_recorded": before.as_recorded,
            },
            "warnings": tried.simulation.warnings(),
        });
        Ok(answer.to_string())
    };
    api.read_pool.run(work).await
}

/// The counters when the recording began.
#[derive(Default)]
struct Start {
    /// How many counters the requests have.
    counters: usize,
    charges: Vec<StartCharge>,
}

fn trial_options() -> Options {
    Options {
        summary: true,
        max_applied: Some(MAX_APPLIED),
        ..Options::default()
    }
}

fn simulation(rules: &RuleSets, active: &RuleSets, start: &Start) -> Simulation {
    let simulation = Simulation::new(rules.clone(), trial_options());
    simulation.starting_from(active, &start.charges)
}

impl Record {
    fn of(requests: Vec<RecentRequest>, rule_set: Option<&str>, active: &RuleSets) -> Self {
        let mut left_out = LeftOut::default();
        let takes_slots = |request: &RecentRequest| {
            let set = request.rule_set.as_deref().and_then(|set| active.get(set));
            let rule = set.zip(request.rule.as_deref());
            rule.and_then(|(set, rule)| set.rule(rule))
                .is_some_and(|rule| rule.takes_slots())
        };
        let kept = requests.into_iter().filter(|request| {
            let counter = match request.outcome {
                _ if rule_set.is_some() && request.rule_set.as_deref() != rule_set => {
                    &mut left_out.other_sets
                }
                Some(Outcome::FailedOpen | Outcome::FailedClosed | Outcome::Fallback) | None => {
                    &mut left_out.store_failed
                }
                Some(Outcome::Denied | Outcome::Never) if takes_slots(request) => {
                    &mut left_out.slots
                }
                _ => return true,
            };
            *counter += 1;
            false
        });
        Self {
            requests: kept.collect(),
            left_out,
            changed_ms: None,
        }
    }

    /// Returns when the rules changed last since the recording began.
    async fn changed_ms(&self, api: &ApiState, rule_set: Option<String>) -> Option<u64> {
        let first = self.requests.first()?.at.as_millis() as u64;
        let now = unix_time().as_millis() as u64;
        api.history
            .as_ref()?
            .last_change(rule_set, first, now)
            .await
    }

    fn decisions(&self) -> Vec<RecordedDecision<'_>> {
        let decisions = self.requests.iter().filter_map(|request| {
            let context = RequestContextBuilder::from(context_of(request));
            Some(RecordedDecision {
                at: instant(request)?,
                rule_set: request.rule_set.as_deref()?,
                context: context.hold_for(SLOT_SPAN).build(),
                outcome: request.outcome?,
                rule: request.rule.as_deref(),
            })
        });
        decisions.collect()
    }

    fn to_json(&self, decisions: &[RecordedDecision<'_>], fleet: &FleetRecording) -> Value {
        let mut rules: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        let (mut denied, mut shadow_denied) = (0_u64, 0_u64);
        for decision in decisions {
            shadow_denied += u64::from(decision.outcome == Outcome::ShadowDenied);
            if is_denial(decision.outcome) {
                denied += 1;
                if let Some(rule) = decision.rule {
                    *rules.entry((decision.rule_set, rule)).or_default() += 1;
                }
            }
        }
        let rules = rules.iter().map(|((rule_set, rule), denied)| {
            json!({ "rule_set": rule_set, "rule": rule, "denied": denied })
        });
        let millis = |request: Option<&RecentRequest>| request.map(|it| it.at.as_millis() as u64);
        let requests = decisions.len() as u64;
        json!({
            "from_ms": millis(self.requests.first()),
            "to_ms": millis(self.requests.last()),
            "total": {
                "requests": requests,
                "allowed": requests - denied,
                "denied": denied,
                "shadow_denied": shadow_denied,
            },
            "rules": rules.collect::<Vec<_>>(),
            "left_out": {
                "other_sets": self.left_out.other_sets,
                "slots": self.left_out.slots,
                "store_failed": self.left_out.store_failed,
            },
            "rules_changed_ms": self.changed_ms,
            "instances": {
                "known": fleet.known,
                "answered": fleet.answered,
                "recording": fleet.recording,
            },
            "failure": fleet.failure,
        })
    }
}

/// Finds the counters as they stood when the recording began.
async fn start_of(
    api: &Arc<ApiState>,
    record: Record,
    active: &Arc<RuleSets>,
) -> Result<(Record, Start), Problem> {
    let Some(start) = record.requests.first().and_then(instant) else {
        return Ok((record, Start::default()));
    };
    let rules = Arc::clone(active);
    let work = move || {
        let since = record.changed_ms.unwrap_or_default().saturating_mul(1000);
        let since = Timestamp::from_micros(since).unwrap_or_default();
        let traces = CounterTrace::all(&rules, &record.decisions(), since);
        Ok((record, traces))
    };
    let (record, traces) = api.read_pool.run(work).await?;
    let mut states = Vec::new();
    for group in traces[..traces.len().min(MAX_STATES)].chunks(STATES_AT_ONCE) {
        // They are ready together, so the store gets them together.
        for state in join_all(group.iter().map(|trace| state_of(api, trace))).await {
            states.push(state?);
        }
    }
    let now = Timestamp::from_micros(unix_time().as_micros() as u64).unwrap_or(start);
    let states = states
        .into_iter()
        .map(Some)
        .chain(std::iter::repeat_with(|| None));
    let charges = traces
        .iter()
        .zip(states)
        .flat_map(|(trace, state)| trace.start_charges(start, state.as_deref(), now));
    let start = Start {
        charges: charges.collect(),
        counters: traces.len(),
    };
    Ok((record, start))
}

/// Returns the bands of an identity as they are now; none if its rule is gone by now.
async fn state_of(api: &ApiState, trace: &CounterTrace) -> Result<Vec<BandState>, EngineError> {
    let (engine, rule_set, rule) = (&api.engine, trace.rule_set(), trace.rule());
    let identity = engine.identities().stored(rule_set, rule, trace.identity());
    let identity = IdentityRef::Stored(&identity);
    let state = engine.limiter().state_of(rule_set, rule, identity).await;
    match state {
        Err(LimiterError::Store(error)) => engine.record_failure(Err(error)),
        bands => Ok(bands.unwrap_or_default()),
    }
}

fn try_rules(
    mut simulation: Simulation,
    decisions: &[RecordedDecision<'_>],
) -> Result<Tried, Problem> {
    let (mut delayed, mut as_recorded) = (0, 0);
    for recorded in decisions {
        let context = recorded.context.clone();
        let tried = simulation.decide_request(recorded.rule_set, context, recorded.at);
        let tried = tried.map_err(|error| match error {
            SimulationError::TooMuch { line, max } => Problem::bad_request(format!(
                "request {line}: the requests before it were counted by {max} rules in all, the \
                 most that is allowed; try one rule set"
            )),
            error => Problem::bad_request(error.to_string()),
        })?;
        delayed += u64::from(tried.delay_micros() > Micros::ZERO);
        as_recorded += u64::from(tried.allowed() != is_denial(recorded.outcome));
    }
    Ok(Tried {
        simulation,
        delayed,
        as_recorded,
    })
}

impl Tried {
    fn summary(&self) -> Value {
        let mut summary = json!(self.simulation.summary().map(summary_json));
        summary["total"]["delayed"] = self.delayed.into();
        summary
    }
}

fn is_denial(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Denied | Outcome::Never | Outcome::Forbidden
    )
}

fn instant(request: &RecentRequest) -> Option<Timestamp> {
    Timestamp::from_micros(u64::try_from(request.at.as_micros()).ok()?)
}
