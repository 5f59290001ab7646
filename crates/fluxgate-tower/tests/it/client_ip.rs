//! The client's address behind proxies.

use std::net::IpAddr;

use fluxgate_http::TrustedProxies;
use fluxgate_tower::{ClientIpSource, RateLimitLayer};
use http::Request;
use http::request::Parts;
use ipnet::IpNet;
use proptest::prelude::*;
use tower::Layer;

use crate::support::{Events, Inner, get, limiter, send};

const PROXY: &str = "10.0.0.1";
const CLIENT: &str = "203.0.113.7";

fn trusted() -> TrustedProxies {
    let networks = ["10.0.0.0/8", "fd00::/8", "::ffff:192.168.0.0/112"];
    TrustedProxies::new(networks.map(|text| text.parse::<IpNet>().unwrap()))
}

fn request(name: &str, lines: &[&[u8]]) -> Parts {
    let mut request = Request::get("/");
    for line in lines {
        request = request.header(name, *line);
    }
    request.body(()).unwrap().into_parts().0
}

#[track_caller]
fn client(peer: &str, source: &ClientIpSource, lines: &[&[u8]], expected: &str) {
    let head = request(source.header_name(), lines);
    let peer: IpAddr = peer.parse().unwrap();
    let found = trusted().client_ip(Some(peer), source, &head).unwrap();
    let shown: Vec<_> = { lines.iter() }
        .map(|line| String::from_utf8_lossy(line))
        .collect();
    assert_eq!(found.to_string(), expected, "{peer} {shown:?}");
}

