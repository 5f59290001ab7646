//! The expressions in the Spring Expression Language that rules can express.

use fluxgate_core::{KeyPart, OnMissingKey, ValueMatch};

use crate::draft::Conditions;
use crate::path_patterns;

/// The key of a rate limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) parts: Vec<KeyPart>,
    pub(super) on_missing_key: OnMissingKey,
    /// The term that is taken for the user.
    pub(super) user: Option<String>,
}

/// A condition of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Methods(Vec<String>),
    Path(String),
    NotPath(String),
    Header(String, ValueMatch),
}

/// Converts a key expression. Returns `None` if a rule cannot count by it.
pub(super) fn key(text: &str) -> Option<Key> {
    let (text, fallback) = match text.split_once("?:") {
        Some((text, fallback)) => (text, Some(fallback.trim())),
        None => (text, None),
    };
    let mut key = Key {
        parts: Vec::new(),
        on_missing_key: OnMissingKey::Anonymous,
        user: None,
    };
    for term in text.split('+').map(str::trim) {
        let part = match term {
            "getRemoteAddr()" | "getRemoteAddress()" | "getRemoteHost()" => KeyPart::Ip,
            "getRequestURI()" | "getServletPath()" | "getURI().getPath()" => KeyPart::Path,
            "getMethod()" => KeyPart::Method,
            _ if is_user(term) => {
                key.user = Some(term.to_owned());
                KeyPart::User
            }
            _ if is_constant(term) => continue,
            _ => KeyPart::Header(header(term)?.into()),
        };
        if !key.parts.contains(&part) {
            key.parts.push(part);
        }
    }
    let is_address = |text: &str| matches!(text, "getRemoteAddr()" | "getRemoteAddress()");
    key.on_missing_key = match (fallback, key.parts.as_slice()) {
        (Some(fallback), [_]) if is_address(fallback) => OnMissingKey::Ip,
        (Some(_), _) => return None,
        (None, [] | [KeyPart::Ip]) => OnMissingKey::Ip,
        (None, _) => OnMissingKey::Anonymous,
    };
    Some(key)
}

/// Converts a condition or, with `negate`, its negation. Returns `None` if a rule cannot have it.
pub(super) fn condition(text: &str, negate: bool) -> Option<Condition> {
    let text = text.trim();
    let (left, operator, right) = comparison(text)?;
    let is_equal = (operator == "==") != negate;
    if left == "getMethod()" {
        let method = quoted(right).filter(|_| is_equal);
        return method.map(|method| Condition::Methods(vec![method]));
    }
    let is_path = matches!(left, "getRequestURI()" | "getServletPath()");
    if is_path {
        let pattern = path_patterns::literal(&quoted(right)?)?;
        return Some(if is_equal {
            Condition::Path(pattern)
        } else {
            Condition::NotPath(pattern)
        });
    }
    let name = header(left)?;
    let value = match (right, is_equal) {
        ("null", true) => ValueMatch::absent(),
        ("null", false) => ValueMatch::present(),
        (value, true) => ValueMatch::from(quoted(value)?),
        (value, false) => ValueMatch::not([quoted(value)?]),
    };
    Some(Condition::Header(name, value))
}

/// Converts a predicate. Returns `None` if a rule cannot have it as a condition.
pub(super) fn predicate(name: &str, argument: &str) -> Option<Condition> {
    let argument = argument.trim();
    match name {
        "METHOD" => {
            let methods: Vec<_> = argument
                .split(',')
                .map(|method| method.trim().to_ascii_uppercase())
                .filter(|method| !method.is_empty())
                .collect();
            (!methods.is_empty()).then_some(Condition::Methods(methods))
        }
        "PATH" if !argument.contains(',') => path_patterns::ant(argument).map(Condition::Path),
        "HEADER" if is_header_name(argument) => Some(Condition::Header(
            argument.to_owned(),
            ValueMatch::present(),
        )),
        _ => None,
    }
}

/// Splits a single comparison into its left side, `==` or `!=`, and its right side.
fn comparison(text: &str) -> Option<(&str, &'static str, &str)> {
    let operators = [(" eq ", "=="), (" ne ", "!="), ("==", "=="), ("!=", "!=")];
    let connectives = [" and ", " or ", "&&", "||", "!("];
    if connectives.iter().any(|it| text.contains(it)) {
        return None;
    }
    operators.into_iter().find_map(|(written, operator)| {
        let (left, right) = text.split_once(written)?;
        Some((left.trim(), operator, right.trim()))
    })
}

