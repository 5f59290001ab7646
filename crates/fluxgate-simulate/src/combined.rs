//! One line of an Apache or nginx access log in the combined format:
//! `IP - USER [TIME] "METHOD TARGET PROTOCOL" STATUS BYTES "REFERER" "AGENT"`.

use std::borrow::Cow;
use std::net::IpAddr;

use fluxgate_core::RequestContext;

use crate::event::{Event, EventKind, RecordedRequest};
use crate::time;

pub(crate) fn parse(line: &[u8]) -> Result<Event<'_>, String> {
    let line = std::str::from_utf8(line).map_err(|_| "not UTF-8")?;
    let mut rest = line.trim_ascii();
    let address = word(&mut rest).ok_or("empty")?;
    word(&mut rest).ok_or("nothing after the address")?;
    // A user name may contain spaces; the time ends it.
    let (user, after) = rest
        .split_once(" [")
        .ok_or("no time in brackets after the user")?;
    let (time, after) = after.split_once(']').ok_or("no `]` after the time")?;
    rest = after;
    let at = time::parse_log_time(time).ok_or_else(|| {
        format!("expected a time such as 31/Jan/2026:23:59:59 +0000, found [{time}]")
    })?;
    let request = quoted(&mut rest).ok_or("no request in quotes after the time")?;
    word(&mut rest).ok_or("no status after the request")?;
    word(&mut rest);
    let referer = quoted(&mut rest);
    let agent = quoted(&mut rest);

    let mut context = RequestContext::builder();
    if let Some(address) = present(Cow::Borrowed(address)) {
        let ip: Result<IpAddr, _> = address.parse();
        context = context.ip(ip.map_err(|_| format!("expected an IP address, found `{address}`"))?);
    }
    // One space separates the fields; any more belong to the name.
    let user = user.strip_prefix(' ').unwrap_or(user);
    // Apache writes an empty name as `""`.
    if let Some(user) = present(unescape(user)).filter(|user| user != "\"\"") {
        context = context.user(user);
    }
    context = match request {
        Cow::Borrowed(text) => match method_and_path(text) {
            Some((method, path)) => context.method(method).path(path),
            None => context,
        },
        Cow::Owned(text) => match method_and_path(&text) {
            Some((method, path)) => context.method(method.to_owned()).path(path.to_owned()),
            None => context,
        },
    };
    for (name, value) in [("Referer", referer), ("User-Agent", agent)] {
        if let Some(value) = value.and_then(present) {
            context = context.header(name, value);
        }
    }
    let kind = EventKind::Request(RecordedRequest {
        rule_set: None,
        context: context.build(),
        hold: None,
    });
    Ok(Event { at, kind })
}

fn present(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    (text != "-").then_some(text)
}

/// Splits a request line. Returns `None` if it is not one: clients send anything.
fn method_and_path(request: &str) -> Option<(&str, &str)> {
    let (method, rest) = request.split_once(' ')?;
    let target = match rest.rsplit_once(' ') {
        Some((target, _protocol)) => target,
        // HTTP/0.9 names no protocol.
        None if rest.starts_with('/') => rest,
        None => return None,
    };
    let path = without_host(target).split('?').next()?;
    // Only a target that names a host can lack a path.
    Some((method, if path.is_empty() { "/" } else { path }))
}

/// Returns what follows the host in a target such as `http://host/path`, which
/// proxies receive.
fn without_host(target: &str) -> &str {
    let is_scheme = |text: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(is_allowed)
    };
    match target.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => {
            &rest[rest.find(['/', '?']).unwrap_or(rest.len())..]
        }
        _ => target,
    }
}

fn word<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let text = rest.trim_ascii_start();
    let end = text.find(' ').unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    *rest = after;
    (!word.is_empty()).then_some(word)
}

/// Reads the next text in quotes, and decodes its escapes.
fn quoted<'a>(rest: &mut &'a str) -> Option<Cow<'a, str>> {
    let text = rest.trim_ascii_start().strip_prefix('"')?;
    let mut escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    *rest = &text[end + 1..];
    Some(unescape(&text[..end]))
}

