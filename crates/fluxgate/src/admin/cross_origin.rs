//! Refuses requests that a browser sends for a page of another site.

use std::net::IpAddr;

use fluxgate_http::Problem;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Refuses a call that changes something, including charges, if a browser sends it for a
/// page of another origin. Browsers report that in `Origin` and `Sec-Fetch-Site`, which
/// pages cannot change; a call without these headers does not come from a page. On a
/// loopback address, DNS rebinding makes a page of another site look like one of this
/// service, so browsers must use `localhost` or an IP address there.
pub(crate) fn check_browser(head: &Parts, on_loopback: bool) -> Result<(), Problem> {
    let origin = head.headers.get(header::ORIGIN);
    let site = head.headers.get(SEC_FETCH_SITE);
    if origin.is_none() && site.is_none() {
        return Ok(());
    }
    let refused = || refused("cross-origin requests are not allowed".into());
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return Err(refused());
    }
    let host = host_of(head);
    if on_loopback && !host.is_some_and(is_local) {
        return Err(refused());
    }
    match origin {
        Some(origin) if !is_of_host(origin, host) => Err(refused()),
        _ => Ok(()),
    }
}

/// Returns the host of a request, perhaps with a port.
fn host_of(head: &Parts) -> Option<&str> {
    let host = head
        .headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    head.uri.authority().map(|it| it.as_str()).or(host)
}

/// Returns whether an origin belongs to a host.
fn is_of_host(origin: &HeaderValue, host: Option<&str>) -> bool {
    let origin = origin.to_str().unwrap_or("");
    let site = origin.split_once("://").map(|(_, site)| site);
    matches!((site, host), (Some(site), Some(host)) if site.eq_ignore_ascii_case(host))
}

/// Refuses a call for a page of another site where no token is required. DNS rebinding can
/// make any name resolve to this machine, so the host must be `localhost` or an IP address.
pub(super) fn check(head: &Parts) -> Result<(), Problem> {
    let host = host_of(head);
    if let Some(host) = host.filter(|host| !is_local(host)) {
        return Err(refused(format!(
            "without `admin.tokens_file`, the host must be `localhost` or an IP address, not `{host}`"
        )));
    }
    match head.headers.get(header::ORIGIN) {
        Some(origin) if !is_of_host(origin, host) => Err(refused(
            "without `admin.tokens_file`, cross-origin requests are not allowed".into(),
        )),
        _ => Ok(()),
    }
}

fn refused(detail: String) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, detail)
}

/// Returns whether a host, perhaps with a port, cannot be the target of DNS rebinding.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        // A colon inside brackets belongs to an IPv6 address.
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_localhost_and_ip_addresses_are_local() {
        for local in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:8081",
            "[::1]:8081",
            "[::1]",
            "10.0.0.1",
        ] {
            assert!(is_local(local), "{local}");
        }
        for other in [
            "evil.example:8081",
            "localhost.evil.example",
            "",
            ":80",
            "127.0.0.1.nip.io",
        ] {
            assert!(!is_local(other), "{other}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let call = |host: &str, origin: Option<&str>| {
            let mut request = http::Request::post("/v1/reset").header("host", host);
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            check(&request.body(()).unwrap().into_parts().0).is_ok()
        };
        assert!(call("127.0.0.1:8081", None));
        assert!(call("127.0.0.1:8081", Some("http://127.0.0.1:8081")));
        assert!(!call("127.0.0.1:8081", Some("http://127.0.0.1:3000")));
        assert!(!call("127.0.0.1:8081", Some("https://evil.example")));
        assert!(!call("127.0.0.1:8081", Some("null")));
        assert!(!call("evil.example:8081", Some("http://evil.example:8081")));
    }
}
