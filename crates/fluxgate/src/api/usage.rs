//! `GET /v1/usage`: the heaviest identities of a rule, by the share of its limit that they use now.

mod order;
mod search;

use axum::extract::State;
use fluxgate_core::store::Micros;
use fluxgate_core::{Algorithm, BandState, IdentityRef, LimiterError, RuleAction};
use fluxgate_http::Problem;
use futures_util::future::join_all;
use http::request::Parts;
use serde_json::json;

use super::history::history_of;
use super::query;
use super::response::{ApiResult, compressed_json};
use super::state::SharedState;
use crate::admin::Role;
use crate::engine::{Engine, EngineError};
use crate::usage::{HourlyUse, exhausted_in};
use order::{Row, UsageBy};
use search::Search;

const DEFAULT_COUNT: usize = 100;
const MAX_COUNT: usize = 1000;
/// How many identities are looked up at most, of all rules together.
const MAX_CANDIDATES: usize = 1000;
/// How many of a rule are searched at most: as many as are kept.
const MAX_OF_RULE: usize = 4000;
/// How many of each rule at least.
const LEAST_OF_RULE: usize = 10;
/// How many rules are looked up at most if no rule is named.
const MAX_RULES: usize = 500;
/// How many states the store is asked for at once.
const STATES_AT_ONCE: usize = 250;

#[derive(Debug, Default, PartialEq, Eq)]
struct UsageQuery {
    rule_set: Option<String>,
    rule: Option<String>,
    by: UsageBy,
    /// `PART=VALUE` texts.
    identity: Vec<String>,
    search: Option<String>,
    count: Option<usize>,
    /// If it is given, the whole list is made, of which it is a page.
    offset: Option<usize>,
}

impl UsageQuery {
    fn read(query: &str) -> Result<Self, Problem> {
        let mut wanted = Self::default();
        for field in query::fields(query) {
            let (name, value) = field?;
            match &*name {
                "rule_set" => wanted.rule_set = Some(value),
                "rule" => wanted.rule = Some(value),
                "by" => wanted.by = UsageBy::read(&value)?,
                "identity" => wanted.identity.push(value),
                "search" => wanted.search = query::name(value),
                "n" => wanted.count = Some(query::count("n", &value, MAX_COUNT)?),
                "offset" => {
                    let offset = value.parse().ok();
                    let expected = || query::expected("offset", "a whole number", &value);
                    wanted.offset = Some(offset.ok_or_else(expected)?);
                }
                _ => return Err(query::unknown(&name)),
            }
        }
        if wanted.rule.is_some() && wanted.rule_set.is_none() {
            return Err(super::body::missing("rule_set"));
        }
        Ok(wanted)
    }
}

/// An identity of a rule with its use of the last hour.
struct Candidate {
    rule_set: String,
    rule: String,
    used: HourlyUse,
}

/// Returns the bands of the heaviest identities, by the share that they use.
pub(super) async fn usage(State(api): SharedState, head: Parts) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    let query = UsageQuery::read(head.uri.query().unwrap_or_default())?;
    history_of(&api)?;
    let count = query.count.unwrap_or(DEFAULT_COUNT);
    let (engine, usage) = (&api.engine, &api.usage);
    let rules = wanted_rules(engine, &query)?;
    let search = Search::new(
        &query.identity,
        query.search.as_deref(),
        engine.identities(),
    )?;
    let most_of_rule = (MAX_CANDIDATES / rules.len().max(1)).max(LEAST_OF_RULE);
    let each = if !search.finds_all() {
        // Any of them may be wanted.
        MAX_OF_RULE
    } else if query.offset.is_some() {
        most_of_rule
    } else {
        most_of_rule.min(count.max(LEAST_OF_RULE))
    };
    let mut candidates = Vec::new();
    for (rule_set, rule) in rules {
        let found = usage.heaviest(engine, &rule_set, &rule, each).await;
        let mut found = engine.record_failure(found)?;
        found.retain(|used| search.finds(&used.identity));
        candidates.extend(found.into_iter().map(|used| Candidate {
            rule_set: rule_set.clone(),
            rule: rule.clone(),
            used,
        }));
    }
    candidates.sort_by_key(|it| u64::MAX - it.used.units);
    candidates.truncate(MAX_CANDIDATES);
    let mut rows = Vec::new();
    for group in candidates.chunks(STATES_AT_ONCE) {
        // They are ready together, so the store gets them together.
        let states = join_all(group.iter().map(|it| state_of(engine, it))).await;
        for (candidate, bands) in group.iter().zip(states) {
            for band in bands? {
                rows.push(row(engine, candidate, &band));
            }
        }
    }
    rows.retain(|row| query.by.includes(row));
    rows.sort_by(|a, b| query.by.compare(a, b));
    let total = rows.len();
    let page = rows.into_iter().skip(query.offset.unwrap_or_default());
    let page = page.take(count);
    let page: Vec<_> = page.map(|row| row.json).collect();
    Ok(compressed_json(
        &head.headers,
        json!({ "usage": page, "total": total }).to_string(),
    ))
}

