//! The response to a request that is not forwarded.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fluxgate_core::{Band, Outcome};
use fluxgate_http::{
    BadRequest, FailedClosedStatus, GrpcCode, GrpcStatus, HeaderFamilies, PROBLEM_JSON, Problem,
    Report, grpc_content_type, write_denial,
};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};

const MISSING_KEY: &str = "the request lacks the key that it is limited by";

/// Why a request is not forwarded.
#[derive(Clone, Debug)]
pub(super) enum Rejection<R> {
    Denied(R),
    BadRequest(BadRequest),
    InvalidToken,
}

/// How rejections are written: as problems, as gRPC statuses, or by a function of the program.
#[derive(Clone, Debug)]
pub(super) struct RejectionFormat {
    pub(super) families: HeaderFamilies,
    pub(super) failed_closed: FailedClosedStatus,
    /// Whether a request without a part of its key is answered with 401.
    pub(super) requires_key: bool,
    pub(super) on_denied: Option<DenialHandler>,
}

impl RejectionFormat {
    /// Writes a rejection as a response that the client of the request understands.
    pub(super) fn response(
        &self,
        request: &Parts,
        rejection: &Rejection<impl Report>,
    ) -> Response<Bytes> {
        match (
            rejection,
            grpc_content_type(&request.headers),
            &self.on_denied,
        ) {
            (_, Some(content_type), _) => self.grpc(content_type.clone(), rejection),
            (Rejection::Denied(report), None, Some(handler)) => {
                self.custom(handler, request, report)
            }
            (_, None, _) => self.problem(rejection),
        }
    }

    fn problem(&self, rejection: &Rejection<impl Report>) -> Response<Bytes> {
        let mut response = match rejection {
            Rejection::BadRequest(bad) => Problem::from(*bad).response(),
            Rejection::InvalidToken => Problem::invalid_token().response(),
            Rejection::Denied(report) if self.is_unauthorized(report) => {
                Problem::new(StatusCode::UNAUTHORIZED, MISSING_KEY).response()
            }
            Rejection::Denied(report) => {
                let mut body = Vec::new();
                let status = write_denial(report, self.failed_closed, &mut body);
                let mut response = Response::new(Bytes::from(body));
                *response.status_mut() = status;
                *response.headers_mut() = self.limit_headers(rejection);
                response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
                response
            }
        };
        let length = response.body().len();
        response
            .headers_mut()
            .insert(CONTENT_LENGTH, HeaderValue::from(length));
        response
    }

    /// Writes a response with trailers only.
    fn grpc(
        &self,
        content_type: HeaderValue,
        rejection: &Rejection<impl Report>,
    ) -> Response<Bytes> {
        let mut headers = self.limit_headers(rejection);
        headers.insert(CONTENT_TYPE, content_type);
        self.grpc_status(rejection).write(&mut headers);
        let mut response = Response::default();
        *response.headers_mut() = headers;
        response
    }

    fn grpc_status(&self, rejection: &Rejection<impl Report>) -> GrpcStatus {
        match rejection {
            Rejection::BadRequest(bad) => GrpcStatus::new(GrpcCode::InvalidArgument, bad.reason()),
            Rejection::InvalidToken => {
                GrpcStatus::new(GrpcCode::Unauthenticated, "the token is invalid")
            }
            Rejection::Denied(report) if self.is_unauthorized(report) => {
                GrpcStatus::new(GrpcCode::Unauthenticated, MISSING_KEY)
            }
            Rejection::Denied(report) => {
                GrpcStatus::denied(report, self.failed_closed, self.families)
            }
        }
    }