/// Returns the name of the header that a call reads.
fn header(term: &str) -> Option<String> {
    let calls = ["getHeader(", "getHeaders().getFirst("];
    let argument = calls
        .into_iter()
        .find_map(|call| term.strip_prefix(call)?.strip_suffix(')'))?;
    quoted(argument.trim()).filter(|name| is_header_name(name))
}

fn is_header_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !name.is_empty() && name.bytes().all(is_letter)
}

/// Returns whether a term is the user: the principal, or a call such as `@bean.username()`.
fn is_user(term: &str) -> bool {
    let principal = [
        "getRemoteUser()",
        "getUserPrincipal().getName()",
        "getUserPrincipal()?.getName()",
        "getUserPrincipal()?.name",
    ];
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let call = || term.strip_prefix('@')?.strip_suffix("()")?.split_once('.');
    let is_user_call = |(bean, method): (&str, &str)| {
        is_word(bean) && is_word(method) && method.to_ascii_lowercase().contains("user")
    };
    principal.contains(&term) || call().is_some_and(is_user_call)
}

/// Returns whether a term is the same for all requests.
fn is_constant(term: &str) -> bool {
    let is_number = !term.is_empty() && term.bytes().all(|byte| byte.is_ascii_digit());
    is_number || quoted(term).is_some()
}

/// Returns the text between single or double quotes.
fn quoted(term: &str) -> Option<String> {
    ['\'', '"'].into_iter().find_map(|quote| {
        let inside = term.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inside.contains(quote)).then(|| inside.to_owned())
    })
}

/// The result of adding a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddOutcome {
    /// The rule has both.
    Both,
    /// A condition on another path takes precedence: a rule needs only one of its paths.
    OtherPath,
    /// The rule has another condition of this kind.
    Conflict,
}

impl Condition {
    /// Adds the condition to a rule, if the rule can have it as well.
    pub(super) fn add_to(self, conditions: &mut Conditions) -> AddOutcome {
        match self {
            Self::Methods(methods) if conditions.methods.is_empty() => {
                conditions.methods = methods;
            }
            Self::Path(pattern) => return add_path(pattern, &mut conditions.path),
            Self::NotPath(pattern) => conditions.not_path.push(pattern),
            Self::Header(name, value) if !has(&conditions.headers, &name) => {
                conditions.headers.push((name, value));
            }
            _ => return AddOutcome::Conflict,
        }
        AddOutcome::Both
    }
}

/// Narrows the paths down to those that the pattern matches too.
fn add_path(pattern: String, paths: &mut Vec<String>) -> AddOutcome {
    if paths.iter().all(|path| covers(&pattern, path)) && !paths.is_empty() {
        return AddOutcome::Both;
    }
    if paths.is_empty() || paths.iter().any(|path| covers(path, &pattern)) {
        *paths = vec![pattern];
        return AddOutcome::Both;
    }
    AddOutcome::OtherPath
}

/// Returns whether a pattern certainly matches every path that the other matches.
fn covers(outer: &str, inner: &str) -> bool {
    if outer == inner || outer == "/**" {
        return true;
    }
    let is_literal = |text: &str| !text.contains(['*', '?']);
    let wildcard = inner.find(['*', '?']);
    let begin = &inner[..wildcard.unwrap_or(inner.len())];
    // `/a/**` matches `/a` too.
    let begin = match wildcard {
        Some(at) if inner[at..].starts_with("**") => begin.trim_end_matches('/'),
        _ => begin,
    };
    // `/a*/**` is everything that begins with `/a`, and `/a/**` is `/a` and what is below it.
    if let Some(prefix) = outer.strip_suffix("*/**").filter(|it| is_literal(it)) {
        return begin.starts_with(prefix);
    }
    let Some(folder) = outer.strip_suffix("/**").filter(|it| is_literal(it)) else {
        return false;
    };
    let below = begin.strip_prefix(folder);
    below.is_some_and(|it| it.starts_with('/') || (it.is_empty() && wildcard.is_none()))
}

