//! Requests to the HTTP API.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use fluxgate_core::RuleSets;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use tokio::runtime::{Builder, Handle};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

use crate::admin::AdminAccess;
use crate::api::{self, ApiState};
use crate::config::{Config, RawConfig, Rules, Secrets};
use crate::engine::{Engine, Filters, LiveFilters};
use crate::events::Events;
use crate::history::{History, HistorySources};
use crate::instances::Instances;
use crate::reload::{RuleReloader, rule_source};

static SETTINGS: LazyLock<(RawConfig, Config, RuleSets)> = LazyLock::new(|| {
    let text = include_str!("api.yaml");
    let raw = RawConfig::parse(Path::new("fluxgate.yaml"), text).expect("the config is YAML");
    let config = raw.check().expect("the config is valid");
    let Rules::Inline(rules) = &config.rules else {
        panic!("the rules are in the config");
    };
    let rules = rules.clone();
    (raw, config, rules)
});
/// The longest wait by the rules.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// More than a stream without events waits before it sends a comment.
const LONGEST_SILENCE: Duration = Duration::from_secs(20);

/// Sends requests. Every response comes in time, is not a server error, and is valid JSON if
/// it is declared as JSON.
pub fn check(bytes: &[u8]) {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be built");
    runtime.block_on(async {
        let mut router = router();
        let mut rest = bytes;
        while let Some(request) = next_request(&mut rest) {
            let start = Instant::now();
            let Ok(response) = router.call(request).await;
            assert!(start.elapsed() <= LONGEST_WAIT);
            check_response(response).await;
        }
    });
}

fn router() -> Router {
    let (raw, config, rules) = &*SETTINGS;
    let engine = Arc::new(Engine::in_memory());
    engine.swap_rules(rules.clone());
    let instances = Instances::default();
    let secrets = Secrets::default();
    let events = Events::new(
        Arc::clone(&engine),
        config,
        &secrets,
        instances.id(),
        "host",
    )
    .expect("there are no webhooks");
    // For streams that resume.
    events.record_wrong_tokens("192.0.2.1".into());
    let sources = HistorySources {
        engine: Arc::clone(&engine),
        rule_store: None,
        hides_identities: false,
        runtime: Handle::current(),
    };
    let history = config.history.expect("the config keeps a record");
    let history = History::new(sources, history, instances.id());
    let source = rule_source(config, raw, None, engine.store()).expect("it is a demo");
    let (_, reloader) = RuleReloader::new(Arc::clone(&events), source);
    let admin =
        AdminAccess::new(config, reloader, Arc::clone(&events)).expect("there are no tokens");
    let filters = Filters::new(config).expect("the config verifies no tokens");
    let state = ApiState::new(
        engine,
        admin,
        LiveFilters::new(filters.trusting_their_peers()),
        instances,
        Some(history),
        events,
        None,
        CancellationToken::new(),
    );
    api::router(&state)
}

/// Returns the next request, if httparse accepts it.
fn next_request(rest: &mut &[u8]) -> Option<Request<Body>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(end)) = head.parse(rest) else {
        return None;
    };
    let mut request = Request::builder().method(head.method?).uri(head.path?);
    for header in &*head.headers {
        request = request.header(header.name, header.value);
    }
    let declared = request
        .headers_ref()?
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    *rest = &rest[end..];
    let length = rest.len().min(declared.unwrap_or(rest.len()));
    let body = rest.split_off(..length)?;
    request.body(Body::from(body.to_vec())).ok()
}

async fn check_response(response: Response<Body>) {
    let (head, body) = response.into_parts();
    assert!(!head.status.is_server_error(), "{head:?}");
    let kind = head.headers.get(CONTENT_TYPE);
    if kind.is_some_and(|kind| kind == "text/event-stream") {
        return check_stream(body).await;
    }
    let body = body
        .collect()
        .await
        .expect("the body is in memory")
        .to_bytes();
    let kind = head.headers.get(CONTENT_TYPE).map(|it| it.as_bytes());
    match kind {
        Some(b"application/json" | b"application/problem+json") => {
            let json = serde_json::from_slice::<serde_json::Value>(&body);
            assert!(json.is_ok(), "{}", body.escape_ascii());
        }
        _ => assert!(
            head.status.is_success() || body.is_empty(),
            "{}",
            body.escape_ascii()
        ),
    }
}

/// Reads the beginning of a stream, which ends with the service. Its events are JSON.
async fn check_stream(mut body: Body) {
    for _ in 0..2 {
        let Ok(Some(Ok(frame))) = timeout(LONGEST_SILENCE, body.frame()).await else {
            return;
        };
        let data = frame.data_ref().map(|data| &data[..]).unwrap_or_default();
        let mut lines = data.split(|byte| *byte == b'\n');
        let is_json = |line: &[u8]| {
            let json = line.strip_prefix(b"data: ");
            json.is_none_or(|json| serde_json::from_slice::<serde_json::Value>(json).is_ok())
        };
        assert!(lines.all(is_json), "{}", data.escape_ascii());
    }
}
