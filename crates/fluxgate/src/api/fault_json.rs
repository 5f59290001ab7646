//! Faults and warnings of rules as JSON.

use fluxgate_core::yaml::Fault;
use serde::Serialize;

/// A fault or a warning with its position.
#[derive(Serialize)]
pub(super) struct FaultJson<'a> {
    line: usize,
    column: usize,
    message: &'a str,
}

/// Returns faults or warnings in a form that can be written as JSON.
pub(super) fn fault_list(faults: &[Fault]) -> Vec<FaultJson<'_>> {
    let faults = faults.iter().map(|Fault { position, message }| FaultJson {
        line: position.line,
        column: position.column,
        message,
    });
    faults.collect()
}
