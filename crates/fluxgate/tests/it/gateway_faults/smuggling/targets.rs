//! Request lines, targets and hosts.

use super::{either, forwarded, rejected, run, run_well_framed};

fn request(line: &str) -> Vec<u8> {
    format!("{line}\r\nHost: a.example\r\n\r\n").into_bytes()
}

fn get(headers: &str) -> Vec<u8> {
    format!("GET /x HTTP/1.1\r\n{headers}\r\n").into_bytes()
}

#[test]
fn missing_repeated_and_invalid_hosts_are_rejected() {
    run_well_framed(&[
        rejected(get("")),
        rejected(get("Host: a.example\r\nHost: a.example\r\n")),
        rejected(get("Host: a.example\r\nHost: b.example\r\n")),
        rejected(get("Host: a.example\r\nX: y\r\nhost: b.example\r\n")),
        rejected(get("Host: a.example, b.example\r\n")),
        rejected(get("Host: a.example b.example\r\n")),
        rejected(get("Host: a.example/path\r\n")),
        rejected(get("Host: a.example?query\r\n")),
        rejected(get("Host: a.example#part\r\n")),
        rejected(get("Host: user@a.example\r\n")),
        rejected(get("Host: a.example:port\r\n")),
        rejected(get("Host: a.example:80:80\r\n")),
        rejected(get("Host: [::1\r\n")),
        rejected(get("Host: http://a.example\r\n")),
        rejected(get("Host: a\\b\r\n")),
        rejected(get("Host: <a>\r\n")),
        rejected(b"GET /x HTTP/1.1\r\nHost: \xe4.example\r\n\r\n"),
        rejected(get("Host : a.example\r\n")),
        either(get("Host:\r\n"), "GET /x", ""),
        forwarded(get("Host: a.example:8080\r\n"), "GET /x", ""),
        forwarded(get("Host: [::1]:8080\r\n"), "GET /x", ""),
        forwarded("GET /x HTTP/1.0\r\n\r\n", "GET /x", ""),
    ]);
}

/// RFC 9112, section 3.2.2: the host of the target counts, not the header.
#[test]
fn the_host_of_an_absolute_target_overrides_the_header() {
    let not_evil = |request: &fluxgate_testkit::WireRequest| {
        let names = ["host", "x-forwarded-host", "forwarded"];
        let values = names.iter().flat_map(|name| request.values(name));
        !values.collect::<String>().contains("evil")
    };
    let with = |target: &str, host: &str| format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    run_well_framed(&[
        either(with("http://a.example/x", "a.example"), "GET /x", ""),
        either(
            with("http://a.example/x?q=1", "a.example"),
            "GET /x?q=1",
            "",
        ),
        either(with("http://a.example/x", "evil.example"), "GET /x", "").with_check(not_evil),
        either(with("HTTP://a.example/x", "evil.example"), "GET /x", "").with_check(not_evil),
        either(with("http://a.example", "evil.example"), "GET /", "").with_check(not_evil),
        either(with("http://a.example?q", "a.example"), "GET /?q", ""),
        either(with("https://a.example/x", "a.example"), "GET /x", ""),
        rejected(with("http:///x", "a.example")),
        rejected(with("http://user@a.example/x", "evil.example")),
        rejected(with("http://a.example evil/x", "a.example")),
        either(with("ftp://a.example/x", "a.example"), "GET /x", "")
            .with_statuses(&[400, 404, 421]),
        rejected("GET http://a.example/x HTTP/1.1\r\n\r\n"),
    ]);
}

