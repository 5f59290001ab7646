//! What is promised of paths that can be read in two ways.

use std::sync::Arc;

use fluxgate_core::{Limiter, MemoryStore, PathSet, Pattern, RequestPath, RuleSets, ready};
use fluxgate_tower::{Filter, FilterOutcome};
use http::request::Parts;

/// A path, with or without the slash that it begins with. Its normal form is what a slow
/// reading by the letter of the definition says, both ways through the gateway see it
/// alike and pass on the raw form, and no rule on the normal form is skipped.
pub(super) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let text = match text.starts_with('/') {
        true => text.to_owned(),
        false => format!("/{text}"),
    };
    let path = RequestPath::read(&text);
    fluxgate_gateway::fuzz::target(&text, path.as_ref().ok());
    let model = slow_normal_form(&text);
    assert_eq!(path.is_ok(), model.is_some(), "{text:?}");
    let (Ok(path), Some(model)) = (path, model) else {
        return;
    };
    assert_eq!(path.raw(), text);
    assert_eq!(bytes_of(path.normal()), model, "{text:?}");
    is_normal(path.normal());
    is_never_skipped(&path);
}

/// The normal form, step by step; `None` where a path is refused.
fn slow_normal_form(path: &str) -> Option<Vec<u8>> {
    let mut decoded: Vec<(u8, bool)> = Vec::new();
    let bytes = path.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let value = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let value = value.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push((value.unwrap_or(bytes[at]), value.is_some()));
        at += if value.is_some() { 3 } else { 1 };
    }
    if decoded.iter().any(|(byte, _)| *byte == 0) {
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
    (!has_dots).then_some(normal)
}

/// The bytes that a text stands for.
fn bytes_of(text: &str) -> Vec<u8> {
    const FIRST: u32 = 0x10_FF80;
    let mut bytes = Vec::new();
    for it in text.chars() {
        match u32::from(it).checked_sub(FIRST) {
            Some(above) => bytes.push(0x80 + u8::try_from(above).expect("it is the last block")),
            None => bytes.extend(it.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    bytes
}

/// However a normal form is escaped, and with whatever is merged or cut, it is the normal
/// form of that.
fn is_normal(normal: &str) {
    let escaped = |byte: &u8, of: fn(&u8) -> bool| match of(byte) {
        true => format!("%{byte:02x}"),
        false => char::from(*byte).to_string(),
    };
    let bytes = bytes_of(normal);
    let all: String = bytes[1..].iter().map(|it| escaped(it, |_| true)).collect();
    let needed = |it: &u8| *it != b'/' && !it.is_ascii_alphanumeric();
    let some: String = bytes[1..].iter().map(|it| escaped(it, needed)).collect();
    let last = if normal.ends_with('/') { "" } else { ";x" };
    for spelled in [
        format!("/{all}"),
        format!("/{some}{last}"),
        format!("//{}", some.replace('/', ";y//")),
        format!("/{}", some.replace('/', "\\")),
    ] {
        let read = RequestPath::read(&spelled);
        let read = read.as_ref().map(RequestPath::normal);
        assert_eq!(read, Ok(normal), "{spelled:?}");
    }
}

/// Rules, `include` and `exclude` on the normal form, asked about the path.
fn is_never_skipped(path: &RequestPath<'_>) {
    let normal = path.normal();
    // A pattern fits itself, unless it is none: `a**`.
    let Ok(pattern) = Pattern::parse(normal) else {
        return;
    };
    let first = normal[1..].split('/').next().unwrap_or_default();
    let folder = format!("/{first}/**");
    let patterns = [normal, &folder].map(quoted);
    let set = PathSet::new(vec![pattern]);
    let raw_is_meant = set.contains(Some(path.raw()));
    assert!(set.contains_either(path));
    assert_eq!(set.contains_both(path), raw_is_meant);

    let (head, ()): (Parts, ()) = http::Request::new(()).into_parts();
    let plain = RequestPath::as_given(normal);
    let judge = |rule: &str, filter: Filter| {
        let rules = format!(
            "rule_sets: {{ s: {{ rules: [ {{ id: r, bands: [ {{ capacity: 1, window: 1h }} ], {rule} }} ] }} }}"
        );
        let rules = RuleSets::from_yaml(&rules).unwrap_or_else(|why| panic!("{why}: {rules}"));
        let limiter = Arc::new(Limiter::new(rules, MemoryStore::default()));
        let filter = filter.rule_set("s");
        [path, &plain].map(
            |path| match ready(filter.evaluate(&limiter, &head, path, None)) {
                FilterOutcome::Skipped => "untouched",
                FilterOutcome::Allowed(decision) if decision.rule().is_none() => "no rule",
                FilterOutcome::Allowed(_) => "passed",
                FilterOutcome::Denied(_) => "refused",
                FilterOutcome::BadRequest(why) => panic!("{why}"),
            },
        )
    };
    // The same bucket, however it is spelled.
    for pattern in &patterns {
        let rule = format!("match: {{ path: [{pattern}] }}, key: [path]");
        let included = Filter::default().include(set.clone());
        assert_eq!(judge(&rule, included), ["passed", "refused"], "{path:?}");
    }
    // Excluded only in both forms.
    let (spelled, excepted) = match raw_is_meant {
        true => ("untouched", "no rule"),
        false => ("passed", "passed"),
    };
    let excluded = Filter::default().exclude(set.clone());
    assert_eq!(judge("scope: global", excluded), [spelled, "untouched"]);
    let rule = format!("match: {{ not_path: [{}] }}, scope: global", patterns[0]);
    assert_eq!(judge(&rule, Filter::default()), [excepted, "no rule"]);
}

/// A text in YAML, whatever is in it.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|it| format!("\\U{:08x}", u32::from(it)));
    format!("\"{}\"", escaped.collect::<String>())
}
