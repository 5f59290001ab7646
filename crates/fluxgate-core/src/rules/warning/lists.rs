//! Lists that no rule uses.

use std::collections::HashSet;

use crate::matcher::{ValueMatch, Values};
use crate::rules::fault::{FaultCollector, RuleFault, Step};
use crate::rules::rule::Rule;
use crate::rules::set::RuleSet;

/// Returns a fault for each list that no rule uses, enabled or not.
pub(super) fn unused(set: &RuleSet) -> Vec<RuleFault> {
    let used: HashSet<_> = set.written.iter().flat_map(lists_of).collect();
    let mut warnings = FaultCollector::new(&set.name);
    for list in set.lists.iter().filter(|list| !used.contains(&*list.name)) {
        warnings.enter([Step::Field("lists"), Step::Name(list.name.clone())]);
        warnings.add(format!("no rule uses the list `{}`", list.name));
        warnings.leave(2);
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
