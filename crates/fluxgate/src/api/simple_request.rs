//! Answers checks and releases on the fast path, from bytes to bytes.

use fluxgate_core::Decision;
use fluxgate_http::server::{
    Listener, Origin, STATUS, request_id, wall_clock, write_date, write_header, write_number,
    write_status,
};
use fluxgate_http::{PROBLEM_JSON, Problem};

use super::body;
use super::check::CheckRequest;
use super::decision_json::{DecisionForm, write_decision};
use super::holds::release_hold;
use super::state::ApiState;

/// The operation of a simple request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// `POST /v1/check`.
    Check,
    /// `POST /v1/release`.
    Release,
}

/// The body and the ids of a request.
#[derive(Debug)]
pub(super) struct SimpleRequest<'a> {
    pub(super) operation: Operation,
    /// The JSON.
    pub(super) body: &'a [u8],
    /// `X-Request-Id`.
    pub(super) request_id: Option<&'a str>,
    /// `traceparent`.
    pub(super) traceparent: Option<&'a str>,
}

/// Answers a request: appends head and body of the response to `out`. `is_last` announces
/// the end of the connection; `json` is scratch space.
pub(super) async fn answer_request(
    api: &ApiState,
    request: &SimpleRequest<'_>,
    is_last: bool,
    out: &mut Vec<u8>,
    json: &mut Vec<u8>,
) {
    let origin = Origin::with_ids(Listener::Api, request.request_id, request.traceparent);
    json.clear();
    let answered = match request.operation {
        Operation::Check => decide(api, request.body, &origin).await.map(Some),
        Operation::Release => release(api, request.body, json).await.map(|()| None),
    };
    let status = match answered {
        Ok(decision) => {
            let now = wall_clock();
            out.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n");
            if let Some(decision) = decision {
                write_decision(json, &decision, DecisionForm::Decision);
                api.headers.write_text(&decision, out);
                if let Some(status) = decision.forbidden_status() {
                    write_number(out, STATUS.as_str(), status.into());
                }
            }
            write_date(now, out);
            200
        }
        Err(problem) => {
            json.clear();
            origin.request_id();
            problem.write(json);
            let status = problem.status();
            write_status(out, status);
            write_header(out, "content-type", PROBLEM_JSON.as_bytes());
            write_date(wall_clock(), out);
            status.as_u16()
        }
    };
    let telemetry = api.engine.telemetry();
    telemetry.record_response(Listener::Api, status, || &origin);
    if let Some(id) = origin.into_id() {
        write_header(out, request_id::NAME, id.as_bytes());
    }
    if is_last {
        write_header(out, "connection", b"close");
    }
    write_number(out, "content-length", json.len());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(json);
}

async fn release(api: &ApiState, body: &[u8], json: &mut Vec<u8>) -> Result<(), Problem> {
    body::check_size(body::MAX_BYTES, body.len())?;
    release_hold(&api.engine, body, json).await
}

async fn decide(api: &ApiState, json: &[u8], origin: &Origin<'_>) -> Result<Decision, Problem> {
    body::check_size(body::MAX_BYTES, json.len())?;
    let check: CheckRequest<'_> = body::parse(json)?;
    check.decide(api, origin).await
}
