//! Rules that lower the tokens of calls instead of denying them.

use super::*;

fn clamped(model: &ModelServer, capacity: u64) -> Service {
    let rules = format!(
        "rule_sets:\n  s:\n    rules:\n      - {{ id: total, scope: per_api_key, \
         algorithm: fixed_window, cost: \"llm:total_tokens\", clamp: true, \
         bands: [ {{ capacity: {capacity}, window: 300d }} ] }}\n"
    );
    start_with(model, &rules)
}

#[test]
fn max_tokens_are_lowered_to_what_is_left() {
    let model = ModelServer::start();
    let service = clamped(&model, 60);
    let answer = call(&service, CHAT, &chat("m"));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(model.last_body()["max_tokens"], 60 - PROMPT_BOUND);
    assert_eq!(charged_by(&service, "total"), TOTAL);
    // Less is left now, and what fits is not changed.
    let mut small = chat("m");
    small["max_tokens"] = json!(3);
    for (chat, max_tokens) in [(chat("m"), 60 - TOTAL - PROMPT_BOUND), (small, 3)] {
        assert_eq!(call(&service, CHAT, &chat).status, 200);
        assert_eq!(model.last_body()["max_tokens"], max_tokens);
    }
    assert_eq!(charged_by(&service, "total"), 3 * TOTAL);
}

#[test]
fn a_bound_is_sent_if_the_client_states_none() {
    for (capacity, bound) in [(100, 100 - PROMPT_BOUND), (10_000, 4096)] {
        let model = ModelServer::start();
        let service = clamped(&model, capacity);
        let mut chat = chat("m");
        chat.as_object_mut().unwrap().remove("max_tokens");
        let answer = call(&service, CHAT, &chat);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(model.last_body()["max_completion_tokens"], bound);
    }
}

#[test]
fn a_call_without_tokens_left_is_denied() {
    let model = ModelServer::start();
    let service = clamped(&model, 20);
    assert_eq!(call(&service, CHAT, &chat("m")).status, 200);
    assert_eq!(charged_by(&service, "total"), TOTAL);
    let denied = call(&service, CHAT, &chat("m"));
    // It would pass in another window, because no more is asked for than the capacity.
    assert_eq!(denied.status, 429, "{denied:?}");
    assert!(denied.header("retry-after").is_some(), "{denied:?}");
    assert_eq!(model.requests().len(), 1);
    assert_eq!(charged_by(&service, "total"), TOTAL);
}

#[test]
fn a_prompt_that_never_fits_is_denied() {
    let model = ModelServer::start();
    let service = clamped(&model, 8);
    let denied = call(&service, CHAT, &chat("m"));
    assert_eq!(denied.status, 429, "{denied:?}");
    assert_eq!(denied.header("retry-after"), None);
    assert!(model.requests().is_empty());
}
