//! `POST /v1/check` and `POST /v1/check/batch`.

use std::borrow::Cow;
use std::fmt;

use axum::extract::{Request, State};
use axum::response::Response;
use fluxgate_core::json::{ContextFields, Text, concat_names, read_once};
use fluxgate_core::{Decision, RequestContext, RequestContextBuilder};
use fluxgate_http::server::{Listener, Origin, RULE_SET, STATUS};
use fluxgate_http::{FailedClosedStatus, Problem};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::body;
use super::response::{ApiResult, DecisionForm, json_response, names_missing_set, write_decision};
use super::state::{ApiState, SharedState};
use crate::engine::EngineError;
use crate::hold_span::{HoldText, parse_hold_span};

/// How many checks a batch may hold.
const MAX_CHECKS: usize = 1_000;

/// The value of [`RULE_SET`] for a rule set that does not exist.
pub(super) const MISSING: HeaderValue = HeaderValue::from_static("missing");

/// The field with the normal form of the path, for callers that have computed it.
pub(super) const NORMAL_PATH: &str = "normal_path";

/// The field that callers set if their server ignores case in paths.
const IGNORE_CASE: &str = "ignore_case";

/// The names of the fields of a check.
const FIELDS: [&str; 15] = concat_names(&[
    &ContextFields::NAMES,
    &[NORMAL_PATH, IGNORE_CASE, "peek", "wait", "again", "hold"],
]);

/// Decides one request. Simple checks take the [fast path](super::fast_path) instead.
pub(super) async fn check(State(api): SharedState, request: Request) -> ApiResult {
    let (head, body) = request.into_parts();
    let origin = Origin::with_headers(Listener::Api, &head.headers);
    let options = StatusOptions::read(head.uri.query())?;
    let body = body::read(&head.headers, body).await?;
    let check: CheckRequest<'_> = body::parse(&body)?;
    let decision = check.decide(&api, &origin).await?;
    let (status, form) = options.status_for(&decision);
    let mut json = Vec::with_capacity(512);
    write_decision(&mut json, &decision, form);
    let mut response = Response::new(json.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, form.content_type());
    api.headers.write(&decision, headers);
    if let Some(status) = decision.forbidden_status() {
        headers.insert(STATUS, status.into());
    }
    if names_missing_set(&decision) {
        headers.insert(RULE_SET, MISSING);
    }
    Ok(response)
}

/// Decides several requests, each on its own, in order.
pub(super) async fn batch(State(api): SharedState, request: Request) -> ApiResult {
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body).await?;
    let Batch { checks } = body::parse(&body)?;
    if checks.len() > MAX_CHECKS {
        return Err(Problem::bad_request(format!(
            "`checks` has more than {MAX_CHECKS} items"
        )));
    }
    let origin = Origin::with_headers(Listener::Api, &head.headers);
    // All checks are validated before the first is charged.
    let mut prepared = Vec::with_capacity(checks.len());
    for (index, check) in checks.into_iter().enumerate() {
        let check = check.prepare(&api);
        prepared.push(check.map_err(|problem| problem.within(format!("`checks[{index}]`")))?);
    }
    let mut json = Vec::with_capacity(256 * prepared.len());
    json.extend_from_slice(b"{\"decisions\":[");
    for (index, check) in prepared.iter().enumerate() {
        if index > 0 {
            json.push(b',');
        }
        let decision = check.decide(&api, &origin).await?;
        write_decision(&mut json, &decision, DecisionForm::InBatch);
    }
    json.extend_from_slice(b"]}");
    Ok(json_response(json))
}

/// The options in the query of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatusOptions {
    /// Whether a denial has an error status instead of 200.
    status: bool,
    /// The status of a denial that is due to a store failure.
    failed_closed: FailedClosedStatus,
}

impl StatusOptions {
    /// Those of a query without any.
    pub(super) const NONE: Self = Self {
        status: false,
        failed_closed: FailedClosedStatus::ServiceUnavailable,
    };

    /// Those of `?status=true`.
    pub(super) const WITH_STATUS: Self = Self {
        status: true,
        ..Self::NONE
    };

    /// Returns the status and the form of the answer.
    pub(super) fn status_for(self, decision: &Decision) -> (StatusCode, DecisionForm) {
        if self.status && !decision.allowed() {
            let status = self.failed_closed.status_for(decision);
            (status, DecisionForm::Problem(status))
        } else {
            (StatusCode::OK, DecisionForm::Decision)
        }
    }

    fn read(query: Option<&str>) -> Result<Self, Problem> {
        let mut options = Self::NONE;
        let refuse = |detail: &str| Err(Problem::bad_request(detail));
        for pair in query.unwrap_or_default().split('&') {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("", "") => {}
                ("status", "true") => options.status = true,
                ("status", "false") => options.status = false,
                ("status", _) => return refuse("`status` must be true or false"),
                ("failed_closed_status", "503") => {
                    options.failed_closed = FailedClosedStatus::ServiceUnavailable;
                }
                ("failed_closed_status", "429") => {
                    options.failed_closed = FailedClosedStatus::TooManyRequests;
                }
                ("failed_closed_status", _) => {
                    return refuse("`failed_closed_status` must be 503 or 429");
                }
                _ => {
                    let known = "`status` and `failed_closed_status`";
                    return refuse(&format!("the query may contain only {known}"));
                }
            }
        }
        Ok(options)
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<'a> {
    #[serde(borrow)]
    checks: Vec<CheckRequest<'a>>,
}

