//! Leases without effect, and costs that a leased bucket never admits.

use crate::band::Band;
use crate::lease::{BandLease, Lease, MIN_LEASED_UNITS};
use crate::limit::Algorithm;
use crate::rules::cost::Cost;
use crate::rules::fault::{FaultCollector, Step};
use crate::rules::rule::{Rule, RuleMode};

/// Warns of a lease that has no effect on a rule or on a band, and of costs that it never
/// lets pass.
pub(super) fn warn(rule: &Rule, warnings: &mut FaultCollector<'_>) {
    let Some(lease) = &rule.lease else { return };
    if let Some(exact) = exact(rule) {
        warnings.field("lease", |warnings| {
            warnings.add(format!("`lease` has no effect on a rule with `{exact}`"));
        });
        return;
    }
    warn_of_bands(rule, lease, &rule.bands, warnings);
    for (index, own) in rule.overrides.iter().enumerate() {
        warnings.enter([Step::Field("overrides"), Step::Index(index)]);
        warn_of_bands(rule, lease, &own.bands, warnings);
        warnings.leave(2);
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
            warnings.enter([Step::Field("bands"), Step::Index(index)]);
            warnings.add(message);
            warnings.leave(2);
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
