//! The JSON requests to the service.

use bytes::Bytes;
use fluxgate_core::RequestContext;
use fluxgate_core::hold::{DEFAULT_HOLD, MAX_HOLD, MIN_HOLD};
use fluxgate_core::path::RequestPath;
use fluxgate_core::store::Mode;
use serde::{Serialize, Serializer};

use fluxgate_http::WITHHELD;

/// The largest body that the service reads.
const MAX_BYTES: usize = 64 * 1024;
/// The most that headers may take of it. A request with more is not sent at all: if some were
/// omitted, a client could hide a header behind others.
const MAX_HEADER_BYTES: usize = 32 * 1024;

/// The body of a check.
#[derive(Debug, Serialize)]
pub(super) struct CheckRequest<'a> {
    rule_set: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip: Option<std::net::IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    /// The normal form with its slash at the end, if the normal form differs from the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    normal_path: Option<&'a str>,
    /// True if patterns are compared without case.
    #[serde(skip_serializing_if = "Option::is_none")]
    ignore_case: Option<bool>,
    #[serde(serialize_with = "as_map")]
    headers: Vec<(&'a str, &'a str)>,
    #[serde(serialize_with = "as_map")]
    attributes: Vec<(&'a str, &'a str)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u64>,
    /// How long to hold the charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    hold: Option<String>,
    /// Whether the request can wait. If it has to, it can be cancelled.
    wait: bool,
    /// True if the service has decided the request before, and denied it.
    #[serde(skip_serializing_if = "Option::is_none")]
    again: Option<bool>,
}

impl<'a> CheckRequest<'a> {
    /// Creates a check with these headers, or with all. Returns `None` if they are too large.
    pub(super) fn new(
        rule_set: &'a str,
        context: &'a RequestContext<'_>,
        headers: Option<&[Box<str>]>,
    ) -> Option<Self> {
        let path = context.request_path();
        let ignores_case = path.is_some_and(RequestPath::ignores_case);
        let normal = path.filter(|path| path.other().is_some());
        Some(Self {
            rule_set,
            ip: context.ip(),
            user: context.user(),
            api_key: context.api_key(),
            method: context.method(),
            path: context.path(),
            normal_path: normal.map(RequestPath::normal_with_slash),
            ignore_case: ignores_case.then_some(true),
            headers: headers_of(context, headers)?,
            attributes: attributes_of(context),
            cost: context.cost(),
            hold: hold_of(context),
            wait: true,
            again: context.is_decided_again().then_some(true),
        })
    }

    /// Sets the mode.
    pub(super) fn in_mode(mut self, mode: Mode) -> Self {
        self.wait = mode.waits();
        self
    }

    /// Serializes the request. Returns `None` if it is too large.
    pub(super) fn body(&self) -> Option<Bytes> {
        let body = serde_json::to_vec(self).ok()?;
        (body.len() <= MAX_BYTES).then(|| Bytes::from(body))
    }
}

/// Returns how long the charge is to be held, if it is.
fn hold_of(context: &RequestContext<'_>) -> Option<String> {
    let span = context.is_held().then(|| context.hold_for())?;
    let span = span.unwrap_or(DEFAULT_HOLD.as_duration());
    let span = span.clamp(MIN_HOLD.as_duration(), MAX_HOLD.as_duration());
    Some(format!("{}ms", span.as_millis()))
}

/// Returns the first line of each header to send, or `None` if they are too large.
fn headers_of<'a>(
    context: &'a RequestContext<'_>,
    selected: Option<&[Box<str>]>,
) -> Option<Vec<(&'a str, &'a str)>> {
    let mut headers: Vec<(&str, &str)> = Vec::new();
    let mut left = MAX_HEADER_BYTES;
    for (name, value) in context.headers() {
        let is_name = |it: &str| it.eq_ignore_ascii_case(name);
        let is_sent = match selected {
            Some(selected) => selected.iter().any(|it| is_name(it)),
            None => !WITHHELD.into_iter().any(is_name),
        };
        if is_sent && !headers.iter().any(|(known, _)| is_name(known)) {
            left = left.checked_sub(name.len() + value.len())?;
            headers.push((name, value));
        }
    }
    Some(headers)
}

/// Returns the attributes. Of two with the same name, the last wins.
fn attributes_of<'a>(context: &'a RequestContext<'_>) -> Vec<(&'a str, &'a str)> {
    let mut attributes: Vec<(&str, &str)> = Vec::new();
    for (name, value) in context.attributes() {
        attributes.retain(|(known, _)| *known != name);
        attributes.push((name, value));
    }
    attributes
}

fn as_map<S: Serializer>(pairs: &[(&str, &str)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().copied())
}