/// A check as the client sent it.
#[derive(Default)]
pub(super) struct CheckRequest<'a> {
    context: ContextFields<'a>,
    normal_path: Option<Text<'a>>,
    ignores_case: bool,
    /// Whether the same request was decided before, and denied.
    is_decided_again: bool,
    /// How long to hold the charge.
    hold: Option<HoldText<'a>>,
    peek: bool,
    /// Whether the caller can wait. If unset, the decision may have a delay, but no reservation is
    /// kept that could be cancelled.
    wait: Option<bool>,
}

/// A valid check.
struct PreparedCheck<'a> {
    rule_set: Cow<'a, str>,
    context: RequestContext<'a>,
    peek: bool,
    wait: Option<bool>,
}

impl<'a> CheckRequest<'a> {
    pub(super) async fn decide(
        self,
        api: &ApiState,
        origin: &Origin<'_>,
    ) -> Result<Decision, Problem> {
        self.prepare(api)?.decide(api, origin).await
    }

    fn prepare(self, api: &ApiState) -> Result<PreparedCheck<'a>, Problem> {
        let (peek, wait) = (self.peek, self.wait);
        let (rule_set, context) = self.into_context(|| only_rule_set(api, "rule_set"))?;
        Ok(PreparedCheck {
            rule_set,
            context,
            peek,
            wait,
        })
    }

    /// Returns the rule set, or the default if it names none, and the request.
    pub(super) fn into_context(
        mut self,
        default: impl FnOnce() -> Result<String, Problem>,
    ) -> Result<(Cow<'a, str>, RequestContext<'a>), Problem> {
        let rule_set = match self.context.rule_set.take() {
            Some(name) => name,
            None => Cow::Owned(default()?),
        };
        let mut context = self.context.into_context().map_err(Problem::bad_request)?;
        if let Some(Text(normal)) = self.normal_path {
            context = context.with_normal_path(normal);
        }
        if self.ignores_case {
            context = context.ignoring_case();
        }
        if self.is_decided_again {
            context = context.decided_again();
        }
        if let Some(HoldText(hold)) = self.hold {
            let span = parse_hold_span("hold", &hold).map_err(Problem::bad_request)?;
            context = RequestContextBuilder::from(context).hold(span).build();
        }
        Ok((rule_set, context))
    }
}

impl PreparedCheck<'_> {
    async fn decide(&self, api: &ApiState, origin: &Origin<'_>) -> Result<Decision, Problem> {
        let (rule_set, context) = (&*self.rule_set, &self.context);
        let engine = &api.engine;
        if self.peek {
            return Ok(engine.peek(rule_set, context).await?);
        }
        let may_wait = self.wait.unwrap_or(true);
        let mut decision = engine.check(rule_set, context, may_wait, origin).await?;
        if self.wait == Some(true) && !decision.delay().is_zero() {
            engine.keep_reservation(&mut decision, context).await;
        }
        Ok(decision)
    }
}

/// Returns the name of the only rule set, for checks that name none in this field.
pub(super) fn only_rule_set(api: &ApiState, field: &str) -> Result<String, Problem> {
    let rules = api.engine.rules().ok_or(EngineError::NotReady)?;
    let only = rules.only().map(|set| set.name().to_owned());
    only.ok_or_else(|| body::missing(field))
}

impl<'de: 'a, 'a> Deserialize<'de> for CheckRequest<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CheckVisitor;

        impl<'de> Visitor<'de> for CheckVisitor {
            type Value = CheckRequest<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut context = ContextFields::default();
                let (mut peek, mut wait, mut again) = (None, None, None);
                let (mut normal_path, mut ignore_case, mut hold) = (None, None, None);
                while let Some(Text(name)) = map.next_key()? {
                    if name == "peek" {
                        read_once("peek", &mut peek, &mut map)?;
                    } else if name == "wait" {
                        read_once("wait", &mut wait, &mut map)?;
                    } else if name == "again" {
                        read_once("again", &mut again, &mut map)?;
                    } else if name == "hold" {
                        read_once("hold", &mut hold, &mut map)?;
                    } else if name == NORMAL_PATH {
                        read_once(NORMAL_PATH, &mut normal_path, &mut map)?;
                    } else if name == IGNORE_CASE {
                        read_once(IGNORE_CASE, &mut ignore_case, &mut map)?;
                    } else if !context.read(&name, &mut map)? {
                        return Err(de::Error::unknown_field(&name, &FIELDS));
                    }
                }
                Ok(CheckRequest {
                    context,
                    normal_path: normal_path.flatten(),
                    ignores_case: ignore_case.flatten().unwrap_or(false),
                    is_decided_again: again.flatten().unwrap_or(false),
                    hold: hold.flatten(),
                    peek: peek.flatten().unwrap_or(false),
                    wait: wait.flatten(),
                })
            }
        }

        deserializer.deserialize_map(CheckVisitor)
    }
}
