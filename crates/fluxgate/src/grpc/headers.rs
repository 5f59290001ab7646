//! The rate limit headers that Envoy adds to its response.

use fluxgate_core::{Decision, Outcome};
use fluxgate_http::HeaderFamilies;
use fluxgate_http::server::OUTCOME;
use http::HeaderMap;

use super::messages::HeaderValue;

const POLICY: &str = "ratelimit-policy";

/// Returns the headers of a call: those of one descriptor, with the policies of all.
pub(super) fn response_headers(
    decisions: &[Decision],
    families: HeaderFamilies,
) -> Vec<HeaderValue> {
    let Some(reported) = reported(decisions) else {
        return Vec::new();
    };
    let mut headers = HeaderMap::new();
    families.write(reported, &mut headers);
    if decisions.len() > 1 && families.ietf {
        insert_all_policies(decisions, families, &mut headers);
    }
    if let Outcome::FailedClosed | Outcome::Forbidden = reported.outcome() {
        // Distinguishes it from a used up quota, which has the code OVER_LIMIT too.
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

/// Returns the denied descriptor with the longest wait, or else the one with the fewest
/// remaining units; the first among equals.
fn reported(decisions: &[Decision]) -> Option<&Decision> {
    let precedes = |a: &Decision, b: &Decision| match (a.allowed(), b.allowed()) {
        (false, true) => true,
        (true, false) => false,
        (false, false) => a.retry() > b.retry(),
        (true, true) => match (a.remaining(), b.remaining()) {
            (Some(a), Some(b)) => a < b,
            (a, b) => a.is_some() && b.is_none(),
        },
    };
    decisions
        .iter()
        .reduce(|best, next| if precedes(next, best) { next } else { best })
}

/// Inserts the policies of all descriptors, each once.
fn insert_all_policies(decisions: &[Decision], families: HeaderFamilies, headers: &mut HeaderMap) {
    let mut policies: Vec<String> = Vec::new();
    for decision in decisions {
        let mut own = HeaderMap::new();
        families.write(decision, &mut own);
        let own = own.get(POLICY).and_then(|value| value.to_str().ok());
        // Neither ids nor numbers contain a comma.
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
