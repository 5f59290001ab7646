//! The values that each field rejects, and the messages.

mod filters;
mod gateway;
mod operation;
mod rules;
mod store;
mod tokens;

use super::only_fault;

/// A config, and a part of the message.
type Rejected = (&'static str, &'static str);

#[test]
fn invalid_values_are_rejected_and_explained() {
    let sections = [
        store::CASES,
        filters::CASES,
        tokens::CASES,
        gateway::CASES,
        rules::CASES,
        operation::CASES,
    ];
    let cases = sections.concat().into_iter();
    let faults = cases.map(|(config, what)| (config, what, only_fault(config)));
    let wrong: Vec<_> = faults
        .filter(|(_, what, fault)| !fault.contains(what) || fault.contains("hush"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
