//! The filter without the layer, as a gateway uses it.

use std::net::IpAddr;

use fluxgate_core::RequestPath;
use fluxgate_tower::{BadRequest, Filter, FilterOutcome, RequestHead};
use http::Request;

use crate::support::limiter;

/// A request head other than `http::request::Parts`.
struct Plain<'a> {
    headers: &'a [(&'a str, &'a str)],
}

impl RequestHead for Plain<'_> {
    fn method(&self) -> &str {
        "GET"
    }

    fn header_lines<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let headers = self.headers.iter();
        let lines = headers.filter(move |(known, _)| known.eq_ignore_ascii_case(name));
        lines.map(|(_, value)| value.as_bytes())
    }

    fn all_headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers
            .iter()
            .map(|(name, value)| (*name, value.as_bytes()))
    }
}

#[tokio::test(start_paused = true)]
async fn the_outcome_is_the_same_for_every_kind_of_head() {
    let rules = "{ id: r, key: [ip, \"header:X-A\"], bands: [ { capacity: 2, window: 1h } ] }";
    let limiter = limiter(rules);
    let filter = Filter::default()
        .rule_set("s")
        .trusted_proxies(["10.0.0.0/8".parse().unwrap()]);
    let peer: Option<IpAddr> = Some([10, 0, 0, 1].into());
    let headers = [("X-A", "1"), ("X-Forwarded-For", "1.2.3.4")];
    let (plain, path) = (Plain { headers: &headers }, RequestPath::as_given("/x"));
    let request = Request::get("/x")
        .header("x-a", "1")
        .header("x-forwarded-for", "1.2.3.4");
    let parts = request.body(()).unwrap().into_parts().0;
    let FilterOutcome::Allowed(first) = filter.evaluate(&limiter, &plain, &path, peer).await else {
        panic!("the first of two is allowed");
    };
    assert_eq!(first.remaining(), Some(1));
    let FilterOutcome::Allowed(second) = filter.evaluate(&limiter, &parts, &path, peer).await
    else {
        panic!("the second of two is allowed");
    };
    assert_eq!(second.remaining(), Some(0));
    assert!(matches!(
        filter.evaluate(&limiter, &plain, &path, peer).await,
        FilterOutcome::Denied(_)
    ));
    // A target that is not a path is limited too.
    let other = Plain { headers: &[] };
    for target in ["*", ""] {
        let path = RequestPath::read(target).unwrap();
        let outcome = filter.evaluate(&limiter, &other, &path, peer).await;
        assert!(matches!(outcome, FilterOutcome::Allowed(_)), "{target}");
    }
    let twice = [("X-A", "1"), ("x-a", "2")];
    let twice = Plain { headers: &twice };
    let outcome = filter.evaluate(&limiter, &twice, &path, peer).await;
    assert!(matches!(
        outcome,
        FilterOutcome::BadRequest(BadRequest::ConflictingValues)
    ));
    assert_eq!(filter.waiting(), 0);
}
