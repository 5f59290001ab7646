//! What the service is asked, in JSON.

use bytes::Bytes;
use fluxgate_core::{Mode, RequestContext, RequestPath};
use serde::{Serialize, Serializer};

use super::answer::Answer;

/// The most that the service reads.
const MOST_BYTES: usize = 64 * 1024;
/// The most that headers may take of that. About a request with more nobody is
/// asked: were the rest left out, a client could hide a header behind others.
const MOST_HEADER_BYTES: usize = 32 * 1024;

/// Headers of the connection, and secrets that no rule should ask about.
const KEPT_BACK: [&str; 11] = [
    "authorization",
    "connection",
    "cookie",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What the service is asked.
#[derive(Debug, Serialize)]
pub(super) struct Question<'a> {
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
    /// Where it differs from the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    normal_path: Option<&'a str>,
    headers: Pairs<'a>,
    attributes: Pairs<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u64>,
    /// False where the request cannot wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<bool>,
    /// How it was answered, where what it reserved is cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<&'a str>,
}

impl<'a> Question<'a> {
    /// Of this request, with these headers only if any are named; `None` if they
    /// are more than is sent.
    pub(super) fn new(
        rule_set: &'a str,
        context: &'a RequestContext<'_>,
        headers: Option<&[Box<str>]>,
    ) -> Option<Self> {
        Some(Self {
            rule_set,
            ip: context.ip(),
            user: context.user(),
            api_key: context.api_key(),
            method: context.method(),
            path: context.path(),
            normal_path: context.request_path().and_then(RequestPath::other),
            headers: headers_of(context, headers)?,
            attributes: attributes_of(context),
            cost: context.cost(),
            wait: None,
            outcome: None,
            reservation: None,
        })
    }

    /// The same, to be decided in this mode.
    pub(super) fn in_mode(mut self, mode: Mode) -> Self {
        self.wait = (mode == Mode::TakeNow).then_some(false);
        self
    }

    /// The same, with how it was answered; `None` if it reserved nothing.
    pub(super) fn answered(mut self, answer: &'a Answer) -> Option<Self> {
        self.outcome = Some(answer.outcome.name());
        self.reservation = Some(answer.reservation.as_deref()?);
        Some(self)
    }

    /// As the body of a call; `None` if that is more than the service reads.
    pub(super) fn body(&self) -> Option<Bytes> {
        let body = serde_json::to_vec(self).ok()?;
        (body.len() <= MOST_BYTES).then(|| Bytes::from(body))
    }
}

/// The first header of each name, if they fit.
fn headers_of<'a>(
    context: &'a RequestContext<'_>,
    chosen: Option<&[Box<str>]>,
) -> Option<Pairs<'a>> {
    let is_in = |list: &[Box<str>], name: &str| list.iter().any(|it| it.eq_ignore_ascii_case(name));
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    let mut left = MOST_HEADER_BYTES;
    for (name, value) in context.headers() {
        let is_known = pairs
            .iter()
            .any(|(known, _)| known.eq_ignore_ascii_case(name));
        let is_sent = match chosen {
            Some(chosen) => is_in(chosen, name),
            None => !KEPT_BACK.iter().any(|kept| kept.eq_ignore_ascii_case(name)),
        };
        if is_known || !is_sent {
            continue;
        }
        left = left.checked_sub(name.len() + value.len())?;
        pairs.push((name, value));
    }
    Some(Pairs(pairs))
}

/// Of two attributes of one name, the one that was set last.
fn attributes_of<'a>(context: &'a RequestContext<'_>) -> Pairs<'a> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for (name, value) in context.attributes() {
        pairs.retain(|(known, _)| *known != name);
        pairs.push((name, value));
    }
    Pairs(pairs)
}

/// Names and values, as an object.
#[derive(Debug)]
struct Pairs<'a>(Vec<(&'a str, &'a str)>);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}
