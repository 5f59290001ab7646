//! Properties of the rate limit service that hold for any bytes.

use std::sync::{Arc, LazyLock};

use fluxgate_core::{RuleSets, ready};
use prost::Message as _;
use tonic::{Code as Status, Request};

use super::messages::{Code, RateLimitRequest, RateLimitResponse};
use super::service::RateLimitService;
use crate::engine::Engine;

static RULES: LazyLock<RuleSets> = LazyLock::new(|| {
    const TEXT: &str = "
rule_sets:
  a:
    rules:
      - { id: k, key: ['attr:k'], bands: [ { capacity: 2, window: 1s }, { capacity: 3, window: 90s } ] }
      - { id: ip, key: [ip], algorithm: sliding_window, bands: [ { capacity: 5, window: 1h } ] }
      - { id: all, scope: global, mode: shadow, algorithm: sliding_log, bands: [ { capacity: 1, window: 1d } ] }
      - { id: w, key: ['attr:w'], on_exceed: wait, bands: [ { capacity: 1000000000, window: 366d } ] }
      - { id: c, key: ['attr:c'], algorithm: leaky_bucket, shape: true, cost: 'attr:c', bands: [ { capacity: 9, window: 100ms } ] }
";
    RuleSets::from_yaml(TEXT).expect("the rules are good")
});

/// A call gets a decision with a status for each of its descriptors, or an error that
/// names the fault.
pub(crate) fn envoy(bytes: &[u8]) {
    let Ok(message) = RateLimitRequest::decode(bytes) else {
        return;
    };
    let engine = Engine::in_memory();
    engine.swap_rules(RULES.clone());
    let service = RateLimitService::new(Arc::new(engine));
    let request = Request::new(message);
    // The second time, units have been taken.
    for _ in 0..2 {
        match ready(service.should_rate_limit(&request)) {
            Ok(answer) => is_whole(&answer, request.get_ref().descriptors.len()),
            Err(status) => {
                assert_eq!(status.code(), Status::InvalidArgument);
                assert!(!status.message().is_empty());
            }
        }
    }
}

fn is_whole(answer: &RateLimitResponse, descriptors: usize) {
    let is_over = |code: i32| match Code::try_from(code) {
        Ok(Code::Ok) => false,
        Ok(Code::OverLimit) => true,
        other => panic!("{other:?} is sent"),
    };
    assert_eq!(answer.statuses.len(), descriptors);
    let any_is_over = answer.statuses.iter().any(|it| is_over(it.code));
    assert_eq!(is_over(answer.overall_code), any_is_over);
    for status in &answer.statuses {
        assert_eq!(
            status.current_limit.is_some(),
            status.duration_until_reset.is_some()
        );
        let limit = status.current_limit.as_ref();
        let most = limit.map_or(0, |limit| limit.requests_per_unit);
        assert!(status.limit_remaining <= most, "{status:?}");
        if let Some(reset) = status.duration_until_reset {
            assert!(reset.seconds >= 0 && (0..1_000_000_000).contains(&reset.nanos));
        }
    }
    for header in &answer.response_headers_to_add {
        let is_plain = |text: &str| text.bytes().all(|byte| (b' '..0x7f).contains(&byte));
        assert!(
            is_plain(&header.key) && is_plain(&header.value),
            "{header:?}"
        );
    }
    let again = RateLimitResponse::decode(&*answer.encode_to_vec());
    assert_eq!(again.as_ref(), Ok(answer));
}