    fn custom(
        &self,
        handler: &DenialHandler,
        request: &Parts,
        report: &impl Report,
    ) -> Response<Bytes> {
        let status = if self.is_unauthorized(report) {
            StatusCode::UNAUTHORIZED
        } else {
            self.failed_closed.status_for(report)
        };
        let mut response = handler.respond(request, &Denial::new(report, status));
        let length = response.body().len();
        let has_content = response.status() != StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        self.families.values(report).insert_missing_into(headers);
        if has_content {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        response
    }

    /// Returns whether a request is denied because it lacks its key, which this layer requires.
    fn is_unauthorized(&self, report: &impl Report) -> bool {
        let mut lacks_key = false;
        if self.requires_key {
            report.for_each_violated(|_, band| lacks_key |= band == Band::MISSING_KEY);
        }
        lacks_key
    }

    fn limit_headers(&self, rejection: &Rejection<impl Report>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Rejection::Denied(report) = rejection {
            self.families.write(report, &mut headers);
        }
        headers
    }
}

/// A denied request, as [`RateLimitLayer::on_denied`](crate::RateLimitLayer::on_denied) reports
/// it.
///
/// ```
/// use fluxgate_tower::Denial;
///
/// fn explain(denial: &Denial) -> String {
///     if denial.failed_closed() {
///         return "we cannot check your limit right now".to_owned();
///     }
///     if denial.missing_key() {
///         return "identify yourself".to_owned();
///     }
///     match (denial.violated().next(), denial.retry_after()) {
///         (Some((rule, _)), Some(wait)) => format!("{rule} is used up; retry after {wait:?}"),
///         _ => "this request can never pass".to_owned(),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Denial {
    status: StatusCode,
    outcome: Outcome,
    retry_after: Option<Duration>,
    limit: Option<u64>,
    remaining: Option<u64>,
    /// The rule and the band of each violated policy.
    violated: Vec<(Box<str>, Box<str>)>,
}

impl Denial {
    pub(super) fn new(report: &impl Report, status: StatusCode) -> Self {
        let mut violated = Vec::new();
        report.for_each_violated(|rule, band| violated.push((rule.into(), band.into())));
        Self {
            status,
            outcome: report.outcome(),
            retry_after: report.retry_after().after().map(|wait| wait.as_duration()),
            limit: report.limit(),
            remaining: report.remaining(),
            violated,
        }
    }

    /// Returns the status that the layer itself would answer with: 429, 503 if the limiter
    /// failed closed ([`FailedClosedStatus`](crate::FailedClosedStatus)), 401 if the request lacks
    /// a key that the layer [requires](crate::RateLimitLayer::require_key), or that of the rule
    /// that forbids the request.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the outcome of the decision.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Returns how long until the same request would be allowed, or `None` if it never would:
    /// it costs more than the limit ever holds, a part of its key is missing, or a rule forbids
    /// it.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the capacity of the reported band, if there is one.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Returns the whole units left in the reported band, if there is one.
    pub fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// Returns the rule and the band of each violated policy, in order.
    pub fn violated(&self) -> impl Iterator<Item = (&str, &str)> {
        let violated = self.violated.iter();
        violated.map(|(rule, band)| (&**rule, &**band))
    }

    /// Returns whether a rule denied the request because a part of its key is missing
    /// ([`OnMissingKey::Deny`](fluxgate_core::OnMissingKey::Deny)).
    pub fn missing_key(&self) -> bool {
        self.violated().any(|(_, band)| band == Band::MISSING_KEY)
    }

    /// Returns whether a rule forbids the request
    /// ([`RuleAction::Deny`](fluxgate_core::RuleAction::Deny)). Such a denial says nothing about
    /// the client's quota.
    pub fn forbidden(&self) -> bool {
        self.outcome == Outcome::Forbidden
    }

    /// Returns whether the request was denied because the store failed and `on_error` is
    /// `deny`. Such a denial says nothing about the client's quota.
    pub fn failed_closed(&self) -> bool {
        self.outcome == Outcome::FailedClosed
    }
}

type Respond = dyn Fn(&Parts, &Denial) -> Response<Bytes> + Send + Sync;

/// The function that responds to denied requests.
#[derive(Clone)]
pub(super) struct DenialHandler(Arc<Respond>);

impl DenialHandler {
    pub(super) fn new<B: Into<Bytes>>(
        respond: impl Fn(&Parts, &Denial) -> Response<B> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |request, denial| {
            respond(request, denial).map(Into::into)
        }))
    }

    pub(super) fn respond(&self, request: &Parts, denial: &Denial) -> Response<Bytes> {
        (self.0)(request, denial)
    }
}

impl fmt::Debug for DenialHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DenialHandler")
    }
}
