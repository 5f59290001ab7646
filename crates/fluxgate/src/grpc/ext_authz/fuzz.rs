//! Properties of external authorization that hold for any bytes.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use fluxgate_core::RuleSets;
use prost::Message as _;
use tokio::runtime::Builder;
use tonic::{Code, Request};

use super::messages::{
    CheckRequest, CheckResponse, DeniedHttpResponse, HeaderValueOption, HttpResponse,
};
use super::service::AuthorizationService;
use crate::config::{Config, RawConfig, Rules};
use crate::engine::{Engine, Filters, LiveFilters};

const CONFIG: &str = "
filters:
  f:
    rule_set: s
    include: ['/**']
    trusted_proxies: [10.0.0.0/8]
    identity: { user: 'cookie:user', api_key: ['bearer', 'query:key'] }
    attributes: { tenant: 'header:X-Tenant' }
rule_sets:
  s:
    rules:
      - { id: forbidden, action: deny, status: 451, match: { path: ['/no/**'] } }
      - { id: all, scope: global, bands: [ { capacity: 3, window: 1h } ] }
      - { id: ip, scope: per_ip, bands: [ { capacity: 2, window: 1h } ] }
      - { id: user, key: [user, api_key, 'attr:tenant', path], cost: 'header:X-Cost', bands: [ { capacity: 2, window: 1h } ] }
      - { id: slow, match: { methods: [PUT] }, scope: global, on_exceed: wait, bands: [ { capacity: 1, window: 1s } ] }
";

static SETTINGS: LazyLock<(Config, RuleSets)> = LazyLock::new(|| {
    let raw = RawConfig::parse(Path::new("fluxgate.yaml"), CONFIG).expect("the config is YAML");
    let config = raw.check().expect("the config is valid");
    let Rules::Inline(rules) = &config.rules else {
        panic!("the rules are in the config");
    };
    let rules = rules.clone();
    (config, rules)
});

/// Checks that every request is either counted, or refused with a status: nothing that a client sends
/// leads to an error, on which Envoy might let the request pass.
pub fn ext_authz(bytes: &[u8]) {
    let Ok(message) = CheckRequest::decode(bytes) else {
        return;
    };
    let (config, rules) = &*SETTINGS;
    let engine = Engine::in_memory();
    engine.swap_rules(rules.clone());
    let filters = Filters::new(config).expect("the config verifies no tokens");
    let service = AuthorizationService::new(Arc::new(engine), LiveFilters::new(filters));
    let request = Request::new(message);
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be built");
    runtime.block_on(async {
        // The last calls exceed the limit on all requests.
        for number in 0..5 {
            match service.check(&request).await {
                Ok(response) => {
                    let is_ok = check_response(&response);
                    assert!(!is_ok || number < 3, "request {number} is above the limit");
                }
                Err(status) => {
                    assert_eq!(status.code(), Code::InvalidArgument);
                    let parts = ["`attributes.request.http`", "`context_extensions.filter`"];
                    assert!(parts.iter().any(|part| status.message().contains(part)));
                }
            }
        }
    });
}

/// Returns whether the request may pass.
fn check_response(response: &CheckResponse) -> bool {
    let code = response.status.expect("every response has a status").code;
    let decoded = CheckResponse::decode(&*response.encode_to_vec());
    assert_eq!(decoded.as_ref(), Ok(response));
    match response.http_response.as_ref().expect("it has an answer") {
        HttpResponse::OkResponse(ok) => {
            assert_eq!(code, 0);
            check_headers(&ok.response_headers_to_add);
            let limit = value(&ok.response_headers_to_add, "x-ratelimit-limit");
            assert!(limit.is_some(), "a request was not counted");
            true
        }
        HttpResponse::DeniedResponse(denied) => {
            assert_ne!(code, 0);
            check_denied(denied, code);
            false
        }
    }
}

fn check_denied(denied: &DeniedHttpResponse, code: i32) {
    check_headers(&denied.headers);
    let content_type = value(&denied.headers, "content-type").expect("it has a content type");
    match denied.status.expect("it has a status").code {
        200 => {
            assert_eq!(denied.body, "");
            let status = value(&denied.headers, "grpc-status");
            assert_eq!(status, Some(&*code.to_string()));
        }
        400..=499 => {
            assert_eq!(content_type, "application/problem+json");
            let body = serde_json::from_str::<serde_json::Value>(&denied.body);
            assert!(body.is_ok(), "{}", denied.body);
        }
        other => panic!("{other}"),
    }
}

fn check_headers(headers: &[HeaderValueOption]) {
    for option in headers {
        let header = option.header.as_ref().expect("it is a header");
        let is_printable = |text: &str| text.bytes().all(|byte| (b' '..0x7f).contains(&byte));
        assert!(
            is_printable(&header.key) && is_printable(&header.value),
            "{header:?}"
        );
    }
}

fn value<'a>(headers: &'a [HeaderValueOption], name: &str) -> Option<&'a str> {
    let mut headers = headers.iter().filter_map(|option| option.header.as_ref());
    let header = headers.find(|header| header.key == name)?;
    Some(&header.value)
}
