//! The headers by which clients of language models see their limits.

use super::*;

#[test]
fn answers_and_denials_have_both_limits() {
    let model = ModelServer::start();
    let service = start_with(&model, &RULES.replace("capacity: 100,", "capacity: 2,"));
    for remaining in ["1", "0"] {
        let answer = call(&service, CHAT, &chat("m"));
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("x-ratelimit-limit-requests"), Some("2"));
        assert_eq!(
            answer.header("x-ratelimit-remaining-requests"),
            Some(remaining)
        );
        assert_reset(&answer, "x-ratelimit-reset-requests");
        let tokens: Vec<_> = { answer.headers.iter() }
            .filter(|(name, _)| name == "x-ratelimit-limit-tokens")
            .map(|(_, value)| &value[..])
            .collect();
        assert_eq!(tokens, ["100000"], "in place of the upstream's");
        assert_reset(&answer, "x-ratelimit-reset-tokens");
    }
    let denied = call(&service, CHAT, &chat("m"));
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("x-ratelimit-remaining-requests"), Some("0"));
    let left = CAPACITY - 2 * TOTAL;
    assert_eq!(
        denied.header("x-ratelimit-remaining-tokens"),
        Some(&left.to_string()[..])
    );
    assert_eq!(model.requests().len(), 2);
}

#[test]
fn the_tightest_rule_is_shown() {
    let model = ModelServer::start();
    let rules = RULES.replacen("capacity: 100000", "capacity: 5000", 1);
    let service = start_with(&model, &rules);
    let answer = call(&service, CHAT, &chat("m"));
    assert_eq!(answer.header("x-ratelimit-limit-tokens"), Some("5000"));
    let left = 5000 - 50 - PROMPT_BOUND;
    assert_eq!(
        answer.header("x-ratelimit-remaining-tokens"),
        Some(&left.to_string()[..])
    );
    assert_eq!(
        answer.header("x-ratelimit-limit-requests"),
        Some(&REQUESTS.to_string()[..])
    );
}

/// Asserts that a header is a duration such as `29h0m0.5s`.
#[track_caller]
fn assert_reset(answer: &Answer, name: &str) {
    let reset = answer.header(name).unwrap();
    let is_duration = reset.ends_with('s') && reset.contains('h') && reset.contains('m');
    assert!(is_duration, "{reset}");
}
