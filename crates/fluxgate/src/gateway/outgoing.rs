//! A request as an upstream gets it.

use std::sync::Arc;

use http::header::{CONNECTION, COOKIE, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version};
use hyper::body::{Body as _, Incoming};

use super::activity::Activity;
use super::answer::Client;
use super::forward::Outgoing;
use super::forwarded::{Forwarded, is_about_origin};
use super::request_body::RequestBody;
use super::routes::Route;
use super::{Gateway, hop_by_hop, strict};
use crate::server::REQUEST_ID;

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
        let upgrade = protocol
            .is_some()
            .then(|| parts.extensions.remove::<hyper::upgrade::OnUpgrade>())
            .flatten();
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
        headers.remove(EXPECT);
        headers.remove(TRAILER);
        strip_claims(headers, forwarded.is_trusted);
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
        if let (Some(protocol), Some(_)) = (protocol, &upgrade) {
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
            body: RequestBody::new(body, most, self.timeouts.idle, &activity, &client.pulse),
            parts,
            activity,
            upgrade,
        }
    }
}

/// Takes out what a client says that only we can know, also where it writes `_`
/// for `-`, which some servers take for the same.
fn strip_claims(headers: &mut HeaderMap, is_trusted: bool) {
    let is_claim = |name: &HeaderName| {
        let name = name.as_str();
        if name.contains('_') {
            let name = name.replace('_', "-");
            return is_about_origin(&name, false) || name == "x-request-id" || name == "host";
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
fn origin_form(uri: &Uri) -> Uri {
    let target = uri.path_and_query().cloned();
    let target = target.unwrap_or_else(|| PathAndQuery::from_static("/"));
    Uri::from(target)
}