#[test]
fn x_forwarded_for_is_read_from_the_right() {
    let source = ClientIpSource::XForwardedFor;
    let table: &[(&str, &[&[u8]], &str)] = &[
        // Peers that are not trusted.
        (CLIENT, &[], CLIENT),
        (CLIENT, &[b"1.2.3.4"], CLIENT),
        ("::ffff:203.0.113.7", &[b"1.2.3.4"], CLIENT),
        // One proxy.
        (PROXY, &[], PROXY),
        (PROXY, &[b""], PROXY),
        (PROXY, &[b"203.0.113.7"], CLIENT),
        ("::ffff:10.0.0.1", &[b"203.0.113.7"], CLIENT),
        ("192.168.7.7", &[b"203.0.113.7"], CLIENT),
        ("fd00::1", &[b"203.0.113.7"], CLIENT),
        ("fe00::1", &[b"203.0.113.7"], "fe00::1"),
        // Entries that the client itself sent are to the left.
        (PROXY, &[b"1.1.1.1, 203.0.113.7"], CLIENT),
        (PROXY, &[b"10.0.0.9, 203.0.113.7"], CLIENT),
        (PROXY, &[b"garbage, 203.0.113.7"], CLIENT),
        (PROXY, &[b"1.1.1.1", b"203.0.113.7"], CLIENT),
        // Many hops.
        (PROXY, &[b"1.1.1.1, 203.0.113.7, 10.0.0.3,10.0.0.2"], CLIENT),
        (
            PROXY,
            &[b"1.1.1.1", b"203.0.113.7 , 10.0.0.3", b"10.0.0.2"],
            CLIENT,
        ),
        (PROXY, &[b"203.0.113.7, ::ffff:10.0.0.3, fd00::5"], CLIENT),
        // If all are trusted, the leftmost.
        (PROXY, &[b"10.0.0.4, 10.0.0.3, 10.0.0.2"], "10.0.0.4"),
        (PROXY, &[b"10.0.0.4", b"10.0.0.3"], "10.0.0.4"),
        // Ports and brackets.
        (PROXY, &[b"203.0.113.7:4711"], CLIENT),
        (PROXY, &[b"[2001:db8::1]:4711"], "2001:db8::1"),
        (PROXY, &[b"[2001:db8::1]"], "2001:db8::1"),
        (PROXY, &[b"2001:db8::1"], "2001:db8::1"),
        (PROXY, &[b"::ffff:203.0.113.7"], CLIENT),
        (PROXY, &[b"[::ffff:203.0.113.7]:80"], CLIENT),
        // An entry that is not an address ends the search.
        (PROXY, &[b"unknown"], PROXY),
        (PROXY, &[b"203.0.113.7, unknown"], PROXY),
        (PROXY, &[b"203.0.113.7, unknown, 10.0.0.2"], "10.0.0.2"),
        (PROXY, &[b"203.0.113.7, -, 10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        (PROXY, &[b"203.0.113.7 10.0.0.2"], PROXY),
        (PROXY, &[b"203.0.113.7:"], PROXY),
        (PROXY, &[b"203.0.113.7:http"], PROXY),
        (PROXY, &[b"203.0.113.7:99999"], PROXY),
        (PROXY, &[b"203.0.113.7:+1"], PROXY),
        (PROXY, &[b"203.0.113.256"], PROXY),
        (PROXY, &[b"203.0.113"], PROXY),
        (PROXY, &[b"0x7f.1"], PROXY),
        (PROXY, &[b"[203.0.113.7]"], PROXY),
        (PROXY, &[b"[2001:db8::1"], PROXY),
        (PROXY, &[b"[2001:db8::1]x"], PROXY),
        (PROXY, &[b"2001:db8::1%eth0"], PROXY),
        (PROXY, &[b"2001:db8::1:::"], PROXY),
        (PROXY, &[b"\"203.0.113.7\""], PROXY),
        (PROXY, &[b"203.0.113.7\xff"], PROXY),
        (PROXY, &[b"for=203.0.113.7"], PROXY),
        // Empty elements are ignored.
        (PROXY, &[b"203.0.113.7,, ,"], CLIENT),
        (PROXY, &[b"203.0.113.7", b"", b" , "], CLIENT),
    ];
    for (peer, lines, expected) in table {
        client(peer, &source, lines, expected);
    }
}

#[test]
fn forwarded_is_read_from_the_right() {
    let source = ClientIpSource::Forwarded;
    let table: &[(&str, &[&[u8]], &str)] = &[
        (CLIENT, &[b"for=1.2.3.4"], CLIENT),
        (PROXY, &[b"for=203.0.113.7"], CLIENT),
        (PROXY, &[b"For=203.0.113.7"], CLIENT),
        (
            PROXY,
            &[b"proto=http;FOR=\"203.0.113.7:80\";by=10.0.0.1"],
            CLIENT,
        ),
        (PROXY, &[b"by=10.0.0.9 ; for=203.0.113.7"], CLIENT),
        (PROXY, &[b"for=203.0.113.7;"], CLIENT),
        (PROXY, &[b" ;; for=203.0.113.7;;proto=http"], CLIENT),
        (PROXY, &[b"for=\"203.0.113.7:_x-1.y\""], CLIENT),
        (PROXY, &[b"for=\"[2001:db8::1]:_p\""], "2001:db8::1"),
        (PROXY, &[b"for=\"203.0.113.7:_\""], PROXY),
        (PROXY, &[b"for=\"203.0.113.7:_p q\""], PROXY),
        (PROXY, &[b"for=\"[2001:db8::1]:4711\""], "2001:db8::1"),
        (PROXY, &[b"for=\"[2001:db8::1]\""], "2001:db8::1"),
        (PROXY, &[b"for=\"[::ffff:203.0.113.7]\""], CLIENT),
        (PROXY, &[b"for=\"203\\.0.113.7\""], CLIENT),
        (
            PROXY,
            &[b"for=1.1.1.1, for=203.0.113.7;proto=https, for=10.0.0.2"],
            CLIENT,
        ),
        (
            PROXY,
            &[
                b"for=1.1.1.1",
                b"for=203.0.113.7,for=10.0.0.3",
                b"for=10.0.0.2",
            ],
            CLIENT,
        ),
        (PROXY, &[b"for=10.0.0.4, for=10.0.0.3"], "10.0.0.4"),
        // Separators in quotes.
        (
            PROXY,
            &[b"for=203.0.113.7;host=\"a,b;for=1.1.1.1\""],
            CLIENT,
        ),
        (
            PROXY,
            &[b"host=\"a\\\",for=1.1.1.1\";for=203.0.113.7"],
            CLIENT,
        ),
        // A quote that the client leaves open does not affect the entries of proxies.
        (
            PROXY,
            &[b"for=1.1.1.1;host=\"open, for=203.0.113.7"],
            CLIENT,
        ),
        (PROXY, &[b"\", for=203.0.113.7"], CLIENT),
        (PROXY, &[b"\"", b"for=203.0.113.7"], CLIENT),
        // Entries that are not addresses.
        (PROXY, &[b"for=unknown"], PROXY),
        (PROXY, &[b"for=_hidden"], PROXY),
        (PROXY, &[b"for=\"_SEVKISEK\""], PROXY),
        (PROXY, &[b"for=203.0.113.7, for=_gazonk"], PROXY),
        (
            PROXY,
            &[b"for=203.0.113.7, for=unknown, for=10.0.0.2"],
            "10.0.0.2",
        ),
        (PROXY, &[b"proto=http"], PROXY),
        (PROXY, &[b"for=203.0.113.7, proto=http"], PROXY),
        (PROXY, &[b"for=203.0.113.7;for=1.1.1.1"], PROXY),
        (PROXY, &[b"203.0.113.7"], PROXY),
        (PROXY, &[b"for="], PROXY),
        (PROXY, &[b"for=\"203.0.113.7"], PROXY),
        (PROXY, &[b"for=203.0.113.7\""], PROXY),
        (PROXY, &[b"for=\"203.0.113.7\\\""], PROXY),
        (PROXY, &[b"x-for=203.0.113.7"], PROXY),
        (PROXY, &[b"for=203.0.113.7,,"], CLIENT),
        (PROXY, &[b""], PROXY),
    ];
    for (peer, lines, expected) in table {
        client(peer, &source, lines, expected);
    }
}

#[test]
fn a_peer_that_is_always_trusted_reports_the_client() {
    for (lines, expected) in [
        (&[][..], None),
        (&["unknown"][..], None),
        (&[CLIENT], Some(CLIENT)),
        (&["192.0.2.1, 203.0.113.7"], Some(CLIENT)),
        (&["192.0.2.1", "203.0.113.7, 10.0.0.9"], Some(CLIENT)),
        (&["unknown, 10.0.0.9"], Some("10.0.0.9")),
    ] {
        let bytes: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
        let head = request("x-forwarded-for", &bytes);
        let found = trusted().forwarded_client_ip(&ClientIpSource::XForwardedFor, &head);
        let found = found.map(|address| address.to_string());
        assert_eq!(found.as_deref(), expected, "{lines:?}");
    }
}

#[test]
fn another_header_may_report_the_client() {
    let source = ClientIpSource::header("CF-Connecting-IP");
    assert_eq!(source.header_name(), "cf-connecting-ip");
    client(PROXY, &source, &[b"203.0.113.7"], CLIENT);
    client(CLIENT, &source, &[b"1.1.1.1"], CLIENT);
    assert_eq!(
        ClientIpSource::header("X-Forwarded-FOR"),
        ClientIpSource::XForwardedFor
    );
    assert_eq!(
        ClientIpSource::header("Forwarded"),
        ClientIpSource::Forwarded
    );
    let head = request("x-forwarded-for", &[b"1.1.1.1"]);
    assert_eq!(trusted().client_ip(None, &source, &head), None);
}

/// Returns whether a line holds an address, in any form.
fn holds(found: &str, line: &str) -> bool {
    let is_part = |c: char| c.is_ascii_hexdigit() || c == '.' || c == ':';
    let mut parts = line.split(|c| !is_part(c));
    parts.any(|part| {
        let without_port = part.rsplit_once(':').map_or(part, |(address, _)| address);
        let parsed = [part, without_port].map(|text| text.parse::<IpAddr>());
        { parsed.into_iter().flatten() }.any(|it| it.to_canonical().to_string() == found)
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_result_is_always_an_address_from_the_request(
        lines in prop::collection::vec("[ -~\t]{0,40}|([\",;=\\\\ ]|for|10\\.0\\.0\\.2|203\\.0\\.113\\.7|::1|\\[|\\]|:80){0,12}", 0..4),
        forwarded in any::<bool>(),
    ) {
        let source = if forwarded { ClientIpSource::Forwarded } else { ClientIpSource::XForwardedFor };
        let bytes: Vec<_> = lines.iter().map(|line| line.trim().as_bytes()).collect();
        let head = request(source.header_name(), &bytes);
        let stranger: IpAddr = CLIENT.parse().unwrap();
        prop_assert_eq!(trusted().client_ip(Some(stranger), &source, &head), Some(stranger));
        let found = trusted().client_ip(Some(PROXY.parse().unwrap()), &source, &head).unwrap();
        // The line of a trusted proxy counts, whatever precedes it.
        let own = if forwarded { "for=203.0.113.9" } else { "203.0.113.9" };
        let own = [&bytes[..], &[own.as_bytes()]].concat();
        let head = request(source.header_name(), &own);
        let reported = trusted().client_ip(Some(PROXY.parse().unwrap()), &source, &head).unwrap();
        prop_assert_eq!(reported.to_string(), "203.0.113.9");
        let found = found.to_string();
        prop_assert!(found == PROXY || lines.iter().any(|line| holds(&found, line)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_spoofed_address_counts_against_its_sender() {
    let rules = "{ id: r, scope: per_ip, bands: [ { capacity: 1, window: 1h } ] }";
    let ask = async |peer: [u8; 4], trusted: &[&str], value: &str| {
        let layer = RateLimitLayer::new(limiter(rules)).rule_set("s");
        let layer = layer
            .trusted_proxies(trusted)
            .peer(move |_| Some(peer.into()));
        let service = layer.layer(Inner::new(&Events::default()));
        let mut statuses = Vec::new();
        for last in 0..3 {
            let mut request = get("/x");
            let value = value.replace('N', &last.to_string());
            request
                .headers_mut()
                .insert("x-forwarded-for", value.parse().unwrap());
            statuses.push(send(&service, request).await.status);
        }
        statuses
    };
    // Not trusted, or to the left of the proxy's entry: one bucket.
    assert_eq!(ask([10, 0, 0, 1], &[], "1.1.1.N").await, [200, 429, 429]);
    assert_eq!(
        ask([10, 0, 0, 1], &["10.0.0.1"], "1.1.1.N, 2.2.2.2").await,
        [200, 429, 429]
    );
    // Clients of a trusted proxy have one each.
    assert_eq!(
        ask([10, 0, 0, 1], &["10.0.0.1"], "1.1.1.N").await,
        [200, 200, 200]
    );
}
