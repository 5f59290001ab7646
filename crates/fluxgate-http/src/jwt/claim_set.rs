//! The payload of a token.

use std::collections::HashMap;

use serde::de::DeserializeOwned;
use serde_json::Number;
use serde_json::value::RawValue;

/// Milliseconds since the Unix epoch.
pub(super) type Millis = i64;

/// The claims of a token. Values stay JSON text: a number that is an identity must not lose
/// digits.
#[derive(Debug)]
pub(super) struct ClaimSet<'a>(HashMap<String, &'a RawValue>);

/// A claim that has another shape than RFC 7519 requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedClaims;

impl<'a> ClaimSet<'a> {
    /// Reads the payload of a token.
    pub(super) fn parse(payload: &'a [u8]) -> Result<Self, MalformedClaims> {
        let claims = serde_json::from_slice(payload);
        claims.map(Self).map_err(|_| MalformedClaims)
    }

    /// Returns `exp`, rounded down to a second. The token is valid only before this time.
    pub(super) fn expires(&self) -> Result<Option<Millis>, MalformedClaims> {
        self.time("exp", f64::floor)
    }

    /// Returns `nbf`, rounded up to a second. The token is valid from this time on.
    pub(super) fn not_before(&self) -> Result<Option<Millis>, MalformedClaims> {
        self.time("nbf", f64::ceil)
    }

    fn time(&self, name: &str, round: fn(f64) -> f64) -> Result<Option<Millis>, MalformedClaims> {
        let Some(json) = self.0.get(name) else {
            return Ok(None);
        };
        let number: Number = serde_json::from_str(json.get()).map_err(|_| MalformedClaims)?;
        let seconds = match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole,
            // The conversion saturates.
            (None, Some(number)) => round(number) as i64,
            (None, None) => return Err(MalformedClaims),
        };
        Ok(Some(seconds.saturating_mul(1000)))
    }

    /// Returns whether a claim is one of the allowed strings.
    pub(super) fn is_one_of(&self, name: &str, allowed: &[Box<str>]) -> bool {
        let text = self.parsed::<String>(name);
        text.is_some_and(|text| is_allowed(&text, allowed))
    }

    /// Returns whether a claim is one of the allowed strings, or a list with one of them.
    pub(super) fn has_one_of(&self, name: &str, allowed: &[Box<str>]) -> bool {
        let list = || self.parsed::<Vec<String>>(name).unwrap_or_default();
        self.is_one_of(name, allowed) || list().iter().any(|text| is_allowed(text, allowed))
    }

    fn parsed<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.0.get(name)?.get()).ok()
    }

    /// Returns the value of a claim as text: a string as it is, a number or a boolean as its
    /// JSON text. Prefers the claim with exactly this name. Otherwise dots separate the names of
    /// nested claims, which may contain dots themselves.
    pub(super) fn value(&self, name: &str) -> Option<Box<str>> {
        if let Some(json) = self.0.get(name) {
            return text_of(json.get());
        }
        name.match_indices('.').find_map(|(dot, _)| {
            let (outer, inner) = (&name[..dot], &name[dot + 1..]);
            let nested: HashMap<String, &RawValue> =
                serde_json::from_str(self.0.get(outer)?.get()).ok()?;
            ClaimSet(nested).value(inner)
        })
    }
}

fn is_allowed(text: &str, allowed: &[Box<str>]) -> bool {
    allowed.iter().any(|allowed| **allowed == *text)
}

/// Returns a JSON value as text, unless it is null, a list or an object.
fn text_of(json: &str) -> Option<Box<str>> {
    match json.as_bytes().first()? {
        b'"' => serde_json::from_str::<String>(json).ok().map(Into::into),
        b'-' | b'0'..=b'9' | b't' | b'f' => Some(json.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_text_a_number_or_a_boolean() {
        let payload = br#"{
            "text": "a\u0062", "empty": "", "big": 123456789012345678901234567890,
            "fraction": -1.50e3, "yes": true, "no": false, "null": null, "list": ["a"],
            "realm": { "role": "admin", "deep": { "er": 7 }, "list": [] },
            "a.b": "whole", "a": { "b": "nested", "c": "nested" },
            "https://example.com/plan": "pro",
            "https://example.com/org": { "id": "o1" }
        }"#;
        let claims = ClaimSet::parse(payload).unwrap();
        for (name, expected) in [
            ("text", Some("ab")),
            ("empty", Some("")),
            ("big", Some("123456789012345678901234567890")),
            ("fraction", Some("-1.50e3")),
            ("yes", Some("true")),
            ("no", Some("false")),
            ("null", None),
            ("list", None),
            ("realm", None),
            ("absent", None),
            ("realm.role", Some("admin")),
            ("realm.deep.er", Some("7")),
            ("realm.deep", None),
            ("realm.list", None),
            ("realm.", None),
            ("text.role", None),
            ("a.b", Some("whole")),
            ("a.c", Some("nested")),
            ("https://example.com/plan", Some("pro")),
            ("https://example.com/org.id", Some("o1")),
        ] {
            assert_eq!(claims.value(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn times_are_numbers() {
        let times = |json: &str| {
            let payload = format!("{{\"exp\":{json},\"nbf\":{json}}}");
            let claims = ClaimSet::parse(payload.as_bytes()).unwrap();
            (claims.expires(), claims.not_before())
        };
        let both = |millis| (Ok(Some(millis)), Ok(Some(millis)));
        assert_eq!(times("1700000000"), both(1_700_000_000_000));
        assert_eq!(times("-1"), both(-1000));
        assert_eq!(times("1.5"), (Ok(Some(1000)), Ok(Some(2000))));
        assert_eq!(times("1e300"), both(i64::MAX));
        assert_eq!(times("18446744073709551615"), both(i64::MAX));
        for json in ["\"1700000000\"", "null", "true", "[]", "{}"] {
            assert_eq!(
                times(json),
                (Err(MalformedClaims), Err(MalformedClaims)),
                "{json}"
            );
        }
        let none = ClaimSet::parse(b"{}").unwrap();
        assert_eq!((none.expires(), none.not_before()), (Ok(None), Ok(None)));
    }

    #[test]
    fn only_an_object_holds_claims() {
        for payload in ["", "[]", "1", "null", "{\"a\":}", "{}x"] {
            assert_eq!(
                ClaimSet::parse(payload.as_bytes()).err(),
                Some(MalformedClaims)
            );
        }
    }

    #[test]
    fn an_audience_may_be_a_list_and_an_issuer_may_not() {
        let allowed = ["a".into(), "b".into()];
        for (json, has_one, is_one) in [
            ("\"a\"", true, true),
            ("\"c\"", false, false),
            ("\"A\"", false, false),
            ("[\"c\",\"b\"]", true, false),
            ("[\"c\"]", false, false),
            ("[]", false, false),
            ("[1,\"a\"]", false, false),
            ("{\"a\":\"a\"}", false, false),
            ("null", false, false),
        ] {
            let payload = format!("{{\"x\":{json}}}");
            let claims = ClaimSet::parse(payload.as_bytes()).unwrap();
            assert_eq!(claims.has_one_of("x", &allowed), has_one, "{json}");
            assert_eq!(claims.is_one_of("x", &allowed), is_one, "{json}");
            assert!(!claims.has_one_of("y", &allowed) && !claims.is_one_of("y", &allowed));
        }
    }
}
