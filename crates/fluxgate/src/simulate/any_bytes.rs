//! What a simulation promises of any bytes.

use std::sync::LazyLock;

use fluxgate_core::RuleSets;

use super::*;

static RULES: LazyLock<RuleSets> = LazyLock::new(|| {
    let rules = RuleSets::from_yaml(include_str!("any_bytes.yaml"));
    rules.expect("the rules are good")
});

/// The first byte tells the format. Every line is decided or skipped, and every
/// decision is JSON with all its fields; who is not lenient gets the same up to the
/// first bad line.
pub(crate) fn simulate(bytes: &[u8]) {
    let Some((first, input)) = bytes.split_first() else {
        return;
    };
    let format = match first {
        b'c' => Format::Combined,
        _ => Format::Ndjson,
    };
    let (all, skipped, good) = run(format, input, true);
    assert!(good);
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
    let given = blocks::lines(input).filter(|line| !line.trim_ascii().is_empty());
    assert_eq!(lines().count() as u64 + skipped, given.count() as u64);
    if skipped > 0 {
        let (strict, _, good) = run(format, input, false);
        assert!(!good && all.starts_with(&strict));
    }
}

/// What is written, how many lines were skipped, and whether it came to its end.
fn run(format: Format, input: &[u8], lenient: bool) -> (Vec<u8>, u64, bool) {
    let rules = RULES.clone();
    let options = Options {
        rules: "rules.yaml".into(),
        input: "input".into(),
        output: "-".into(),
        format,
        rule_set: None,
        summary: true,
        report: None,
        lenient,
    };
    let store = MemoryStore::new(ManualClock::default(), usize::MAX, Retention::Forever);
    let missing = MissingSets::default();
    let mut simulation = Simulation {
        default_set: rules.only().map(|set| set.name().to_owned()),
        limiter: Limiter::new(rules, store).with_observer(missing.clone()),
        missing,
        format,
        latest: Timestamp::default(),
        summary: Some(Summary::default()),
        report: None,
        lines: 0,
        skipped: 0,
        line: Vec::new(),
    };
    let mut output = Vec::new();
    let ran = simulation.run_block(input, &mut output, &options);
    let mut summary = Vec::new();
    let told = simulation.print_summary(&options, &mut summary);
    assert!(told.is_ok() && std::str::from_utf8(&summary).is_ok());
    (output, simulation.skipped, ran.is_ok())
}
