//! The suite that every store must pass.
//!
//! The vectors of `spec/vectors` are decisions and settlements computed by hand or by an
//! independent exact model. [`run`] replays all of them on a store, and fails if any result
//! differs, even by one unit or one microsecond.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::mem;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::band::Band;
use crate::clock::ManualClock;
use crate::context::{RequestContext, RequestContextBuilder, RequestFields};
use crate::decision::{Charge, Decision};
use crate::hold::{HoldId, Settlement};
use crate::limiter::{BandState, Limiter, LimiterError};
use crate::rules::{ActiveRule, RuleSets};
use crate::store::Store;
use crate::time::{Micros, Timestamp};

/// Replays every vector on a new store, which `make` creates on the given clock. Returns the
/// number of steps.
///
/// ```
/// use fluxgate_core::{MemoryStore, conformance};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), conformance::Mismatch> {
/// let steps = conformance::run(async |clock| MemoryStore::with_clock(clock)).await?;
/// assert!(steps > 1_000);
/// # Ok(())
/// # }
/// ```
pub async fn run<S: Store>(make: impl AsyncFn(ManualClock) -> S) -> Result<usize, Mismatch> {
    run_with(make, |rules| rules).await
}

/// Replays every vector like [`run`], with the rules that `convert` returns in place of its own:
/// the same rules, after they were written and read in another form. It is called in the order
/// of the files, the vectors and, in each, the rules at its start and those that replace them.
pub async fn run_with<S: Store>(
    make: impl AsyncFn(ManualClock) -> S,
    mut convert: impl FnMut(RuleSets) -> RuleSets,
) -> Result<usize, Mismatch> {
    let mut steps = 0;
    for path in vector_files()? {
        let text = std::fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
        let vectors: Vec<Vector> =
            serde_json::from_str(&text).map_err(|error| unreadable(&path, &error))?;
        for vector in vectors {
            let vector = vector.convert_rules(&mut convert);
            let clock = ManualClock::new(Timestamp::default());
            let store = make(clock.clone()).await;
            let place = format!("{}: {}", path.display(), vector.name);
            let checked = vector.run(store, &clock).await;
            steps += checked.map_err(|what| Mismatch { place, what })?;
        }
    }
    Ok(steps)
}

/// A store that differs from a vector, or a vector that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Mismatch {
    /// The file and the case.
    pub place: String,
    /// The step with its expected and actual result, or why the vector is invalid.
    pub what: String,
}

fn vector_files() -> Result<Vec<PathBuf>, Mismatch> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/vectors"));
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    files.sort();
    if files.is_empty() {
        return Err(unreadable(folder, &"no vectors"));
    }
    Ok(files)
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Mismatch {
    Mismatch {
        place: path.display().to_string(),
        what: error.to_string(),
    }
}

/// The rule set of every vector.
const SET: &str = "s";

/// A case of a vector file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    name: String,
    rules: RuleSets,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    /// In microseconds.
    at: u64,
    #[serde(flatten)]
    action: Action,
    /// Null if the step has no result.
    #[serde(default)]
    expect: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Check(Request),
    Peek(Request),
    Settle(RealCost),
    Renew {
        hold: String,
        hold_us: u64,
    },
    /// The name of a hold.
    Release(String),
    /// The name of a reservation.
    Cancel(String),
    Refund(Target),
    Reset(Target),
    State(Target),
    Replace(RuleSets),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    ip: Option<IpAddr>,
    user: Option<String>,
    api_key: Option<String>,
    path: Option<String>,
    cost: Option<u64>,
    #[serde(default)]
    attributes: BTreeMap<String, u64>,
    /// The name of its hold, if it asks for one.
    hold: Option<String>,
    hold_us: Option<u64>,
    /// The name of its reservation, if it has to wait.
    reservation: Option<String>,
}

/// The cost that a hold is settled with: as reserved if neither is given.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RealCost {
    hold: String,
    cost: Option<u64>,
    attributes: Option<BTreeMap<String, u64>>,
}

/// A rule and, unless the action is on the whole rule, an identity.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    rule: String,
    identity: Option<Vec<String>>,
    #[serde(default)]
    units: u64,
}

/// The holds and reservations of a vector, by their names.
#[derive(Default)]
struct Named {
    holds: BTreeMap<String, HoldId>,
    reservations: BTreeMap<String, Charge>,
}

impl Vector {
    fn convert_rules(mut self, convert: &mut impl FnMut(RuleSets) -> RuleSets) -> Self {
        self.rules = convert(self.rules);
        for step in &mut self.steps {
            if let Action::Replace(rules) = &mut step.action {
                *rules = convert(mem::take(rules));
            }
        }
        self
    }

    /// Takes all steps. Returns their number, or a message about the first that differs.
    async fn run<S: Store>(self, store: S, clock: &ManualClock) -> Result<usize, String> {
        let limiter = Limiter::new(self.rules, store);
        let mut named = Named::default();
        let count = self.steps.len();
        for (index, step) in self.steps.into_iter().enumerate() {
            clock.set(Timestamp::saturating_from_micros(step.at));
            let actual = step.action.run(&limiter, &mut named).await;
            let (actual, expected) = (actual.map_err(|error| error.to_string())?, step.expect);
            if actual != expected {
                return Err(format!(
                    "step {index}: expected {expected}, but it was {actual}"
                ));
            }
        }
        Ok(count)
    }
}

