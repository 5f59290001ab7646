//! `POST /v1/check` and `POST /v1/check/batch`.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use fluxgate_core::json::{ContextFields, Text, read_once};
use fluxgate_core::{Decision, RequestContext};
use fluxgate_tower::FailedClosedStatus;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::decision_json::{Form, write_decision};

use super::{Api, body};
use crate::engine::EngineError;
use crate::http::{Listener, Origin, PROBLEM_JSON, Problem};

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// How many checks one call may hold.
const MOST_CHECKS: usize = 1_000;

/// The field for the normal form of the path, where a proxy has read it already.
pub(super) const NORMAL_PATH: &str = "normal_path";

/// The names of the fields of a check.
const FIELDS: [&str; 12] = {
    let [a, b, c, d, e, f, g, h, i] = ContextFields::NAMES;
    [a, b, c, d, e, f, g, h, i, NORMAL_PATH, "peek", "wait"]
};

/// Decides one request. (Plain ones come by way of [`Api::check_plain`].)
pub(super) async fn check(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let origin = Origin::with_headers(Listener::Api, &head.headers);
    let wanted = WantedStatus::read(head.uri.query())?;
    let body = body::read(body).await?;
    let asked: Asked<'_> = body::parse(&body)?;
    let decision = asked.decide(&api, &origin).await?;
    let (status, content_type, form) = match wanted.status {
        true if !decision.allowed() => {
            let status = wanted.failed_closed.status_for(decision.outcome());
            (status, PROBLEM_JSON, Form::Problem(status))
        }
        _ => (StatusCode::OK, JSON, Form::Decision),
    };
    let mut json = Vec::with_capacity(512);
    write_decision(&mut json, &decision, form);
    let mut response = Response::new(json.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    api.headers.write(&decision, headers);
    Ok(response)
}

/// Decides several requests, each on its own, in order.
pub(super) async fn batch(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let body = body::read(body).await?;
    let Batch { checks } = body::parse(&body)?;
    if checks.len() > MOST_CHECKS {
        return Err(Problem::bad_request(format!(
            "`checks` holds more than {MOST_CHECKS}"
        )));
    }
    let origin = Origin::with_headers(Listener::Api, &head.headers);
    // All are read before the first is charged.
    let mut ready = Vec::with_capacity(checks.len());
    for (index, asked) in checks.into_iter().enumerate() {
        let request = asked.into_request(&api);
        ready.push(request.map_err(|problem| problem.within(format!("`checks[{index}]`")))?);
    }
    let mut json = Vec::with_capacity(256 * ready.len());
    json.extend_from_slice(b"{\"decisions\":[");
    for (index, request) in ready.iter().enumerate() {
        if index > 0 {
            json.push(b',');
        }
        let decision = request.decide(&api, &origin).await?;
        write_decision(&mut json, &decision, Form::Decision);
    }
    json.extend_from_slice(b"]}");
    let mut response = Response::new(json.into());
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    Ok(response)
}

/// What the query says of the status.
#[derive(Default)]
struct WantedStatus {
    /// Whether denials are to be told by the status too.
    status: bool,
    /// What it is where the decision failed closed.
    failed_closed: FailedClosedStatus,
}

impl WantedStatus {
    fn read(query: Option<&str>) -> Result<Self, Problem> {
        let mut wanted = Self::default();
        for pair in query.unwrap_or_default().split('&') {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("", "") => {}
                ("status", "true") => wanted.status = true,
                ("status", "false") => wanted.status = false,
                ("status", _) => {
                    return Err(Problem::bad_request("`status` must be true or false"));
                }
                ("failed_closed_status", "503") => {
                    wanted.failed_closed = FailedClosedStatus::ServiceUnavailable;
                }
                ("failed_closed_status", "429") => {
                    wanted.failed_closed = FailedClosedStatus::TooManyRequests;
                }
                ("failed_closed_status", _) => {
                    return Err(Problem::bad_request(
                        "`failed_closed_status` must be 503 or 429",
                    ));
                }
                _ => {
                    return Err(Problem::bad_request(
                        "the query may hold `status` and `failed_closed_status` only",
                    ));
                }
            }
        }
        Ok(wanted)
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<'a> {
    #[serde(borrow)]
    checks: Vec<Asked<'a>>,
}

/// A check, as it was asked for.
#[derive(Default)]
pub(super) struct Asked<'a> {
    context: ContextFields<'a>,
    normal_path: Option<Text<'a>>,
    peek: bool,
    /// Whether the caller cannot wait.
    now: bool,
}

/// A check that can be decided.
struct Ready<'a> {
    rule_set: Cow<'a, str>,
    context: RequestContext<'a>,
    peek: bool,
    now: bool,
}

impl<'a> Asked<'a> {
    pub(super) async fn decide(self, api: &Api, origin: &Origin<'_>) -> Result<Decision, Problem> {
        self.into_request(api)?.decide(api, origin).await
    }

    fn into_request(mut self, api: &Api) -> Result<Ready<'a>, Problem> {
        let rule_set = match self.context.rule_set.take() {
            Some(name) => name,
            None => Cow::Owned(only_rule_set(api)?),
        };
        let mut context = self.context.into_context().map_err(Problem::bad_request)?;
        if let Some(Text(normal)) = self.normal_path {
            context = context.with_normal_path(normal);
        }
        Ok(Ready {
            rule_set,
            context,
            peek: self.peek,
            now: self.now,
        })
    }
}

impl Ready<'_> {
    async fn decide(&self, api: &Api, origin: &Origin<'_>) -> Result<Decision, Problem> {
        let (rule_set, context) = (&*self.rule_set, &self.context);
        let may_wait = !self.now;
        Ok(match self.peek {
            true => api.engine.peek(rule_set, context).await?,
            false => {
                api.engine
                    .check(rule_set, context, may_wait, origin)
                    .await?
            }
        })
    }
}

/// The rule set that is meant where none is named.
fn only_rule_set(api: &Api) -> Result<String, Problem> {
    let rules = api.engine.rules().ok_or(EngineError::NotReady)?;
    let only = rules.only().map(|set| set.name().to_owned());
    only.ok_or_else(|| Problem::bad_request("`rule_set` is missing"))
}

impl<'de: 'a, 'a> Deserialize<'de> for Asked<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AskedVisitor;

        impl<'de> Visitor<'de> for AskedVisitor {
            type Value = Asked<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Asked<'de>, M::Error> {
                let mut context = ContextFields::default();
                let (mut peek, mut wait, mut normal_path) = (None, None, None);
                while let Some(Text(name)) = map.next_key()? {
                    if name == "peek" {
                        read_once("peek", &mut peek, &mut map)?;
                    } else if name == "wait" {
                        read_once("wait", &mut wait, &mut map)?;
                    } else if name == NORMAL_PATH {
                        read_once(NORMAL_PATH, &mut normal_path, &mut map)?;
                    } else if !context.read(&name, &mut map)? {
                        return Err(de::Error::unknown_field(&name, &FIELDS));
                    }
                }
                let (peek, wait): (Option<bool>, Option<bool>) = (peek.flatten(), wait.flatten());
                Ok(Asked {
                    context,
                    normal_path: normal_path.flatten(),
                    peek: peek.unwrap_or(false),
                    now: !wait.unwrap_or(true),
                })
            }
        }

        deserializer.deserialize_map(AskedVisitor)
    }
}
