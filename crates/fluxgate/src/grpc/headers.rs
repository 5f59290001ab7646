//! The rate limit headers, which Envoy adds to its response.

use fluxgate_core::{Decision, Outcome};
use fluxgate_tower::HeaderFamilies;
use http::HeaderMap;

use super::messages::HeaderValue;
use crate::http::OUTCOME;

const POLICY: &str = "ratelimit-policy";

/// Returns the headers of a call: those of its most important descriptor, with the
/// policies of all.
pub(super) fn of_call(decisions: &[Decision], families: HeaderFamilies) -> Vec<HeaderValue> {
    let Some(reported) = reported(decisions) else {
        return Vec::new();
    };
    let mut headers = HeaderMap::new();
    families.write(reported, &mut headers);
    if decisions.len() > 1 && families.ietf {
        put_all_policies(decisions, families, &mut headers);
    }
    if reported.outcome() == Outcome::FailedClosed {
        // The code OVER_LIMIT alone would mean that the quota is used up.
        let outcome = reported.outcome().name();
        headers.insert(OUTCOME, http::HeaderValue::from_static(outcome));
    }
    let headers = headers.iter().filter_map(|(name, value)| {
        Some(HeaderValue {
            key: name.as_str().to_owned(),
            value: value.to_str().ok()?.to_owned(),
        })
    });
    headers.collect()
}

/// Returns the denied descriptor with the longest wait, or else the one with the least
/// remaining; the first among equals.
fn reported(decisions: &[Decision]) -> Option<&Decision> {
    let better = |one: &Decision, than: &Decision| match (one.allowed(), than.allowed()) {
        (false, true) => true,
        (true, false) => false,
        (false, false) => one.retry_after() > than.retry_after(),
        (true, true) => match (one.remaining(), than.remaining()) {
            (Some(one), Some(than)) => one < than,
            (one, than) => one.is_some() && than.is_none(),
        },
    };
    decisions
        .iter()
        .reduce(|best, next| if better(next, best) { next } else { best })
}

/// Names every policy once, though several descriptors may have met it.
fn put_all_policies(decisions: &[Decision], families: HeaderFamilies, headers: &mut HeaderMap) {
    let mut policies: Vec<String> = Vec::new();
    for decision in decisions {
        let mut own = HeaderMap::new();
        families.write(decision, &mut own);
        let own = own.get(POLICY).and_then(|value| value.to_str().ok());
        // Neither ids nor numbers have a comma in them.
        for policy in own.into_iter().flat_map(|own| own.split(',')) {
            if policies.iter().all(|known| known != policy) {
                policies.push(policy.to_owned());
            }
        }
    }
    if let Ok(value) = policies.join(",").try_into()
        && !policies.is_empty()
    {
        headers.insert(POLICY, value);
    }
}
