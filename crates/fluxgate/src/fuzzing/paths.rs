//! Ambiguous paths.

use fluxgate_core::path::{PathSet, Pattern, RequestPath};
use fluxgate_core::task::ready;
use fluxgate_core::{Limiter, MemoryStore, RuleSets};
use fluxgate_http::{Filter, FilterOutcome, IncomingRequest, evaluate};
use http::request::Parts;

/// Reads a path, which may lack its first slash. Its normal form equals that of a slow
/// model, both transports of the gateway agree on it and forward the raw form, and no rule
/// on the normal form is skipped.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let text = if text.starts_with('/') {
        text.to_owned()
    } else {
        format!("/{text}")
    };
    let path = RequestPath::read(&text);
    fluxgate_gateway::fuzz::target(&text, path.as_ref().ok());
    let model = slow_normal_form(&text);
    assert_eq!(path.is_ok(), model.is_some(), "{text:?}");
    let (Ok(path), Some(model)) = (path, model) else {
        return;
    };
    assert_eq!(path.raw(), text);
    assert_eq!(path.normal_with_slash(), model, "{text:?}");
    let dropped = model.strip_suffix('/').filter(|path| !path.is_empty());
    assert_eq!(path.normal(), dropped.unwrap_or(&model), "{text:?}");
    check_spellings(path.normal());
    check_rules(&path);
}

/// Returns the normal form with its slash at the end, computed step by step; `None` if the path
/// is refused.
fn slow_normal_form(path: &str) -> Option<String> {
    let mut decoded: Vec<(u8, bool)> = Vec::new();
    let bytes = path.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes
            .get(at + 1..at + 3)
            .filter(|_| bytes[at] == b'%')
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let value = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push((value.unwrap_or(bytes[at]), value.is_some()));
        at += if value.is_some() { 3 } else { 1 };
    }
    if decoded.iter().any(|(byte, _)| byte.is_ascii_control()) {
        return None;
    }
    let mut normal = Vec::new();
    let is_slash = |(byte, _): &(u8, bool)| matches!(byte, b'/' | b'\\');
    let mut was_cut = false;
    for segment in decoded.split_inclusive(is_slash) {
        let (slash, segment) = match segment.split_last() {
            Some((last, before)) if is_slash(last) => (Some(*last), before),
            _ => (None, segment),
        };
        let mut kept = segment.split(|(byte, _)| *byte == b';');
        let kept = kept.next().unwrap_or_default();
        was_cut |= kept.len() < segment.len();
        normal.extend(kept.iter().map(|(byte, _)| *byte));
        if let Some(slash) = slash {
            if was_cut && slash != (b'/', false) {
                return None;
            }
            was_cut = false;
            normal.push(b'/');
        }
    }
    while let Some(at) = normal.windows(2).position(|pair| pair == b"//") {
        normal.remove(at);
    }
    let mut segments = normal.split(|byte| *byte == b'/');
    let has_dots = segments.any(|segment| segment == b"." || segment == b"..");
    let normal = String::from_utf8(normal).ok();
    normal.filter(|_| !has_dots)
}

/// Checks that every spelling of a normal form has that normal form.
fn check_spellings(normal: &str) {
    let escaped = |byte: &u8, of: fn(&u8) -> bool| {
        if of(byte) {
            format!("%{byte:02x}")
        } else {
            char::from(*byte).to_string()
        }
    };
    let bytes = normal.as_bytes();
    let all: String = bytes[1..].iter().map(|it| escaped(it, |_| true)).collect();
    let needed = |it: &u8| *it != b'/' && !it.is_ascii_alphanumeric();
    let some: String = bytes[1..].iter().map(|it| escaped(it, needed)).collect();
    for spelled in [
        format!("/{all}"),
        format!("/{some};x"),
        format!("/{some}//"),
        format!("/{all}%2f;x/"),
        format!("//{}", some.replace('/', ";y//")),
        format!("/{}", some.replace('/', "\\")),
    ] {
        let read = RequestPath::read(&spelled);
        let read = read.as_ref().map(RequestPath::normal);
        assert_eq!(read, Ok(normal), "{spelled:?}");
    }
}

/// Checks that rules, `include` and `exclude` on the normal form apply to the path.
fn check_rules(path: &RequestPath<'_>) {
    let normal = path.normal();
    // A path matches itself as a pattern, unless it is not a valid one, such as `a**`.
    let Ok(pattern) = Pattern::parse(normal) else {
        return;
    };
    let first = normal[1..].split('/').next().unwrap_or_default();
    let directory = format!("/{first}/**");
    let patterns = [normal, &directory].map(quoted);
    let set = PathSet::new(vec![pattern]);
    let matches_both = path.exact_forms().all(|form| set.contains(Some(form)));
    assert!(set.contains_either(path));
    assert_eq!(set.contains_both(path), matches_both);
    let upper = RequestPath::as_given(normal.to_ascii_uppercase());
    assert!(set.contains_either(&upper.ignoring_case()));

    let (head, ()): (Parts, ()) = http::Request::new(()).into_parts();
    let plain = RequestPath::as_given(normal);
    let outcomes = |rule: &str, filter: Filter| {
        let rules = format!(
            "rule_sets: {{ s: {{ rules: [ {{ id: r, bands: [ {{ capacity: 1, window: 1h }} ], {rule} }} ] }} }}"
        );
        let rules = RuleSets::from_yaml(&rules).unwrap_or_else(|why| panic!("{why}: {rules}"));
        let limiter = Limiter::new(rules, MemoryStore::default());
        let filter = filter.rule_set("s");
        [path, &plain].map(|path| {
            let request = IncomingRequest {
                head: &head,
                path,
                peer: None,
            };
            match ready(evaluate(&filter, &limiter, request)) {
                FilterOutcome::Skipped => "skipped",
                FilterOutcome::Allowed(decision) if decision.rule().is_none() => "no rule",
                FilterOutcome::Allowed(_) => "allowed",
                FilterOutcome::Denied(_) => "denied",
                FilterOutcome::BadRequest(why) => panic!("{why}"),
                FilterOutcome::InvalidToken => unreachable!("the filter verifies no tokens"),
            }
        })
    };
    // All spellings share a bucket.
    for pattern in &patterns {
        let rule = format!("match: {{ path: [{pattern}] }}, key: [path]");
        let included = Filter::default().include(set.clone());
        assert_eq!(outcomes(&rule, included), ["allowed", "denied"], "{path:?}");
    }
    // Excluded only if both forms match.
    let (spelled, excepted) = if matches_both {
        ("skipped", "no rule")
    } else {
        ("allowed", "allowed")
    };
    let excluded = Filter::default().exclude(set.clone());
    assert_eq!(outcomes("scope: global", excluded), [spelled, "skipped"]);
    let rule = format!("match: {{ not_path: [{}] }}, scope: global", patterns[0]);
    assert_eq!(outcomes(&rule, Filter::default()), [excepted, "no rule"]);
}

/// Returns a text as YAML, with every character escaped.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|it| format!("\\U{:08x}", u32::from(it)));
    format!("\"{}\"", escaped.collect::<String>())
}
