//! One line of an Apache or nginx access log in the combined format:
//! `IP - USER [TIME] "METHOD TARGET PROTOCOL" STATUS BYTES "REFERER" "AGENT"`.

use std::borrow::Cow;
use std::net::IpAddr;

use fluxgate_core::RequestContext;

use super::event::Event;
use super::time;

pub(super) fn parse(line: &[u8]) -> Result<Event<'_>, String> {
    let line = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
    let mut rest = line.trim_ascii();
    let address = word(&mut rest).ok_or("empty")?;
    word(&mut rest).ok_or("cut off after the address")?;
    // A user's name may have blanks in it; the time ends it.
    let (user, after) = rest
        .split_once(" [")
        .ok_or("no time in brackets after the user")?;
    let (time, after) = after.split_once(']').ok_or("the time has no end")?;
    rest = after;
    let at = time::parse_log_time(time)
        .ok_or_else(|| format!("[{time}] is no time such as 31/Jan/2026:23:59:59 +0000"))?;
    let request = quoted(&mut rest).ok_or("no request in quotes after the time")?;
    word(&mut rest).ok_or("no status after the request")?;
    word(&mut rest);
    let referer = quoted(&mut rest);
    let agent = quoted(&mut rest);

    let mut context = RequestContext::builder();
    if let Some(address) = present(Cow::Borrowed(address)) {
        let ip: Result<IpAddr, _> = address.parse();
        context = context.ip(ip.map_err(|_| format!("`{address}` is no address"))?);
    }
    // One blank ends the word before; any more would be the user's own.
    let user = user.strip_prefix(' ').unwrap_or(user);
    // Apache writes an empty name so.
    if let Some(user) = present(unescape(user)).filter(|user| user != "\"\"") {
        context = context.user(user);
    }
    if let Some((method, path)) = method_and_path(&request) {
        context = context.method(method).path(path);
    }
    for (name, value) in [("Referer", referer), ("User-Agent", agent)] {
        if let Some(value) = value.and_then(present) {
            context = context.header(name, value);
        }
    }
    Ok(Event {
        at,
        rule_set: None,
        context: context.build(),
    })
}

fn present(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    (text != "-").then_some(text)
}

/// What a client sent may be no request at all; then neither is known.
fn method_and_path<'a>(request: &Cow<'a, str>) -> Option<(Cow<'a, str>, Cow<'a, str>)> {
    let parts = |request: &str| {
        let (method, rest) = request.split_once(' ')?;
        let target = match rest.rsplit_once(' ') {
            Some((target, _protocol)) => target,
            // HTTP/0.9 names no protocol.
            None if rest.starts_with('/') => rest,
            None => return None,
        };
        let from = method.len() + 1 + host_in(target);
        let path = rest[from - method.len() - 1..target.len()]
            .split('?')
            .next()?;
        Some((method.len(), from..from + path.len()))
    };
    let (method, path) = parts(request)?;
    let (method, path) = match request {
        Cow::Borrowed(text) => (text[..method].into(), Cow::from(&text[path])),
        Cow::Owned(text) => (
            text[..method].to_owned().into(),
            text[path].to_owned().into(),
        ),
    };
    // Only a target that names a host can lack a path.
    let path = if path.is_empty() { "/".into() } else { path };
    Some((method, path))
}

/// How much of a target such as `http://host/path`, which proxies get, stands
/// before its path.
fn host_in(target: &str) -> usize {
    let is_scheme = |text: &str| {
        let goes_on_well = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text.bytes().all(goes_on_well)
    };
    match target.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => {
            let host = rest.find(['/', '?']).unwrap_or(rest.len());
            target.len() - rest.len() + host
        }
        _ => 0,
    }
}

fn word<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let text = rest.trim_ascii_start();
    let end = text.find(' ').unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    *rest = after;
    (!word.is_empty()).then_some(word)
}

/// The next text in quotes, without its escapes.
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

/// Apache writes `\"` and `\\`, both write `\xHH`.
fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match after {
            [b'x', high, low, after @ ..] if hex(*high).is_some() && hex(*low).is_some() => {
                let value = hex(*high).unwrap_or(0) * 16 + hex(*low).unwrap_or(0);
                bytes.push(value);
                rest = after;
            }
            [b'n', after @ ..] => {
                bytes.push(b'\n');
                rest = after;
            }
            [b't', after @ ..] => {
                bytes.push(b'\t');
                rest = after;
            }
            [b'r', after @ ..] => {
                bytes.push(b'\r');
                rest = after;
            }
            [next, after @ ..] => {
                bytes.push(*next);
                rest = after;
            }
            [] => bytes.push(b'\\'),
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(line: &str) -> RequestContext<'_> {
        parse(line.as_bytes()).unwrap().context
    }

    #[test]
    fn a_whole_line() {
        let line = r#"2001:db8::1 - ann lee [10/Oct/2000:13:55:36 -0700] "GET /a/b?c=d HTTP/1.1" 200 2326 "http://x/" "Mozilla \"5\" (\x41)""#;
        let event = parse(line.as_bytes()).unwrap();
        assert_eq!(event.at.micros(), 971_211_336_000_000);
        let context = event.context;
        assert_eq!(context.ip(), "2001:db8::1".parse().ok());
        assert_eq!(context.user(), Some("ann lee"));
        assert_eq!(context.method(), Some("GET"));
        assert_eq!(context.path(), Some("/a/b"));
        assert_eq!(context.header("referer"), Some("http://x/"));
        assert_eq!(context.header("user-agent"), Some(r#"Mozilla "5" (A)"#));
    }

    #[test]
    fn dashes_and_nonsense_are_missing() {
        let line = r#"- - - [10/Oct/2000:13:55:36 +0000] "-" 400 0 "-" "-""#;
        assert_eq!(context(line), RequestContext::default());
        let line = r#"- - - [10/Oct/2000:13:55:36 +0000] "\x16\x03\x01" 400 0"#;
        assert_eq!(context(line), RequestContext::default());
        let line = r#"- - "" [10/Oct/2000:13:55:36 +0000] "-" 400 0 "-" "-""#;
        assert_eq!(context(line), RequestContext::default());
    }

    #[test]
    fn a_user_may_have_blanks_and_escapes() {
        let line = r#"- - DOM\\ann \"x\" [10/Oct/2000:13:55:36 +0000] "-" 400 0 "-" "-""#;
        assert_eq!(context(line).user(), Some(r#"DOM\ann "x""#));
        let line = r#"- -  ann  [10/Oct/2000:13:55:36 +0000] "-" 400 0 "-" "-""#;
        assert_eq!(context(line).user(), Some(" ann "));
    }

    #[test]
    fn a_request_of_http_0_9_has_a_method_and_a_path() {
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
            // These name no host, or nothing else.
            ("/go/http://h/x", "/go/http://h/x"),
            ("h:443", "h:443"),
            ("*", "*"),
            ("://h/x", "://h/x"),
            ("1http://h/x", "1http://h/x"),
        ] {
            for request in [
                format!("GET {target} HTTP/1.1"),
                format!(r"GET {target} HTTP/1.1"),
            ] {
                let line = format!(r#"- - - [10/Oct/2000:13:55:36 +0000] "{request}" 200 0"#);
                assert_eq!(context(&line).method(), Some("GET"));
                assert_eq!(context(&line).path(), Some(path), "{target}");
            }
        }
    }

    #[test]
    fn bad_lines() {
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
