//! `POST /api/ratelimit/check`: the call that applications of OpenFluxGate make in HTTP mode.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

use axum::extract::{Request, State};
use fluxgate_core::json::Text;
use fluxgate_core::{Decision, RequestContext, RequestContextBuilder, RequestFields};
use fluxgate_http::Problem;
use fluxgate_http::server::{Listener, Origin};
use serde::Deserialize;

use super::body;
use super::check::only_rule_set;
use super::response::{ApiResult, json_response};
use super::state::SharedState;

/// What the response has in place of a number that there is not.
const NONE: i64 = -1;

/// A request as OpenFluxGate describes it. Further fields are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CheckRequest<'a> {
    #[serde(borrow)]
    rule_set_id: Option<Text<'a>>,
    #[serde(borrow)]
    client_ip: Option<Text<'a>>,
    #[serde(borrow)]
    user_id: Option<Text<'a>>,
    #[serde(borrow)]
    api_key: Option<Text<'a>>,
    #[serde(borrow)]
    endpoint: Option<Text<'a>>,
    #[serde(borrow)]
    method: Option<Text<'a>>,
}

/// Decides one request, and charges it if it is allowed. The response has no delay, so a request
/// that would have to wait is denied.
pub(super) async fn check(State(api): SharedState, request: Request) -> ApiResult {
    let (head, body) = request.into_parts();
    let origin = Origin::with_headers(Listener::Api, &head.headers);
    let body = body::read(&head.headers, body).await?;
    let call: CheckRequest<'_> = body::parse(&body)?;
    let rule_set = match value(&call.rule_set_id) {
        Some(rule_set) => Cow::Borrowed(rule_set),
        None => Cow::Owned(only_rule_set(&api, "ruleSetId")?),
    };
    let context = call.context()?;
    let decision = api.engine.check(&rule_set, &context, false, &origin);
    Ok(json_response(response(&decision.await?)))
}

impl CheckRequest<'_> {
    fn context(&self) -> Result<RequestContext<'_>, Problem> {
        let text = |field| value(field).map(Cow::Borrowed);
        let fields = RequestFields {
            ip: value(&self.client_ip).map(parse_address).transpose()?,
            user: text(&self.user_id),
            api_key: text(&self.api_key),
            method: text(&self.method),
            path: text(&self.endpoint),
            cost: None,
        };
        Ok(RequestContextBuilder::from(fields).build())
    }
}

/// Returns the value of a field. OpenFluxGate sends an empty text for an unknown value.
fn value<'t>(field: &'t Option<Text<'_>>) -> Option<&'t str> {
    let text = field.as_ref().map(|Text(text)| &**text);
    text.filter(|text| !text.is_empty())
}

/// Parses an address. Java appends the zone to a link-local one, as in `fe80::1%eth0`.
fn parse_address(text: &str) -> Result<IpAddr, Problem> {
    let parsed = match text.split_once('%') {
        Some((address, _)) => address.parse().map(|address: Ipv6Addr| address.into()),
        None => text.parse(),
    };
    parsed.map_err(|_| {
        Problem::bad_request(format!("`clientIp` must be an IP address, found {text:?}"))
    })
}

fn response(decision: &Decision) -> String {
    let number = |value: Option<u64>| {
        let value = value.map(|value| i64::try_from(value).unwrap_or(i64::MAX));
        value.unwrap_or(NONE)
    };
    let retry_after = decision.retry().after().map(|wait| wait.ceil_millis());
    format!(
        "{{\"allowed\":{},\"remaining\":{},\"retryAfterMs\":{}}}",
        decision.allowed(),
        number(decision.remaining()),
        number(retry_after)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_zone() {
        let parsed = |text| parse_address(text).ok().map(|ip| ip.to_string());
        assert_eq!(parsed("192.0.2.1").as_deref(), Some("192.0.2.1"));
        assert_eq!(parsed("0:0:0:0:0:0:0:1").as_deref(), Some("::1"));
        assert_eq!(
            parsed("fe80:0:0:0:0:0:0:1%eth0").as_deref(),
            Some("fe80::1")
        );
        for bad in ["192.0.2.1%eth0", "unknown", "192.0.2.1:80", "%", "a%b"] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }
}
