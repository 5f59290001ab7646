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
    for (config, what) in sections.concat() {
        let fault = only_fault(config);
        assert!(fault.contains(what), "{config}\n{fault}");
        assert!(!fault.contains("hush"), "{config}\n{fault}");
    }
}