/// Decodes `\"` and `\\`, as Apache writes them, and `\xHH`.
fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = match byte {
            b'\\' => unescape_one(after),
            byte => (byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// Decodes what follows a backslash. Returns the byte and the rest.
fn unescape_one(text: &[u8]) -> (u8, &[u8]) {
    if let [b'x', high, low, rest @ ..] = text
        && let (Some(high), Some(low)) = (hex(*high), hex(*low))
    {
        return (high * 16 + low, rest);
    }
    match text {
        [b'n', rest @ ..] => (b'\n', rest),
        [b't', rest @ ..] => (b'\t', rest),
        [b'r', rest @ ..] => (b'\r', rest),
        [byte, rest @ ..] => (*byte, rest),
        [] => (b'\\', text),
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(line: &str) -> RequestContext<'_> {
        parse(line.as_bytes()).unwrap().into_context()
    }

    #[test]
    fn a_line_gives_every_field() {
        let line = r#"2001:db8::1 - ann lee [10/Oct/2000:13:55:36 -0700] "GET /a/b?c=d HTTP/1.1" 200 2326 "http://x/" "Mozilla \"5\" (\x41)""#;
        let event = parse(line.as_bytes()).unwrap();
        assert_eq!(event.at.micros(), 971_211_336_000_000);
        let context = event.into_context();
        assert_eq!(context.ip(), "2001:db8::1".parse().ok());
        assert_eq!(context.user(), Some("ann lee"));
        assert_eq!(context.method(), Some("GET"));
        assert_eq!(context.path(), Some("/a/b"));
        assert_eq!(context.header("referer"), Some("http://x/"));
        assert_eq!(context.header("user-agent"), Some(r#"Mozilla "5" (A)"#));
    }

    #[test]
    fn a_dash_is_missing_and_a_malformed_request_has_no_method_or_path() {
        let line = r#"- - - [10/Oct/2000:13:55:36 +0000] "-" 400 0 "-" "-""#;
        assert_eq!(context(line), RequestContext::default());
        let line = r#"- - - [10/Oct/2000:13:55:36 +0000] "\x16\x03\x01" 400 0"#;
        assert_eq!(context(line), RequestContext::default());
        let line = r#"- - "" [10/Oct/2000:13:55:36 +0000] "-" 400 0 "-" "-""#;
        assert_eq!(context(line), RequestContext::default());
    }

    #[test]
    fn a_user_name_may_have_spaces_and_escapes() {
        let line = r#"- - DOM\\ann \"x\" [10/Oct/2000:13:55:36 +0000] "-" 400 0 "-" "-""#;
        assert_eq!(context(line).user(), Some(r#"DOM\ann "x""#));
        let line = r#"- -  ann  [10/Oct/2000:13:55:36 +0000] "-" 400 0 "-" "-""#;
        assert_eq!(context(line).user(), Some(" ann "));
    }

    #[test]
    fn an_http_0_9_request_has_a_method_and_a_path() {
        let line = r#"- - - [10/Oct/2000:13:55:36 +0000] "GET /a?b" 200 0 "-" "-""#;
        assert_eq!(context(line).method(), Some("GET"));
        assert_eq!(context(line).path(), Some("/a"));
        let line = r#"- - - [10/Oct/2000:13:55:36 +0000] "\x16\x03 x" 400 0 "-" "-""#;
        assert_eq!(context(line), RequestContext::default());
    }

    #[test]
    fn a_target_that_names_a_host_is_reduced_to_its_path() {
        for (target, path) in [
            ("http://h/login?x", "/login"),
            ("HTTPS://h:8443/a/b", "/a/b"),
            ("http://h", "/"),
            ("http://h?x=/y", "/"),
            ("http://h/", "/"),
            ("http://u@[::1]/a?b://c", "/a"),
            ("http://h//a", "//a"),
            // No host, or nothing but a host.
            ("/go/http://h/x", "/go/http://h/x"),
            ("h:443", "h:443"),
            ("*", "*"),
            ("://h/x", "://h/x"),
            ("1http://h/x", "1http://h/x"),
        ] {
            for request in [
                format!("GET {target} HTTP/1.1"),
                format!(r"\x47ET {target} HTTP/1.1"),
            ] {
                let line = format!(r#"- - - [10/Oct/2000:13:55:36 +0000] "{request}" 200 0"#);
                assert_eq!(context(&line).method(), Some("GET"));
                assert_eq!(context(&line).path(), Some(path), "{target}");
            }
        }
    }

    #[test]
    fn malformed_lines_are_errors() {
        for line in [
            "x",
            "1.2.3.4 - -",
            r#"1.2.3.4 - - [x] "GET / HTTP/1.1" 200 0 "-" "-""#,
            r#"host.example - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 0 "-" "-""#,
            r#"1.2.3.4 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1"#,
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
    }
}
