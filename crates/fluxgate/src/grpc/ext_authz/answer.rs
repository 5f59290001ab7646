//! The answer to Envoy: what becomes of the client's request.

use std::borrow::Cow;

use fluxgate_core::Decision;
use fluxgate_http::{
    Filter, FilterOutcome, GrpcCode, GrpcStatus, PROBLEM_JSON, Problem, write_denial,
};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::messages::{
    CheckResponse, DeniedHttpResponse, HeaderAppendAction, HeaderValueOption, HttpResponse,
    HttpStatus, OkHttpResponse, RpcStatus,
};
use crate::grpc::messages;
use crate::grpc::metadata::{DecisionFacts, metadata};

/// Returns the answer to an evaluated request. `grpc` is the content type of a gRPC request.
pub(super) fn answer(
    outcome: FilterOutcome<Decision>,
    filter: &Filter,
    grpc: Option<&str>,
) -> CheckResponse {
    match outcome {
        FilterOutcome::Skipped => allowed(&HeaderMap::new()),
        FilterOutcome::Allowed(decision) => {
            let mut headers = HeaderMap::new();
            filter.families().write(&decision, &mut headers);
            CheckResponse {
                dynamic_metadata: Some(metadata(DecisionFacts::of(&decision))),
                ..allowed(&headers)
            }
        }
        FilterOutcome::Denied(decision) => CheckResponse {
            dynamic_metadata: Some(metadata(DecisionFacts::of(&decision))),
            ..denied(&decision, filter, grpc)
        },
        FilterOutcome::BadRequest(bad) => refused(bad.into(), grpc),
        FilterOutcome::InvalidToken => refused(Problem::invalid_token(), grpc),
    }
}

/// Returns the answer to a request that is refused for another reason than a denial.
pub(super) fn refused(problem: Problem, grpc: Option<&str>) -> CheckResponse {
    let status = GrpcStatus::of_error(problem.status(), problem.detail().to_owned());
    let code = status.code();
    let response: Response<Vec<u8>> = problem.response();
    match grpc {
        Some(content_type) => {
            let mut headers = response.into_parts().0.headers;
            write_grpc(&status, content_type, &mut headers);
            denied_response(code, StatusCode::OK, &headers, Vec::new())
        }
        None => {
            let (head, body) = response.into_parts();
            denied_response(code, head.status, &head.headers, body)
        }
    }
}

fn allowed(headers: &HeaderMap) -> CheckResponse {
    CheckResponse {
        status: Some(RpcStatus { code: 0 }),
        http_response: Some(HttpResponse::OkResponse(OkHttpResponse {
            response_headers_to_add: header_options(headers),
        })),
        dynamic_metadata: None,
    }
}

fn denied(decision: &Decision, filter: &Filter, grpc: Option<&str>) -> CheckResponse {
    let families = filter.families();
    let status = GrpcStatus::denied(decision, filter.failed_closed(), families);
    let mut headers = HeaderMap::new();
    families.write(decision, &mut headers);
    if let Some(content_type) = grpc {
        write_grpc(&status, content_type, &mut headers);
        return denied_response(status.code(), StatusCode::OK, &headers, Vec::new());
    }
    let mut body = Vec::with_capacity(256);
    let http = write_denial(decision, filter.failed_closed(), &mut body);
    headers.insert(CONTENT_TYPE, PROBLEM_JSON);
    denied_response(status.code(), http, &headers, body)
}

/// Sets the headers that a gRPC client reads.
fn write_grpc(status: &GrpcStatus, content_type: &str, headers: &mut HeaderMap) {
    if let Ok(value) = HeaderValue::from_str(content_type) {
        headers.insert(CONTENT_TYPE, value);
    }
    status.write(headers);
}

fn denied_response(
    code: GrpcCode,
    status: StatusCode,
    headers: &HeaderMap,
    body: Vec<u8>,
) -> CheckResponse {
    let body = String::from_utf8(body).unwrap_or_else(|error| {
        // Bodies are JSON. If one were not text, the status still says enough.
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    });
    CheckResponse {
        status: Some(RpcStatus { code: code as i32 }),
        http_response: Some(HttpResponse::DeniedResponse(DeniedHttpResponse {
            status: Some(HttpStatus {
                code: status.as_u16().into(),
            }),
            headers: header_options(headers),
            body,
        })),
        dynamic_metadata: None,
    }
}

/// Returns headers that replace those of the same names, as they do at the gateway.
fn header_options(headers: &HeaderMap) -> Vec<HeaderValueOption> {
    let options = headers.iter().map(|(name, value)| {
        let value: Cow<'_, str> = String::from_utf8_lossy(value.as_bytes());
        HeaderValueOption {
            header: Some(messages::HeaderValue {
                key: name.as_str().to_owned(),
                value: value.into_owned(),
            }),
            append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        }
    });
    options.collect()
}
