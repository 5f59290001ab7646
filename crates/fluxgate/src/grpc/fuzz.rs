//! Properties of the rate limit service that hold for any bytes.

use std::sync::{Arc, LazyLock};

use fluxgate_core::RuleSets;
use fluxgate_core::task::ready;
use prost::Message as _;
use tonic::{Code as Status, Request};

use super::kuadrant::{CommitRequest, KuadrantService, ReserveRequest};
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

/// Checks that a call gets a status for each of its descriptors, or an error with a
/// message.
pub fn envoy(bytes: &[u8]) {
    let Ok(message) = RateLimitRequest::decode(bytes) else {
        return;
    };
    let engine = Engine::in_memory();
    engine.swap_rules(RULES.clone());
    let engine = Arc::new(engine);
    check_kuadrant(&engine, bytes);
    let service = RateLimitService::new(engine);
    let request = Request::new(message);
    // By the second call, units are used.
    for _ in 0..2 {
        match ready(service.should_rate_limit(&request)) {
            Ok(response) => assert_complete(&response, request.get_ref().descriptors.len()),
            Err(status) => {
                assert_eq!(status.code(), Status::InvalidArgument);
                assert!(!status.message().is_empty());
            }
        }
    }
}

/// Checks the same of Kuadrant's calls: a message that cannot be decided is an error with a
/// message, and a reservation can be committed once.
fn check_kuadrant(engine: &Arc<Engine>, bytes: &[u8]) {
    let service = KuadrantService::new(Arc::clone(engine));
    let is_known = |status: &tonic::Status| {
        let known = [Status::InvalidArgument, Status::NotFound];
        assert!(known.contains(&status.code()), "{status:?}");
        assert!(!status.message().is_empty());
    };
    if let Ok(message) = RateLimitRequest::decode(bytes) {
        let request = Request::new(message);
        let descriptors = request.get_ref().descriptors.len();
        match ready(service.check_rate_limit(&request)) {
            Ok(response) => assert_complete(&response, descriptors),
            Err(status) => is_known(&status),
        }
        match ready(service.report(&request)) {
            Ok(response) => assert_eq!(response.overall_code, i32::from(Code::Ok)),
            Err(status) => is_known(&status),
        }
    }
    if let Ok(message) = ReserveRequest::decode(bytes) {
        match ready(service.reserve(&Request::new(message))) {
            Ok(reserved) if !reserved.reservation_id.is_empty() => {
                assert_eq!(reserved.code, i32::from(Code::Ok));
                let commit = Request::new(CommitRequest {
                    reservation_id: reserved.reservation_id.into_bytes(),
                    ..CommitRequest::default()
                });
                let commit = || ready(service.commit(&commit)).map_err(|status| status.code());
                assert!(commit().is_ok());
                assert_eq!(commit().err(), Some(Status::NotFound));
            }
            Ok(reserved) => assert_ne!(reserved.code, i32::from(Code::Unknown)),
            Err(status) => is_known(&status),
        }
    }
    if let Ok(message) = CommitRequest::decode(bytes)
        && let Err(status) = ready(service.commit(&Request::new(message)))
    {
        is_known(&status);
    }
}

fn assert_complete(response: &RateLimitResponse, descriptors: usize) {
    let is_over = |code: i32| match Code::try_from(code) {
        Ok(Code::Ok) => false,
        Ok(Code::OverLimit) => true,
        other => panic!("{other:?} was sent"),
    };
    assert_eq!(response.statuses.len(), descriptors);
    let any_is_over = response.statuses.iter().any(|it| is_over(it.code));
    assert_eq!(is_over(response.overall_code), any_is_over);
    for status in &response.statuses {
        assert_eq!(
            status.current_limit.is_some(),
            status.duration_until_reset.is_some()
        );
        let limit = status.current_limit.as_ref();
        let max = limit.map_or(0, |limit| limit.requests_per_unit);
        assert!(status.limit_remaining <= max, "{status:?}");
        if let Some(reset) = status.duration_until_reset {
            assert!(reset.seconds >= 0 && (0..1_000_000_000).contains(&reset.nanos));
        }
    }
    for header in &response.response_headers_to_add {
        let is_printable = |text: &str| text.bytes().all(|byte| (b' '..0x7f).contains(&byte));
        assert!(
            is_printable(&header.key) && is_printable(&header.value),
            "{header:?}"
        );
    }
    let decoded = RateLimitResponse::decode(&*response.encode_to_vec());
    assert_eq!(decoded.as_ref(), Ok(response));
}