fn has(headers: &[(String, ValueMatch)], name: &str) -> bool {
    headers
        .iter()
        .any(|(known, _)| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        use OnMissingKey::{Anonymous, Ip};
        for (text, parts, missing) in [
            ("getRemoteAddr()", "ip", Ip),
            ("1", "", Ip),
            ("'all'", "", Ip),
            ("getHeader('X-Api-Key')", "header:X-Api-Key", Anonymous),
            (
                "getHeader('X-Api-Key') ?: getRemoteAddr()",
                "header:X-Api-Key",
                Ip,
            ),
            (
                "getRemoteAddr() + '-' + getRequestURI()",
                "ip path",
                Anonymous,
            ),
            ("@securityService.username()?: getRemoteAddr()", "user", Ip),
        ] {
            let key = key(text).unwrap();
            let found: Vec<_> = key.parts.iter().map(ToString::to_string).collect();
            assert_eq!(
                (found.join(" ").as_str(), key.on_missing_key),
                (parts, missing),
                "{text}"
            );
        }
        for text in [
            "@geo.country()",
            "getHeader(x)",
            "getHeader('a b')",
            "getQueryString()",
            "@a.user().x()",
            "",
        ] {
            assert_eq!(key(text), None, "{text}");
        }
    }

    #[test]
    fn predicates() {
        let methods = |names: &[&str]| {
            let names = names.iter().map(|&name| name.to_owned());
            Some(Condition::Methods(names.collect()))
        };
        assert_eq!(predicate("METHOD", "get, POST"), methods(&["GET", "POST"]));
        assert_eq!(
            predicate("PATH", "/api/**"),
            Some(Condition::Path("/api/**".into()))
        );
        assert_eq!(
            predicate("PATH", "/users/{id}"),
            Some(Condition::Path("/users/{id}".into()))
        );
        for (name, argument) in [
            ("METHOD", ","),
            ("PATH", "/a,/b"),
            ("PATH", "/files/{*path}"),
            ("HEADER", "X-A,b.*"),
            ("QUERY", "q"),
        ] {
            assert_eq!(predicate(name, argument), None, "{name} {argument}");
        }
    }

    #[test]
    fn conditions() {
        let header = |value| Some(Condition::Header("X-Plan".into(), value));
        for (text, negate, expected) in [
            (
                "getHeader('X-Plan') == 'free'",
                false,
                header("free".into()),
            ),
            (
                "getHeader('X-Plan') == 'free'",
                true,
                header(ValueMatch::not(["free"])),
            ),
            (
                "getHeader('X-Plan') != null",
                false,
                header(ValueMatch::present()),
            ),
            (
                "getHeader('X-Plan') eq null",
                false,
                header(ValueMatch::absent()),
            ),
            (
                "getMethod() == 'POST'",
                false,
                Some(Condition::Methods(vec!["POST".into()])),
            ),
            ("getMethod() == 'POST'", true, None),
            (
                "getRequestURI() != '/a'",
                false,
                Some(Condition::NotPath("/a".into())),
            ),
            ("@s.admin()", false, None),
            ("getHeader('X-Plan') == 'a' or true == true", false, None),
        ] {
            assert_eq!(condition(text, negate), expected, "{text}");
        }
    }

    #[test]
    fn a_pattern_covers_another() {
        for (outer, inner) in [
            ("/**", "/a"),
            ("/a", "/a"),
            ("/a/**", "/a"),
            ("/a/**", "/a/b"),
            ("/a/**", "/a/b/**"),
            ("/a/**", "/a/*/**"),
            ("/a*/**", "/a/**"),
            ("/a*/**", "/ab"),
            ("/a/*/**", "/a/b/**"),
        ] {
            assert!(covers(outer, inner), "{outer} {inner}");
        }
        for (outer, inner) in [
            ("/a", "/**"),
            ("/a", "/b"),
            ("/a/**", "/ab"),
            ("/a/**", "/a*"),
            ("/a/*", "/a/b/c"),
            ("/a/*/**", "/a/**"),
            ("/*/b/**", "/a/b/c"),
            ("/a/b/**", "/a/**"),
        ] {
            assert!(!covers(outer, inner), "{outer} {inner}");
        }
    }

    #[test]
    fn paths_are_narrowed_down() {
        for (paths, pattern, expected, added) in [
            ("", "/a/**", "/a/**", AddOutcome::Both),
            (
                "/api/*/**",
                "/api/users/**",
                "/api/users/**",
                AddOutcome::Both,
            ),
            (
                "/api/users/x",
                "/api/users/**",
                "/api/users/x",
                AddOutcome::Both,
            ),
            ("/a*/** /b", "/b", "/b", AddOutcome::Both),
            ("/a /b", "/a/**", "/a /b", AddOutcome::OtherPath),
            ("/a", "/b", "/a", AddOutcome::OtherPath),
        ] {
            let mut conditions = Conditions {
                path: paths.split_whitespace().map(str::to_owned).collect(),
                ..Conditions::default()
            };
            let found = Condition::Path(pattern.into()).add_to(&mut conditions);
            assert_eq!(
                (conditions.path.join(" ").as_str(), found),
                (expected, added),
                "{paths} and {pattern}"
            );
        }
    }
}