impl Action {
    /// Takes the step and returns its result.
    async fn run<S: Store>(
        self,
        limiter: &Limiter<S>,
        named: &mut Named,
    ) -> Result<Value, LimiterError> {
        Ok(match self {
            Self::Check(request) => {
                let context = request.context();
                let decision = limiter.check(SET, &context).await;
                let mut result = show_decision(&decision);
                if let (Some(name), Some(charge)) =
                    (&request.reservation, decision.charge(&context))
                {
                    named.reservations.insert(name.clone(), charge);
                }
                if let Some(name) = &request.hold {
                    result["held"] = decision.hold().is_some().into();
                    named.set_hold(name, decision.hold());
                }
                result
            }
            Self::Peek(request) => show_decision(&limiter.peek(SET, &request.context()).await),
            Self::Settle(real) => {
                let costs = real.attributes.iter().flatten();
                let costs: Vec<_> = costs.map(|(name, units)| (&**name, *units)).collect();
                let settlement = match real.cost {
                    Some(cost) => Settlement::Cost(cost),
                    None if real.attributes.is_some() => Settlement::Attributes(&costs),
                    None => Settlement::AsReserved,
                };
                let settled = limiter.settle(named.hold(&real.hold), settlement).await?;
                let units = settled.unwrap_or_default();
                json!({
                    "settled": settled.is_some(),
                    "charged": units.charged,
                    "uncharged": units.uncharged,
                })
            }
            Self::Release(hold) => {
                let settled = limiter
                    .settle(named.hold(&hold), Settlement::RELEASE)
                    .await?;
                json!({ "released": settled.is_some() })
            }
            Self::Renew { hold, hold_us } => {
                let span = Micros::new(hold_us).as_duration();
                json!({ "renewed": limiter.renew(named.hold(&hold), span).await? })
            }
            Self::Cancel(reservation) => {
                let charge = named.reservations.remove(&reservation);
                if let Some(charge) = charge {
                    limiter.cancel(charge).await?;
                }
                Value::Null
            }
            Self::Refund(target) => {
                let Target { rule, units, .. } = &target;
                let left = limiter
                    .refund(SET, rule, &target.identity(), *units)
                    .await?;
                json!({ "remaining": left })
            }
            Self::Reset(target) => json!({ "reset": match &target.identity {
                Some(_) => limiter.reset(SET, &target.rule, &target.identity()).await?,
                None => limiter.reset_rule(SET, &target.rule).await?,
            } }),
            Self::State(target) => {
                let state = limiter.state(SET, &target.rule, &target.identity()).await?;
                json!({ "bands": state.iter().map(show_band).collect::<Vec<_>>() })
            }
            Self::Replace(rules) => {
                limiter.replace_rules(rules).await?;
                Value::Null
            }
        })
    }
}

impl Request {
    fn context(&self) -> RequestContext<'_> {
        fn text(text: &Option<String>) -> Option<Cow<'_, str>> {
            text.as_deref().map(Cow::from)
        }
        let mut context = RequestContextBuilder::from(RequestFields {
            ip: self.ip,
            user: text(&self.user),
            api_key: text(&self.api_key),
            path: text(&self.path),
            cost: self.cost,
            ..RequestFields::default()
        });
        for (name, units) in &self.attributes {
            context = context.attribute(name, units.to_string());
        }
        if self.hold.is_some() {
            context = context.held();
        }
        if let Some(span) = self.hold_us {
            context = context.hold_for(Micros::new(span));
        }
        context.build()
    }
}

impl Target {
    fn identity(&self) -> Vec<&str> {
        self.identity.iter().flatten().map(|it| &**it).collect()
    }
}

impl Named {
    /// Returns the id of a hold. A name that holds nothing gets an id that no hold has.
    fn hold(&self, name: &str) -> HoldId {
        self.holds.get(name).copied().unwrap_or_else(HoldId::random)
    }

    fn set_hold(&mut self, name: &str, id: Option<HoldId>) {
        match id {
            Some(id) => self.holds.insert(name.into(), id),
            None => self.holds.remove(name),
        };
    }
}

fn show_decision(decision: &Decision) -> Value {
    let violated: Vec<_> = decision.violated().map(|it| it.to_string()).collect();
    json!({
        "allowed": decision.allowed(),
        "outcome": decision.outcome(),
        "rule": decision.rule().map(ActiveRule::id),
        "band": decision.band().map(Band::id),
        "limit": decision.limit(),
        "remaining": decision.remaining(),
        "retry_after_us": decision.retry().after().map(Micros::get),
        "reset_after_us": decision.reset_micros().get(),
        "delay_us": decision.delay_micros().get(),
        "violated": violated,
    })
}

fn show_band(state: &BandState) -> Value {
    json!({
        "band": state.band.id(),
        "limit": state.band.limit().capacity(),
        "remaining": state.remaining,
        "reset_after_us": Micros::from_duration(state.reset_after).get(),
    })
}
