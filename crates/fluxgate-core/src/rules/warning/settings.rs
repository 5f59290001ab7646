//! Settings without effect: methods in the wrong case, costs that no request can pay, leases, and
//! lists that no rule uses.

use std::collections::HashSet;

use crate::band::Band;
use crate::lease::{BandLease, Lease, MIN_LEASED_UNITS};
use crate::limit::Algorithm;
use crate::matcher::{ValueMatch, Values};
use crate::rules::cost::Cost;
use crate::rules::fault::{FaultCollector, RuleFault, Step};
use crate::rules::rule::{Rule, RuleMode};
use crate::rules::set::RuleSet;

/// The methods of RFC 9110 and RFC 5789.
const STANDARD: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];

/// Warns of methods that differ from a standard one only by case.
pub(super) fn warn_of_methods(methods: &[Box<str>], warnings: &mut FaultCollector<'_>) {
    for (index, method) in methods.iter().enumerate() {
        let mut standard = STANDARD.iter();
        let standard = standard.find(|known| known.eq_ignore_ascii_case(method));
        if let Some(standard) = standard.filter(|standard| **standard != &**method) {
            let message = format!(
                "method `{method}` does not match `{standard}`: methods are case-sensitive"
            );
            let place = [Step::Field("methods"), Step::Index(index)];
            warnings.field("match", |warnings| warnings.add_at(place, message));
        }
    }
}

/// Warns if a request needs more slots than there are.
///
/// A rate below the cost is no mistake: it is how a rule denies all requests that it matches.
pub(super) fn warn_of_costs(rule: &Rule, warnings: &mut FaultCollector<'_>) {
    let (Cost::Fixed(cost), RuleMode::Enforce) = (&rule.cost, rule.mode) else {
        return;
    };
    let mut bands = rule.bands.iter();
    let too_small =
        bands.find(|band| band.algorithm() == Algorithm::Concurrency && band.capacity() < *cost);
    if let Some(band) = too_small {
        let (capacity, id) = (band.capacity(), band.id());
        let message = format!(
            "the cost {cost} is above the capacity {capacity} of band `{id}`: every request is denied"
        );
        warnings.add_in("cost", message);
    }
}

/// Warns of a lease that has no effect on a rule or on a band, and of costs that it never
/// lets pass.
pub(super) fn warn_of_lease(rule: &Rule, warnings: &mut FaultCollector<'_>) {
    let Some(lease) = &rule.lease else { return };
    if let Some(exact) = exact(rule) {
        let message = format!("`lease` has no effect on a rule with `{exact}`");
        return warnings.add_in("lease", message);
    }
    warn_of_bands(rule, lease, &rule.bands, warnings);
    for (index, own) in rule.overrides.iter().enumerate() {
        warnings.item("overrides", index, |warnings| {
            warn_of_bands(rule, lease, &own.bands, warnings);
        });
    }
}

/// Returns the setting for which all requests are decided call by call, if there is one.
/// All bands of a rule have the same algorithm.
fn exact(rule: &Rule) -> Option<&'static str> {
    let limit = rule.bands.first()?.limit();
    Some(match limit.algorithm() {
        _ if rule.mode == RuleMode::Shadow => "mode: shadow",
        _ if rule.max_wait.is_some() => "on_exceed: wait",
        _ if limit.rate().shape() => "shape: true",
        Algorithm::SlidingLog => "algorithm: sliding_log",
        Algorithm::SlidingWindow => "algorithm: sliding_window",
        Algorithm::Concurrency => "algorithm: concurrency",
        Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::FixedWindow => return None,
    })
}

fn warn_of_bands(rule: &Rule, lease: &Lease, bands: &[Band], warnings: &mut FaultCollector<'_>) {
    for (index, band) in bands.iter().enumerate() {
        if let Some(message) = message_about(rule, lease, band) {
            warnings.add_at([Step::Field("bands"), Step::Index(index)], message);
        }
    }
}

fn message_about(rule: &Rule, lease: &Lease, band: &Band) -> Option<String> {
    let (id, capacity, share) = (band.id(), band.capacity(), lease.share());
    let Some(leased) = BandLease::new(lease, band.limit()) else {
        let most = share.of(capacity);
        return Some(format!(
            "`lease` has no effect: {share} of the capacity {capacity} of band `{id}` is {most}, \
             and a lease needs at least {MIN_LEASED_UNITS} units of every band"
        ));
    };
    let passes = leased.shared().capacity();
    match rule.cost {
        // A cost above the capacity never passes, with or without a lease.
        Cost::Fixed(cost) if passes < cost && cost <= capacity => Some(format!(
            "the cost {cost} never passes band `{id}`: with {share} of its capacity {capacity} \
             for leases, a request may cost at most {passes}"
        )),
        _ => None,
    }
}

/// Returns a fault for each list that no rule uses, enabled or not.
pub(super) fn unused_lists(set: &RuleSet) -> Vec<RuleFault> {
    let used: HashSet<_> = set.written.iter().flat_map(lists_of).collect();
    let mut warnings = FaultCollector::new(&set.name);
    for list in set.lists.iter().filter(|list| !used.contains(&*list.name)) {
        let place = [Step::Field("lists"), Step::Name(list.name.clone())];
        warnings.add_at(place, format!("no rule uses the list `{}`", list.name));
    }
    warnings.into_faults()
}

/// Returns the lists that a rule uses.
fn lists_of(rule: &Rule) -> impl Iterator<Item = &str> {
    let named = rule.match_headers.iter().chain(&rule.match_attributes);
    let values = named
        .map(|(_, value)| value)
        .chain(&rule.match_user)
        .chain(&rule.match_api_key);
    let of_values = values.filter_map(|ValueMatch(values)| match values {
        Values::In(list) | Values::NotIn(list) => Some(&**list),
        Values::OneOf(_) | Values::NoneOf(_) | Values::Present(_) => None,
    });
    let of_addresses = rule.ip_list.iter().chain(&rule.not_ip_list);
    of_values.chain(of_addresses.map(|list| &**list))
}
