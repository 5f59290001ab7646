//! The expressions in the Spring Expression Language that rules can express.

use crate::draft::Test;
use crate::path_patterns;

/// The key of a rate limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) parts: Vec<String>,
    pub(super) on_missing_key: &'static str,
    /// The term that is taken for the user.
    pub(super) user: Option<String>,
}

/// A condition of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Methods(Vec<String>),
    Path(String),
    NotPath(String),
    Header(String, Test),
}

/// Converts a key expression. Returns `None` if a rule cannot count by it.
pub(super) fn key(text: &str) -> Option<Key> {
    let (text, fallback) = match text.split_once("?:") {
        Some((text, fallback)) => (text, Some(fallback.trim())),
        None => (text, None),
    };
    let mut key = Key {
        parts: Vec::new(),
        on_missing_key: "anonymous",
        user: None,
    };
    for term in text.split('+').map(str::trim) {
        let part = match term {
            "getRemoteAddr()" | "getRemoteAddress()" | "getRemoteHost()" => "ip".to_owned(),
            "getRequestURI()" | "getServletPath()" | "getURI().getPath()" => "path".to_owned(),
            "getMethod()" => "method".to_owned(),
            _ if is_user(term) => {
                key.user = Some(term.to_owned());
                "user".to_owned()
            }
            _ if is_constant(term) => continue,
            _ => format!("header:{}", header(term)?),
        };
        if !key.parts.contains(&part) {
            key.parts.push(part);
        }
    }
    let is_address = |text: &str| matches!(text, "getRemoteAddr()" | "getRemoteAddress()");
    key.on_missing_key = match (fallback, key.parts.as_slice()) {
        (Some(fallback), [_]) if is_address(fallback) => "ip",
        (Some(_), _) => return None,
        (None, [] | [_]) if key.parts.iter().all(|part| part == "ip") => "ip",
        (None, _) => "anonymous",
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
    let test = match (right, is_equal) {
        ("null", _) => Test::Present(!is_equal),
        (value, true) => Test::Is(vec![quoted(value)?]),
        (value, false) => Test::Not(vec![quoted(value)?]),
    };
    Some(Condition::Header(name, test))
}

/// Converts a predicate. Returns `None` if a rule cannot have it as a condition.
pub(super) fn predicate(name: &str, argument: &str) -> Option<Condition> {
    let argument = argument.trim();
    match name {
        "METHOD" => {
            let methods = argument
                .split(',')
                .map(|method| method.trim().to_ascii_uppercase());
            let methods: Vec<_> = methods.filter(|method| !method.is_empty()).collect();
            (!methods.is_empty()).then_some(Condition::Methods(methods))
        }
        "PATH" if !argument.contains(',') => path_patterns::ant(argument).map(Condition::Path),
        "HEADER" if is_header_name(argument) => {
            Some(Condition::Header(argument.to_owned(), Test::Present(true)))
        }
        _ => None,
    }
}

/// Splits a comparison.
fn comparison(text: &str) -> Option<(&str, &'static str, &str)> {
    let operators = [(" eq ", "=="), (" ne ", "!="), ("==", "=="), ("!=", "!=")];
    let has_more = [" and ", " or ", "&&", "||", "!("]
        .iter()
        .any(|it| text.contains(it));
    let found = operators.into_iter().find_map(|(written, operator)| {
        let (left, right) = text.split_once(written)?;
        Some((left.trim(), operator, right.trim()))
    });
    found.filter(|_| !has_more)
}

/// Returns the name of the header that a call reads.
fn header(term: &str) -> Option<String> {
    let calls = ["getHeader(", "getHeaders().getFirst("].into_iter();
    let mut insides = calls.filter_map(|call| term.strip_prefix(call)?.strip_suffix(')'));
    let name = quoted(insides.next()?.trim())?;
    is_header_name(&name).then_some(name)
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
    let is_call = |text: &str| {
        let mut words = text.split('.');
        let (bean, method) = (
            words.next(),
            words.next().and_then(|it| it.strip_suffix("()")),
        );
        let is_word = |word: Option<&str>| {
            word.is_some_and(|it| {
                !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_alphanumeric())
            })
        };
        let says_user = method.is_some_and(|it| it.to_ascii_lowercase().contains("user"));
        is_word(bean) && is_word(method) && says_user && words.next().is_none()
    };
    principal.contains(&term) || term.strip_prefix('@').is_some_and(is_call)
}

/// Returns whether a term is the same for all requests.
fn is_constant(term: &str) -> bool {
    let is_number = !term.is_empty() && term.bytes().all(|byte| byte.is_ascii_digit());
    is_number || quoted(term).is_some()
}

/// Returns the text between single or double quotes.
fn quoted(term: &str) -> Option<String> {
    let inside = ['\'', '"'].into_iter().find_map(|quote| {
        let inside = term.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inside.contains(quote)).then_some(inside)
    });
    inside.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        for (text, parts, missing) in [
            ("getRemoteAddr()", "ip", "ip"),
            ("1", "", "ip"),
            ("'all'", "", "ip"),
            ("getHeader('X-Api-Key')", "header:X-Api-Key", "anonymous"),
            (
                "getHeader('X-Api-Key') ?: getRemoteAddr()",
                "header:X-Api-Key",
                "ip",
            ),
            (
                "getRemoteAddr() + '-' + getRequestURI()",
                "ip path",
                "anonymous",
            ),
            (
                "@securityService.username()?: getRemoteAddr()",
                "user",
                "ip",
            ),
        ] {
            let key = key(text).unwrap();
            assert_eq!(
                (key.parts.join(" ").as_str(), key.on_missing_key),
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
        let header = |test| Some(Condition::Header("X-Plan".into(), test));
        let free = || vec!["free".to_owned()];
        for (text, negate, expected) in [
            (
                "getHeader('X-Plan') == 'free'",
                false,
                header(Test::Is(free())),
            ),
            (
                "getHeader('X-Plan') == 'free'",
                true,
                header(Test::Not(free())),
            ),
            (
                "getHeader('X-Plan') != null",
                false,
                header(Test::Present(true)),
            ),
            (
                "getHeader('X-Plan') eq null",
                false,
                header(Test::Present(false)),
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
}