#[test]
fn malformed_request_lines_are_rejected() {
    run_well_framed(&[
        rejected(request("GET /x")),
        rejected(request("GET")),
        rejected(request("GET  HTTP/1.1")),
        rejected(request("GET /x HTTP/1.1 HTTP/1.1")),
        rejected(request("GET /x y HTTP/1.1")),
        rejected(request("GET /x\ty HTTP/1.1")),
        rejected(request("GET /x HTTP/1.1 ")),
        rejected(request("GET\t/x\tHTTP/1.1")),
        rejected(request("GET /x http/1.1")),
        rejected(request("GET /x HTTP/1.1x")),
        rejected(request("GET /x HTTP/1,1")),
        rejected(request("GET /x HTTP/1")),
        rejected(request("GET /x HTTP/11.1")),
        rejected(request("GET /x HTTP/01.1")),
        rejected(request("GET /x HTTPS/1.1")),
        rejected(request("GET /x ICY/1.1")),
        rejected(request(" GET /x HTTP/1.1")),
        rejected(request("GE T /x HTTP/1.1")),
        rejected(request("G\"T /x HTTP/1.1")),
        rejected(request("GET: /x HTTP/1.1")),
        rejected(request("GET x HTTP/1.1")).with_statuses(&[400, 404]),
        rejected(request("GET ../x HTTP/1.1")).with_statuses(&[400, 404]),
        rejected(request("GET /x HTTP/0.9")).with_statuses(&[400, 505]),
        rejected(request("GET /x HTTP/2.0")).with_statuses(&[400, 505]),
        rejected(request("GET /x HTTP/3.0")).with_statuses(&[400, 505]),
        rejected("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n").with_statuses(&[400, 505]),
        rejected("PRI /x HTTP/2.0\r\nHost: a.example\r\n\r\n").with_statuses(&[400, 505]),
        rejected("\0\0\0\0\0\0\0\0\r\n\r\n"),
        rejected(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
        either(request("GET /x HTTP/1.2"), "GET /x", "").with_statuses(&[400, 505]),
        either(request("GET  /x HTTP/1.1"), "GET /x", ""),
        either(request("GET /x  HTTP/1.1"), "GET /x", ""),
        either(request("get /x HTTP/1.1"), "get /x", "").with_statuses(&[400, 405, 501]),
        forwarded(request("BREW /x HTTP/1.1"), "BREW /x", ""),
    ]);
}

#[test]
fn unusual_targets_are_rejected_or_become_one_request() {
    run_well_framed(&[
        either(request("GET /x#part HTTP/1.1"), "GET /x", ""),
        either(request("GET /x?q#part HTTP/1.1"), "GET /x?q", ""),
        either(
            "GET /\u{e4} HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET /\u{c3}\u{a4}",
            "",
        ),
        either(
            b"GET /\xff HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET /\u{ff}",
            "",
        ),
        rejected(request("GET /x%0d%0aX:%20y HTTP/1.1")),
        rejected(request("GET /x%0a HTTP/1.1")),
        rejected(request("GET /x%80 HTTP/1.1")),
        rejected(request("GET /x%00 HTTP/1.1")),
        forwarded(
            request("GET //evil.example/x HTTP/1.1"),
            "GET //evil.example/x",
            "",
        ),
        either(request("GET /a/../x HTTP/1.1"), "GET /a/../x", ""),
        either(request("GET /a\\x HTTP/1.1"), "GET /a\\x", ""),
        forwarded(
            request("GET /?a=b?c&d=%20 HTTP/1.1"),
            "GET /?a=b?c&d=%20",
            "",
        ),
        either(request("OPTIONS * HTTP/1.1"), "OPTIONS *", "").with_statuses(&[400, 404, 405]),
        rejected(request("GET * HTTP/1.1")).with_statuses(&[400, 404]),
        rejected(request("GET a.example:80 HTTP/1.1")).with_statuses(&[400, 404]),
        rejected("CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\n")
            .with_statuses(&[400, 404, 405, 501]),
        rejected(request("CONNECT /x HTTP/1.1")).with_statuses(&[400, 404, 405, 501]),
    ]);
}

/// RFC 9112, section 2.2: an empty line before a request may be ignored.
#[test]
fn empty_lines_before_a_request_are_rejected_or_ignored() {
    let get = "GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n";
    run(&[
        either(format!("\r\n{get}"), "GET /x", ""),
        either(format!("\r\n\r\n\r\n{get}"), "GET /x", ""),
        either(format!("\n{get}"), "GET /x", ""),
        rejected(format!("\r{get}")),
        rejected(format!(" \r\n{get}")),
    ]);
}
