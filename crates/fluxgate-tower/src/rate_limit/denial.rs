//! Denials as programs see them, and the responses that they make of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fluxgate_core::{Band, Outcome};
use http::request::Parts;
use http::{Response, StatusCode};

use fluxgate_http::Report;

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
    /// failed closed ([`FailedClosedStatus`](crate::FailedClosedStatus)), or that of the rule that
    /// forbids the request.
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
