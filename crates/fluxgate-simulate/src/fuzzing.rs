//! Functions for fuzz targets: they take any bytes and panic if a promise of the crate does not
//! hold. A test calls them as well, with the seeds and with inputs near them.
//!
//! Only with the feature `fuzzing`, which is not part of the stable API.

use std::sync::LazyLock;

use fluxgate_core::RuleSets;

use crate::input::{self, Format};
use crate::simulation::{Options, Simulation};

/// A function that takes any bytes.
pub type FuzzFn = fn(&[u8]);

/// All functions by the names of their targets.
pub const ALL: [(&str, FuzzFn); 1] = [("simulate", simulate)];

static RULES: LazyLock<RuleSets> = LazyLock::new(|| {
    let rules = RuleSets::from_yaml(include_str!("fuzzing.yaml"));
    rules.expect("the rules are valid")
});

/// Takes recorded requests; the first byte is `c` if they are an access log.
///
/// Every line is decided or skipped, and every decision is JSON with all its fields.
/// A run that is not lenient writes the same up to the first bad line.
pub fn simulate(bytes: &[u8]) {
    let Some((first, input)) = bytes.split_first() else {
        return;
    };
    let format = match first {
        b'c' => Format::Combined,
        _ => Format::Ndjson,
    };
    let (all, skipped, finished) = run(format, input, true);
    assert!(finished);
    let lines = || all.split_inclusive(|byte| *byte == b'\n');
    for line in lines() {
        let decision: serde_json::Value = serde_json::from_slice(line).expect("it is JSON");
        let fields = decision.as_object().expect("it is an object");
        assert_eq!(fields.len(), 11, "{decision}");
        let number = |name: &str| fields[name].as_u64();
        assert!(number("remaining") <= number("limit"), "{decision}");
        assert_eq!(
            number("retry_after_us") == Some(0),
            fields["allowed"] == true
        );
    }
    let given = input::lines(input).filter(|line| !line.trim_ascii().is_empty());
    assert_eq!(lines().count() as u64 + skipped, given.count() as u64);
    if skipped > 0 {
        let (strict, _, finished) = run(format, input, false);
        assert!(!finished && all.starts_with(&strict));
    }
}

/// Returns the decisions, the number of skipped lines, and whether the run reached the end of
/// the input.
fn run(format: Format, input: &[u8], lenient: bool) -> (Vec<u8>, u64, bool) {
    let options = Options {
        format,
        lenient,
        summary: true,
        ..Options::default()
    };
    let mut simulation = Simulation::new(RULES.clone(), options);
    let mut output = Vec::new();
    let result = simulation.run(input, &mut output, |_| {});
    assert!(
        simulation
            .summary()
            .is_some_and(|summary| !summary.to_string().is_empty())
    );
    (output, simulation.skipped(), result.is_ok())
}

#[cfg(test)]
mod tests {
    #[test]
    fn promises_hold_for_the_seeds_and_near_them() {
        fluxgate_testkit::fuzz::run_all("fluxgate-simulate", &super::ALL);
    }
}
