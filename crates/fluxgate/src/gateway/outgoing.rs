//! A request as an upstream gets it.

use std::sync::Arc;

use fluxgate_core::RuleSet;
use fluxgate_tower::Filter;
use http::header::{CONNECTION, COOKIE, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version};
use hyper::body::{Body as _, Incoming};
use hyper::upgrade::OnUpgrade;

use super::activity::Activity;
use super::answer::Client;
use super::forward::{Outgoing, Wanted};
use super::forwarded::{Forwarded, is_about_origin};
use super::request_body::RequestBody;
use super::routes::Route;
use super::trouble::Trouble;
use super::{Gateway, hop_by_hop, strict};
use crate::http::REQUEST_ID;

impl Gateway {
    /// The request as an upstream gets it.
    pub(super) fn outgoing(
        &self,
        mut parts: Parts,
        body: Incoming,
        host: &str,
        route: &Route,
        client: &Client,
    ) -> Outgoing {
        let protocol = strict::wanted_upgrade(&parts);
        // The library knows whether it can let the connection go.
        let may_upgrade = parts.extensions.get::<OnUpgrade>().is_some();
        let protocol = protocol.filter(|_| may_upgrade);
        let upgrade = protocol.is_some();
        let forwarded = Forwarded {
            peer: client.peer.ip(),
            is_trusted: route.trusts(client.peer.ip()),
            is_secure: client.is_secure,
            host,
            port: client.port,
        };
        let mut told = Vec::with_capacity(5);
        forwarded.tell(&parts, &mut Vec::new(), |name, value| {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                told.push((HeaderName::from_static(name), value));
            }
        });
        let wants_trailers = parts.headers.get_all(TE).iter().any(|line| {
            let mut codings = line.as_bytes().split(|byte| *byte == b',');
            codings.any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
        });
        let headers = &mut parts.headers;
        // It is ours, whatever the client says of it.
        let request_id = headers.get(REQUEST_ID).cloned();
        hop_by_hop::strip(headers);
        if let Some(id) = request_id {
            headers.insert(REQUEST_ID, id);
        }
        // The library says 100 Continue; trailers are not passed on.
        let awaits_continue = headers.remove(EXPECT).is_some();
        headers.remove(TRAILER);
        strip_claims(headers, forwarded.is_trusted, |name| {
            self.is_underscore_variant(route, name)
        });
        route.keep_one_identity(headers);
        join_cookies(headers);
        headers.extend(told);
        if let Ok(host) = HeaderValue::from_str(host)
            && !host.is_empty()
        {
            headers.insert(HOST, host);
        }
        if wants_trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
            headers.insert(CONNECTION, HeaderValue::from_static("te"));
        }
        if let Some(protocol) = protocol {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, protocol);
        }
        // The library sends no body that it does not expect, unless it is told.
        if !body.is_end_stream() && body.size_hint().exact().is_none() {
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        parts.uri = origin_form(&parts.uri);
        parts.version = Version::HTTP_11;
        parts.extensions.clear();
        let activity = Arc::new(Activity::new());
        let most = self.limits.body_bytes.map(u64::from);
        Outgoing {
            body: RequestBody::new(
                body,
                (most, awaits_continue),
                self.timeouts.idle,
                &activity,
                &client.pulse,
            ),
            parts,
            activity,
            wanted: Wanted {
                upgrade,
                trailers: wants_trailers,
            },
        }
    }
}

impl Gateway {
    /// Refuses a request whose `Connection` names a header by which it is counted: the
    /// upstream would not get it.
    pub(super) fn check_connection(&self, route: &Route, parts: &Parts) -> Result<(), Trouble> {
        let is_counted = |name: HeaderName| {
            let name = name.as_str();
            let is_in_key = |set: &RuleSet| set.key_header_names().iter().any(|it| **it == *name);
            route.is_identity(name) || self.any_filter(route, |_, set| set.is_some_and(is_in_key))
        };
        match hop_by_hop::named(&parts.headers).any(is_counted) {
            true => Err(Trouble::Ambiguous("Connection names who is counted")),
            false => Ok(()),
        }
    }

    /// Whether the name of a header differs only by `_` for `-` from one by which requests
    /// are routed or counted.
    fn is_underscore_variant(&self, route: &Route, name: &str) -> bool {
        let is_like_counted = |filter: &Filter, set: Option<&RuleSet>| {
            filter.is_underscore_variant(name, set.map_or(&[], RuleSet::header_names))
        };
        self.routes.has_underscore_variant(name) || self.any_filter(route, is_like_counted)
    }

    /// Whether something holds of a filter of a route and of the rules that it asks.
    fn any_filter(&self, route: &Route, holds: impl Fn(&Filter, Option<&RuleSet>) -> bool) -> bool {
        let rules = self.engine.rules();
        let mut filters = route.filters.iter();
        filters.any(|filter| {
            let rules = rules.as_ref().zip(filter.rule_set_name());
            holds(
                filter,
                rules
                    .and_then(|(rules, name)| rules.get(name))
                    .map(|set| &**set),
            )
        })
    }
}

/// Takes out what a client says that only we can know, also where it writes `_` for `-`,
/// which some servers take for the same, and what `is_underscore_variant` of a header that is read.
fn strip_claims(
    headers: &mut HeaderMap,
    is_trusted: bool,
    is_underscore_variant: impl Fn(&str) -> bool,
) {
    let is_claim = |name: &HeaderName| {
        let name = name.as_str();
        if name.contains('_') {
            let plain = name.replace('_', "-");
            let is_ours = matches!(&*plain, "x-request-id" | "host");
            return is_ours || is_about_origin(&plain, false) || is_underscore_variant(name);
        }
        is_about_origin(name, is_trusted)
    };
    let claims: Vec<_> = headers
        .keys()
        .filter(|name| is_claim(name))
        .cloned()
        .collect();
    for name in claims {
        headers.remove(name);
    }
}

/// HTTP/2 may send cookies one by one; in HTTP/1.1 they are one line.
fn join_cookies(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(COOKIE).iter();
    if lines.next().is_none() || lines.next().is_none() {
        return;
    }
    let lines: Vec<_> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if let Ok(joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

/// The target without scheme and host.
pub(super) fn origin_form(uri: &Uri) -> Uri {
    let target = uri.path_and_query().cloned();
    let target = target.unwrap_or_else(|| PathAndQuery::from_static("/"));
    Uri::from(target)
}
