//! The values of query parameters and cookies, decoded as servers decode them.

use std::borrow::Cow;

use crate::request_head::BadRequest;

/// Returns the first value, if all are equal.
pub(super) fn only<'a>(
    mut values: impl Iterator<Item = Result<Cow<'a, [u8]>, BadRequest>>,
) -> Result<Option<Cow<'a, [u8]>>, BadRequest> {
    let Some(first) = values.next().transpose()? else {
        return Ok(None);
    };
    for value in values {
        if value? != first {
            return Err(BadRequest::ConflictingValues);
        }
    }
    Ok(Some(first))
}

/// Returns the values of a parameter in a query. A `;` next to it is an error.
pub(super) fn parameters<'a>(
    query: &'a str,
    name: &str,
) -> impl Iterator<Item = Result<Cow<'a, [u8]>, BadRequest>> {
    let is_named = move |pair: &str| {
        let key = pair.split_once('=').map_or(pair, |(key, _)| key);
        *form_decoded(key.as_bytes()) == *name.as_bytes()
    };
    query.split('&').filter_map(move |pair| {
        if pair.contains(';') {
            let mut parts = pair.split(';').chain([pair]);
            return parts.any(is_named).then_some(Err(BadRequest::Semicolon));
        }
        let value = pair.split_once('=').map_or("", |(_, value)| value);
        is_named(pair).then(|| Ok(form_decoded(value.as_bytes())))
    })
}

/// Decodes percent escapes, and `+` as a space. An incomplete escape is left as it is.
fn form_decoded(bytes: &[u8]) -> Cow<'_, [u8]> {
    decoded(bytes, |byte| if byte == b'+' { b' ' } else { byte })
}

/// Decodes percent escapes, and passes all other bytes to `replace`. An incomplete escape is
/// left as it is.
fn decoded(bytes: &[u8], replace: impl Fn(u8) -> u8) -> Cow<'_, [u8]> {
    if !bytes.iter().any(|byte| b"%+".contains(byte)) {
        return Cow::Borrowed(bytes);
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        let (byte, after) = match (*first, after) {
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, after),
                _ => (b'%', &rest[1..]),
            },
            (byte, after) => (replace(byte), after),
        };
        decoded.push(byte);
        rest = after;
    }
    Cow::Owned(decoded)
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

/// Returns the values of a cookie in a line of the header.
pub(super) fn cookies<'a>(
    line: &'a [u8],
    name: &str,
) -> impl Iterator<Item = Result<Cow<'a, [u8]>, BadRequest>> {
    line.split(|byte| *byte == b';').filter_map(move |pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (key, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        (key == name.as_bytes()).then(|| cookie_value(value))
    })
}

/// Returns the value of a cookie as most servers read it: without quotes around it, and with
/// percent escapes decoded if that gives UTF-8.
fn cookie_value(value: &[u8]) -> Result<Cow<'_, [u8]>, BadRequest> {
    let inner = match value {
        [b'"', inner @ .., b'"'] if inner.contains(&b'\\') => {
            return Err(BadRequest::EscapedCookie);
        }
        [b'"', inner @ .., b'"'] => inner,
        value => value,
    };
    let decoded = decoded(inner, |byte| byte);
    match std::str::from_utf8(&decoded) {
        Ok(_) => Ok(decoded),
        Err(_) => Ok(Cow::Borrowed(inner)),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::claims::Claims;
    use crate::source::Source;

    /// Returns the value of a source in a request with this target and these cookie lines.
    fn value(source: &Source, target: &str, lines: &[&str]) -> Result<Option<String>, BadRequest> {
        let request = lines.iter().fold(Request::get(target), |request, line| {
            request.header("cookie", *line)
        });
        let head = request.body(()).unwrap().into_parts().0;
        Ok(source
            .value(&head, &Claims::default())?
            .map(Cow::into_owned))
    }

    #[test]
    fn a_query_parameter_is_decoded() {
        let source = Source::query("a b");
        for (query, expected) in [
            ("", None),
            ("?", None),
            ("?a=1", None),
            ("?a+b=1", Some("1")),
            ("?x=y&%61%20b=%C3%A9+%2b&z", Some("é +")),
            ("?a+b", Some("")),
            ("?a+b=", Some("")),
            ("?a+b=c=d", Some("c=d")),
            ("?a+b=%4&x=", Some("%4")),
            ("?a+b=%zz%", Some("%zz%")),
            ("?a+b=%%31", Some("%1")),
            ("?a+b=%ff", Some("\u{10ffff}")),
            ("?a+b=x&A+b=y", Some("x")),
            ("?a+b=x&a%20b=%78", Some("x")),
        ] {
            let target = format!("/p{query}");
            let expected = Ok(expected.map(str::to_owned));
            assert_eq!(value(&source, &target, &[]), expected, "{query}");
        }
        for query in ["?a+b=x&a+b=y", "?a+b=x&a+b", "?a+b=&c=d&a%20b=x"] {
            let target = format!("/p{query}");
            let found = value(&source, &target, &[]);
            assert_eq!(found, Err(BadRequest::ConflictingValues), "{query}");
        }
        for query in [
            "?a+b=x;y",
            "?a+b=;",
            "?c=d;a%20b=x",
            "?a+b=x&c;a+b=y;d",
            "?c=d;a+b",
        ] {
            let target = format!("/p{query}");
            let found = value(&source, &target, &[]);
            assert_eq!(found, Err(BadRequest::Semicolon), "{query}");
        }
        for query in ["?a+b=x&c=d;e", "?c;d&a+b=x", "?a+b=x&c=a+b;d"] {
            let target = format!("/p{query}");
            assert_eq!(
                value(&source, &target, &[]),
                Ok(Some("x".into())),
                "{query}"
            );
        }
        let escaped = value(&source, "/p?a+b=x%3By", &[]);
        assert_eq!(escaped, Ok(Some("x;y".into())));
    }

    #[test]
    fn a_cookie_may_be_in_any_line() {
        let source = Source::cookie("id");
        for (lines, expected) in [
            (&[][..], None),
            (&["a=b"], None),
            (&["id"], None),
            (&["ID=x; xid=y"], None),
            (&["id="], Some("")),
            (&["a=b; id=x"], Some("x")),
            (&["a=b", "id=x"], Some("x")),
            (&["a=b;id = x ;c"], Some("x")),
            (&["id=\"x y\""], Some("x y")),
            (&["id=\""], Some("\"")),
            (&["id=a%20b+c=d"], Some("a b+c=d")),
            (&["id=%61nn"], Some("ann")),
            (&["id=\"a%6En\""], Some("ann")),
            (&["id=%2561"], Some("%61")),
            (&["id=%C3%A9"], Some("é")),
            (&["id=%61%ff"], Some("%61%ff")),
            (&["id=%zz%4"], Some("%zz%4")),
            (&["id=a\\nn"], Some("a\\nn")),
            (&["id=x; id=\"x\"", "id=%78"], Some("x")),
        ] {
            let expected = Ok(expected.map(str::to_owned));
            assert_eq!(value(&source, "/", lines), expected, "{lines:?}");
        }
        for lines in [&["id=x; id=y"][..], &["id=x", "id=y"], &["id=x;id="]] {
            let found = value(&source, "/", lines);
            assert_eq!(found, Err(BadRequest::ConflictingValues), "{lines:?}");
        }
        let escaped = value(&source, "/", &["id=\"\\141nn\""]);
        assert_eq!(escaped, Err(BadRequest::EscapedCookie));
    }
}