/// Returns the rules that are asked for, as the names of their sets and their ids.
fn wanted_rules(engine: &Engine, query: &UsageQuery) -> Result<Vec<(String, String)>, Problem> {
    let limiter = engine.ready_limiter()?;
    let rules = limiter.rules();
    if let Some(rule_set) = &query.rule_set {
        // For the error, if one does not exist.
        let known = rules
            .get(rule_set)
            .ok_or_else(|| EngineError::from(LimiterError::UnknownRuleSet(rule_set.clone())))?;
        if let Some(rule) = &query.rule {
            known.rule(rule).ok_or_else(|| {
                EngineError::from(LimiterError::UnknownRule {
                    rule_set: rule_set.clone(),
                    rule: rule.clone(),
                })
            })?;
        }
    }
    let is_wanted =
        |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|it| it == name);
    let mut wanted = Vec::new();
    for set in rules
        .iter()
        .filter(|set| is_wanted(&query.rule_set, set.name()))
    {
        let limits = set
            .rules()
            .iter()
            .filter(|rule| rule.action() == RuleAction::Limit);
        let limits = limits.filter(|rule| is_wanted(&query.rule, rule.id()));
        wanted.extend(limits.map(|rule| (set.name().to_owned(), rule.id().to_owned())));
    }
    wanted.sort();
    wanted.truncate(MAX_RULES);
    Ok(wanted)
}

/// Returns the bands of an identity; none if its rule has another key, or is gone, by now.
async fn state_of(engine: &Engine, candidate: &Candidate) -> Result<Vec<BandState>, EngineError> {
    let identity = IdentityRef::Stored(&candidate.used.identity);
    let limiter = engine.limiter();
    let state = limiter.state_of(&candidate.rule_set, &candidate.rule, identity);
    match state.await {
        Err(LimiterError::Store(error)) => engine.record_failure(Err(error)),
        bands => Ok(bands.unwrap_or_default()),
    }
}

fn row(engine: &Engine, candidate: &Candidate, state: &BandState) -> Row {
    let Candidate {
        rule_set,
        rule,
        used: HourlyUse { identity, units },
    } = candidate;
    let limit = state.band.limit().capacity();
    // Units on lease are not used yet.
    let remaining = state.remaining.saturating_add(state.on_lease).min(limit);
    let used_units = limit - remaining;
    let reset_after = Micros::from(state.reset_after);
    let exhausted = exhausted_in(state.band.limit(), remaining, reset_after, *units);
    let identities = engine.identities();
    Row {
        is_slots: state.band.limit().algorithm() == Algorithm::Concurrency,
        used_units,
        limit,
        per_hour: *units,
        exhausted,
        json: json!({
            "rule_set": rule_set,
            "rule": rule,
            "band": state.band.id(),
            "identity": identities.show(identity),
            "handle": identities.handle(rule_set, rule, identity),
            "limit": limit,
            "remaining": remaining,
            "used_share": share(used_units, limit),
            "reset_after_ms": reset_after.ceil_millis(),
            "per_hour": units,
            "exhausted_in_ms": exhausted.map(Micros::ceil_millis),
        }),
    }
}

/// Returns a share, in ten-thousandths, rounded down. 1 is all of it.
#[expect(
    clippy::float_arithmetic,
    reason = "only to be looked at; no decision depends on it"
)]
fn share(used: u64, limit: u64) -> f64 {
    // Both are at most 10^9.
    (used * 10_000 / limit.max(1)) as f64 / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_strictly() {
        let query =
            UsageQuery::read("rule_set=api&rule=r&n=5&by=soon&search=an&offset=10").unwrap();
        assert_eq!(
            (query.rule_set.as_deref(), query.count, query.offset),
            (Some("api"), Some(5), Some(10))
        );
        assert_eq!(
            (query.by, query.search.as_deref()),
            (UsageBy::Soon, Some("an"))
        );
        assert_eq!(UsageQuery::read("").unwrap(), UsageQuery::default());
        for bad in ["rule=r", "n=0", "n=1001", "by=x", "offset=-1", "page=1"] {
            assert!(UsageQuery::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_share_is_1_only_if_all_is_used() {
        let all = 1_000_000_000;
        for (used, expected) in [(0, 0.0), (all / 3, 0.3333), (all - 1, 0.9999), (all, 1.0)] {
            assert_eq!(share(used, all).to_string(), expected.to_string());
        }
    }
}
