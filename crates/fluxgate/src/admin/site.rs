//! Calls without a token that a web page of somebody else makes its visitor's
//! browser send.

use std::net::IpAddr;

use http::request::Parts;
use http::{StatusCode, header};

use crate::api::Problem;

/// Refuses what a page of another site sends. A name that is not this machine's
/// may have been made to lead here, so only addresses and `localhost` will do.
pub(super) fn check(head: &Parts) -> Result<(), Problem> {
    let host = head.headers.get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok());
    let host = head.uri.authority().map(|it| it.as_str()).or(host);
    if let Some(host) = host.filter(|host| !is_here(host)) {
        return Err(refused(format!(
            "without tokens this is served to `localhost` and to addresses, not to `{host}`"
        )));
    }
    let Some(origin) = head.headers.get(header::ORIGIN) else {
        return Ok(());
    };
    let origin = origin.to_str().unwrap_or("");
    let site = origin.split_once("://").map(|(_, site)| site);
    match (site, host) {
        (Some(site), Some(host)) if site.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(refused(
            "without tokens this is not served to pages of other sites".into(),
        )),
    }
}

fn refused(detail: String) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, detail)
}

/// Whether a host, perhaps with a port, cannot be led elsewhere.
fn is_here(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        // Inside brackets it belongs to an address.
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
    fn only_names_that_cannot_lead_elsewhere_are_here() {
        for here in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:8081",
            "[::1]:8081",
            "[::1]",
            "10.0.0.1",
        ] {
            assert!(is_here(here), "{here}");
        }
        for elsewhere in [
            "evil.example:8081",
            "localhost.evil.example",
            "",
            ":80",
            "127.0.0.1.nip.io",
        ] {
            assert!(!is_here(elsewhere), "{elsewhere}");
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
