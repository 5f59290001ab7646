//! The filter without the layer, as a gateway uses it.

use fluxgate_core::path::RequestPath;
use fluxgate_http::{
    BadRequest, Filter, FilterOutcome, Identity, IncomingRequest, RequestHead, Source, evaluate,
};
use http::Request;

use crate::support::limiter;

/// A request head other than `http::request::Parts`.
#[derive(Default)]
struct Plain<'a> {
    query: &'a str,
    headers: &'a [(&'a str, &'a str)],
}

impl RequestHead for Plain<'_> {
    fn method(&self) -> &str {
        "GET"
    }

    fn query(&self) -> Option<&str> {
        Some(self.query)
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

/// A request from a trusted proxy.
fn incoming<'a, D>(head: &'a D, path: &'a RequestPath<'a>) -> IncomingRequest<'a, D> {
    let peer = Some([10, 0, 0, 1].into());
    IncomingRequest { head, path, peer }
}

#[tokio::test(start_paused = true)]
async fn the_outcome_is_the_same_for_every_kind_of_head() {
    let rules = "{ id: r, key: [ip, user, \"header:X-A\", \"attr:a\"], on_missing_key: anonymous, \
                 bands: [ { capacity: 2, window: 1h } ] }";
    let limiter = limiter(rules);
    let filter = Filter::default()
        .rule_set("s")
        .identity(Identity::default().user(Source::query("u")))
        .attribute("a", Source::cookie("a"))
        .trusted_proxies(["10.0.0.0/8".parse().unwrap()]);
    let headers = [
        ("X-A", "1"),
        ("X-Forwarded-For", "1.2.3.4"),
        ("Cookie", "a=2"),
    ];
    let plain = Plain {
        query: "u=v",
        headers: &headers,
    };
    let path = RequestPath::as_given("/x");
    let request = Request::get("/x?u=v")
        .header("cookie", "a=2")
        .header("x-a", "1")
        .header("x-forwarded-for", "1.2.3.4");
    let parts = request.body(()).unwrap().into_parts().0;
    let FilterOutcome::Allowed(first) = evaluate(&filter, &limiter, incoming(&plain, &path)).await
    else {
        panic!("the first of two is allowed");
    };
    assert_eq!(first.remaining(), Some(1));
    let FilterOutcome::Allowed(second) = evaluate(&filter, &limiter, incoming(&parts, &path)).await
    else {
        panic!("the second of two is allowed");
    };
    assert_eq!(second.remaining(), Some(0));
    assert!(matches!(
        evaluate(&filter, &limiter, incoming(&plain, &path)).await,
        FilterOutcome::Denied(_)
    ));
    // A target that is not a path is limited too.
    let other = Plain::default();
    for target in ["*", ""] {
        let path = RequestPath::read(target).unwrap();
        let outcome = evaluate(&filter, &limiter, incoming(&other, &path)).await;
        assert!(matches!(outcome, FilterOutcome::Allowed(_)), "{target}");
    }
    let twice = [("X-A", "1"), ("x-a", "2")];
    let repeated = [
        ("u=1&u=2", &[][..]),
        ("", &twice),
        ("", &[("cookie", "a=1; a=2")]),
    ];
    for (query, headers) in repeated {
        let head = Plain { query, headers };
        let outcome = evaluate(&filter, &limiter, incoming(&head, &path)).await;
        assert!(
            matches!(
                outcome,
                FilterOutcome::BadRequest(BadRequest::ConflictingValues)
            ),
            "{query} {headers:?}"
        );
    }
    assert_eq!(filter.waiting(), 0);
}
