//! First lines and hosts.

use super::{either, forwarded, refused, run, run_well_framed};

fn line(line: &str) -> Vec<u8> {
    format!("{line}\r\nHost: a.example\r\n\r\n").into_bytes()
}

fn hosts(lines: &str) -> Vec<u8> {
    format!("GET /x HTTP/1.1\r\n{lines}\r\n").into_bytes()
}

#[test]
fn hosts_that_are_none_or_two_are_refused() {
    run_well_framed(&[
        refused(hosts("")),
        refused(hosts("Host: a.example\r\nHost: a.example\r\n")),
        refused(hosts("Host: a.example\r\nHost: b.example\r\n")),
        refused(hosts("Host: a.example\r\nX: y\r\nhost: b.example\r\n")),
        refused(hosts("Host: a.example, b.example\r\n")),
        refused(hosts("Host: a.example b.example\r\n")),
        refused(hosts("Host: a.example/path\r\n")),
        refused(hosts("Host: a.example?query\r\n")),
        refused(hosts("Host: a.example#part\r\n")),
        refused(hosts("Host: user@a.example\r\n")),
        refused(hosts("Host: a.example:port\r\n")),
        refused(hosts("Host: a.example:80:80\r\n")),
        refused(hosts("Host: [::1\r\n")),
        refused(hosts("Host: http://a.example\r\n")),
        refused(hosts("Host: a\\b\r\n")),
        refused(hosts("Host: <a>\r\n")),
        refused(b"GET /x HTTP/1.1\r\nHost: \xe4.example\r\n\r\n"),
        refused(hosts("Host : a.example\r\n")),
        either(hosts("Host:\r\n"), "GET /x", ""),
        forwarded(hosts("Host: a.example:8080\r\n"), "GET /x", ""),
        forwarded(hosts("Host: [::1]:8080\r\n"), "GET /x", ""),
        forwarded("GET /x HTTP/1.0\r\n\r\n", "GET /x", ""),
    ]);
}

/// RFC 9112, 3.2.2: the host of the target counts, not the header.
#[test]
fn an_absolute_target_has_one_host() {
    let not_evil = |seen: &fluxgate_testkit::WireRequest| {
        let told = ["host", "x-forwarded-host", "forwarded"];
        let told = told.iter().flat_map(|name| seen.values(name));
        !told.collect::<String>().contains("evil")
    };
    let with = |target: &str, host: &str| format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    run_well_framed(&[
        either(with("http://a.example/x", "a.example"), "GET /x", ""),
        either(
            with("http://a.example/x?q=1", "a.example"),
            "GET /x?q=1",
            "",
        ),
        either(with("http://a.example/x", "evil.example"), "GET /x", "").when(not_evil),
        either(with("HTTP://a.example/x", "evil.example"), "GET /x", "").when(not_evil),
        either(with("http://a.example", "evil.example"), "GET /", "").when(not_evil),
        either(with("http://a.example?q", "a.example"), "GET /?q", ""),
        either(with("https://a.example/x", "a.example"), "GET /x", ""),
        refused(with("http:///x", "a.example")),
        refused(with("http://user@a.example/x", "evil.example")),
        refused(with("http://a.example evil/x", "a.example")),
        either(with("ftp://a.example/x", "a.example"), "GET /x", "").or_status(&[400, 404, 421]),
        refused("GET http://a.example/x HTTP/1.1\r\n\r\n"),
    ]);
}

#[test]
fn first_lines_that_are_none_are_refused() {
    run_well_framed(&[
        refused(line("GET /x")),
        refused(line("GET")),
        refused(line("GET  HTTP/1.1")),
        refused(line("GET /x HTTP/1.1 HTTP/1.1")),
        refused(line("GET /x y HTTP/1.1")),
        refused(line("GET /x\ty HTTP/1.1")),
        refused(line("GET /x HTTP/1.1 ")),
        refused(line("GET\t/x\tHTTP/1.1")),
        refused(line("GET /x http/1.1")),
        refused(line("GET /x HTTP/1.1x")),
        refused(line("GET /x HTTP/1,1")),
        refused(line("GET /x HTTP/1")),
        refused(line("GET /x HTTP/11.1")),
        refused(line("GET /x HTTP/01.1")),
        refused(line("GET /x HTTPS/1.1")),
        refused(line("GET /x ICY/1.1")),
        refused(line(" GET /x HTTP/1.1")),
        refused(line("GE T /x HTTP/1.1")),
        refused(line("G\"T /x HTTP/1.1")),
        refused(line("GET: /x HTTP/1.1")),
        refused(line("GET x HTTP/1.1")).or_status(&[400, 404]),
        refused(line("GET ../x HTTP/1.1")).or_status(&[400, 404]),
        refused(line("GET /x HTTP/0.9")).or_status(&[400, 505]),
        refused(line("GET /x HTTP/2.0")).or_status(&[400, 505]),
        refused(line("GET /x HTTP/3.0")).or_status(&[400, 505]),
        refused("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n").or_status(&[400, 505]),
        refused("PRI /x HTTP/2.0\r\nHost: a.example\r\n\r\n").or_status(&[400, 505]),
        refused("\0\0\0\0\0\0\0\0\r\n\r\n"),
        refused(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
        either(line("GET /x HTTP/1.2"), "GET /x", "").or_status(&[400, 505]),
        either(line("GET  /x HTTP/1.1"), "GET /x", ""),
        either(line("GET /x  HTTP/1.1"), "GET /x", ""),
        either(line("get /x HTTP/1.1"), "get /x", "").or_status(&[400, 405, 501]),
        forwarded(line("BREW /x HTTP/1.1"), "BREW /x", ""),
    ]);
}

#[test]
fn odd_targets_are_refused_or_one_request() {
    run_well_framed(&[
        either(line("GET /x#part HTTP/1.1"), "GET /x", ""),
        either(line("GET /x?q#part HTTP/1.1"), "GET /x?q", ""),
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
        forwarded(
            line("GET /x%0d%0aX:%20y HTTP/1.1"),
            "GET /x%0d%0aX:%20y",
            "",
        ),
        refused(line("GET /x%00 HTTP/1.1")),
        forwarded(
            line("GET //evil.example/x HTTP/1.1"),
            "GET //evil.example/x",
            "",
        ),
        either(line("GET /a/../x HTTP/1.1"), "GET /a/../x", ""),
        either(line("GET /a\\x HTTP/1.1"), "GET /a\\x", ""),
        forwarded(line("GET /?a=b?c&d=%20 HTTP/1.1"), "GET /?a=b?c&d=%20", ""),
        either(line("OPTIONS * HTTP/1.1"), "OPTIONS *", "").or_status(&[400, 404, 405]),
        refused(line("GET * HTTP/1.1")).or_status(&[400, 404]),
        refused(line("GET a.example:80 HTTP/1.1")).or_status(&[400, 404]),
        refused("CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\n")
            .or_status(&[400, 404, 405, 501]),
        refused(line("CONNECT /x HTTP/1.1")).or_status(&[400, 404, 405, 501]),
    ]);
}

/// RFC 9112, 2.2: an empty line before a request may be overlooked.
#[test]
fn empty_lines_before_a_request_add_nothing() {
    let get = "GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n";
    run(&[
        either(format!("\r\n{get}"), "GET /x", ""),
        either(format!("\r\n\r\n\r\n{get}"), "GET /x", ""),
        either(format!("\n{get}"), "GET /x", ""),
        refused(format!("\r{get}")),
        refused(format!(" \r\n{get}")),
    ]);
}
