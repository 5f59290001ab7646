//! Costs that no request can pay.

use crate::limit::Algorithm;
use crate::rules::cost::Cost;
use crate::rules::fault::FaultCollector;
use crate::rules::rule::{Rule, RuleMode};

/// Warns if a request needs more slots than there are.
///
/// A rate below the cost is no mistake: it is how a rule denies all requests that it matches.
pub(super) fn warn(rule: &Rule, warnings: &mut FaultCollector<'_>) {
    let (Cost::Fixed(cost), RuleMode::Enforce) = (&rule.cost, rule.mode) else {
        return;
    };
    let mut bands = rule.bands.iter();
    let too_small =
        bands.find(|band| band.algorithm() == Algorithm::Concurrency && band.capacity() < *cost);
    if let Some(band) = too_small {
        warnings.field("cost", |warnings| {
            warnings.add(format!(
                "the cost {cost} is above the capacity {} of band `{}`: every request is denied",
                band.capacity(),
                band.id()
            ));
        });
    }
}
