//! The values of query parameters and cookies, decoded as servers decode them.

use std::borrow::Cow;

use fluxgate_core::key::AUTHORIZATION;

use crate::alike_names::{Likeness, compare};
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

/// Returns the values of a parameter in a query. A `;` next to it is an error, and so is a name
/// that servers may take for this one.
pub(super) fn parameters<'a>(
    query: &'a str,
    name: &str,
) -> impl Iterator<Item = Result<Cow<'a, [u8]>, BadRequest>> {
    let likeness = move |pair: &str| {
        let key = pair.split_once('=').map_or(pair, |(key, _)| key);
        compare(&form_decoded(key.as_bytes()), name)
    };
    query.split('&').filter_map(move |pair| {
        if pair.contains(';') {
            let mut parts = pair.split(';').chain([pair]);
            let is_near = parts.any(|part| likeness(part) != Likeness::Other);
            return is_near.then_some(Err(BadRequest::Semicolon));
        }
        let value = pair.split_once('=').map_or("", |(_, value)| value);
        match likeness(pair) {
            Likeness::Same => Some(checked(form_decoded(value.as_bytes()))),
            Likeness::Alike => Some(Err(BadRequest::AlikeName)),
            Likeness::Other => None,
        }
    })
}

/// Rejects a value that servers clean in different ways. Some drop or replace bytes that are not
/// UTF-8.
fn checked(value: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>, BadRequest> {
    if value.iter().any(u8::is_ascii_control) || std::str::from_utf8(&value).is_err() {
        return Err(BadRequest::UnclearValue);
    }
    check_ends(&value)?;
    Ok(value)
}

/// Rejects a value with white space at either end, which some servers remove. A byte that is not
/// UTF-8 counts as Latin-1.
fn check_ends(value: &[u8]) -> Result<(), BadRequest> {
    let is_plain = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_graphic);
    if is_plain(value.first()) && is_plain(value.last()) {
        return Ok(());
    }
    let chars = value.utf8_chunks().flat_map(|chunk| {
        let invalid = chunk.invalid().iter().map(|byte| char::from(*byte));
        chunk.valid().chars().chain(invalid)
    });
    // Some servers remove a byte order mark as well.
    let is_space = |it: char| it.is_whitespace() || it == '\u{feff}';
    let ends = [chars.clone().next(), chars.last()];
    if ends.into_iter().flatten().any(is_space) {
        return Err(BadRequest::UnclearValue);
    }
    Ok(())
}

/// Rejects the value of a header that servers clean in different ways. `name` is in lower case.
pub(crate) fn check_header(name: &str, value: &[u8]) -> Result<(), BadRequest> {
    check_ends(value)?;
    // Some servers decode the encoded words of mail, such as `=?utf-8?q?ann?=`.
    let has_encoded_word =
        value.contains(&b'?') && contains_pair(value, b"=?") && contains_pair(value, b"?=");
    // Some servers separate a scheme by any white space of Unicode or Latin-1.
    if has_encoded_word || (name == AUTHORIZATION && !value.is_ascii()) {
        return Err(BadRequest::UnclearValue);
    }
    if name == AUTHORIZATION {
        token_of(value)?;
    }
    Ok(())
}

fn contains_pair(text: &[u8], pair: &[u8; 2]) -> bool {
    text.windows(2).any(|it| it == pair)
}

/// Returns the token of an `Authorization` header with the scheme Bearer.
pub(super) fn token_of(value: &[u8]) -> Result<Option<&[u8]>, BadRequest> {
    const SCHEME: &[u8] = b"bearer";
    let Some((scheme, rest)) = value.split_at_checked(SCHEME.len()) else {
        return Ok(None);
    };
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return Ok(None);
    }
    match rest {
        [] => Ok(None),
        [b' ' | b'\t', ..] => match rest.trim_ascii() {
            [] => Ok(None),
            // Some servers cut the token at white space, such as U+00A0.
            token if token.iter().all(u8::is_ascii_graphic) => Ok(Some(token)),
            _ => Err(BadRequest::UnclearToken),
        },
        // Another scheme that begins alike.
        [byte, ..] if byte.is_ascii_alphanumeric() || b"-_".contains(byte) => Ok(None),
        _ => Err(BadRequest::UnclearToken),
    }
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

/// Returns the values of a cookie in a line of the header. It is an error if servers may find
/// it in another place.
pub(super) fn cookies<'a>(
    line: &'a [u8],
    name: &str,
) -> impl Iterator<Item = Result<Cow<'a, [u8]>, BadRequest>> {
    line.split(|byte| *byte == b';').filter_map(move |pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (key, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        if contains_cookie(value, name) {
            return Some(Err(BadRequest::HiddenCookie));
        }
        if key == name.as_bytes() {
            return Some(cookie_value(value));
        }
        if compare(&decoded(key, |byte| byte), name) != Likeness::Other {
            return Some(Err(BadRequest::AlikeName));
        }
        ends_with_name(key, name).then_some(Err(BadRequest::HiddenCookie))
    })
}

/// Returns whether the name of a cookie stands before a `=` in the value of another. Servers
/// that separate cookies by white space or commas, or that know quoted strings, find it there.
fn contains_cookie(value: &[u8], name: &str) -> bool {
    let mut parts = value.split(|byte| *byte == b'=');
    parts.next_back();
    parts.any(|part| ends_with_name(part, name))
}

/// Returns whether a text ends with the name of a cookie, or one alike, at its start or behind a
/// character that no name may contain.
fn ends_with_name(text: &[u8], name: &str) -> bool {
    let is_other = |byte: &u8| !byte.is_ascii_alphanumeric();
    let trimmed = |text: &[u8]| text.iter().rev().skip_while(|byte| is_other(byte)).count();
    let fold = |byte: &u8| {
        if byte.is_ascii_alphanumeric() {
            byte.to_ascii_lowercase()
        } else {
            b'_'
        }
    };
    let name = &name.as_bytes()[..trimmed(name.as_bytes())];
    let start = name.iter().position(|byte| !is_other(byte));
    let Some(core) = start.map(|start| &name[start..]) else {
        return false;
    };
    let text = &text[..trimmed(text)];
    let Some((before, end)) = text.split_at_checked(text.len().wrapping_sub(core.len())) else {
        return false;
    };
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let mut before = before.iter().rev().take_while(|byte| is_token(byte));
    end.iter().map(fold).eq(core.iter().map(fold)) && before.all(is_other)
}

/// Returns the value of a cookie as most servers read it: without quotes around it, and with
/// percent escapes decoded.
fn cookie_value(value: &[u8]) -> Result<Cow<'_, [u8]>, BadRequest> {
    let (inner, unclear) = match value {
        // Some servers read escapes in quotes.
        [b'"', inner @ .., b'"'] => (inner, &b"\", \t\\"[..]),
        value => (value, &b"\", \t"[..]),
    };
    // Some servers end a value at white space or at a comma, in quotes too.
    if inner.iter().any(|byte| unclear.contains(byte)) {
        return Err(BadRequest::UnclearCookie);
    }
    let decoded = decoded(inner, |byte| byte);
    // Express reads JSON behind `j:`.
    if decoded.starts_with(b"j:") {
        return Err(BadRequest::UnclearCookie);
    }
    checked(decoded)
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
            ("?a+b=x&ab=y&my+a+b=z", Some("x")),
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
            "?A+b=x",
            "?a+b=x&a.b=y",
            "?a_b=x",
            "?a[b=x",
            "?+a+b=x",
            "?a+b%00=x",
            "?a+b%00c=x",
            "?a+b[]=x",
            "?a+b[0]=x",
            "?%c2%a0a+b=x",
        ] {
            let found = value(&source, &format!("/p{query}"), &[]);
            assert_eq!(found, Err(BadRequest::AlikeName), "{query}");
        }
        for query in [
            "?a+b=x%0a",
            "?a+b=%09x",
            "?a+b=x%00y",
            "?a+b=+x",
            "?a+b=x%20",
            "?a+b=x%c2%a0",
            "?a+b=%c2%85x",
            "?a+b=x%a0",
            "?a+b=%ef%bb%bfx",
            "?a+b=%7f",
            "?a+b=%ff",
            "?a+b=x%80y",
        ] {
            let found = value(&source, &format!("/p{query}"), &[]);
            assert_eq!(found, Err(BadRequest::UnclearValue), "{query}");
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
            (&["xid=y; my_id=z; a=myid=1"], None),
            (&["id="], Some("")),
            (&["a=b; id=x"], Some("x")),
            (&["a=b", "id=x"], Some("x")),
            (&["a=b;id = x ;c"], Some("x")),
            (&["id=a%20b+c=d"], Some("a b+c=d")),
            (&["id=%61nn"], Some("ann")),
            (&["id=\"a%6En\""], Some("ann")),
            (&["id=%2561"], Some("%61")),
            (&["id=%C3%A9"], Some("é")),
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
        for line in [
            "id=\"\\141nn\"",
            "id=\"a\"b\"",
            "id=\"",
            "id=x\"",
            "id=x y",
            "id=x,y",
            "id=\"x; y\"",
            "id=\"x y\"",
            "id=\"x,y\"",
            "id=\"x \"",
            "id=j:1",
            "id=j%3A%22x%22",
        ] {
            let found = value(&source, "/", &[line]);
            assert_eq!(found, Err(BadRequest::UnclearCookie), "{line}");
        }
        for line in [
            "ID=x",
            "id=x; Id=y",
            "\"id\"=x",
            "$id=x",
            "i%64=x",
            "id[]=x",
            "id[0]=x",
            "id%00=x",
        ] {
            let found = value(&source, "/", &[line]);
            assert_eq!(found, Err(BadRequest::AlikeName), "{line}");
        }
        for line in [
            "id=x; a=b id=y",
            "a=b id=y",
            "a=b,id=y",
            "a=\"b\"id=y",
            "a=b\tid = y",
            "a=b c id=y",
            "c id=y",
            "c,-id.=y",
            "=id=y",
            "a=/x?ID=y",
            "id=x=id=y",
        ] {
            let found = value(&source, "/", &[line]);
            assert_eq!(found, Err(BadRequest::HiddenCookie), "{line}");
        }
        for line in [
            "id=x%0a",
            "id=%20x",
            "id=%C2%A0x",
            "id=x%00",
            "id=%61%ff",
            "id=\"%80\"",
        ] {
            let found = value(&source, "/", &[line]);
            assert_eq!(found, Err(BadRequest::UnclearValue), "{line}");
        }
    }

    #[test]
    fn a_cookie_behind_bytes_that_are_not_ascii_is_not_missed() {
        let source = Source::cookie("id");
        for line in [
            &b"\xa0id=y"[..],
            b"\xc2\xa0id=y",
            b"id=x; \xc2\xa0id=y",
            b"a=b\xc2\xa0id=y",
            b"a=b\x85id=y",
        ] {
            let line = http::HeaderValue::from_bytes(line).unwrap();
            let request = Request::get("/").header("cookie", line);
            let head = request.body(()).unwrap().into_parts().0;
            let found = source.value(&head, &Claims::default());
            assert!(found.is_err(), "{found:?}");
        }
    }

    #[test]
    fn a_token_is_read_whatever_the_case_of_its_scheme() {
        let value = |source: &Source, text: &[u8]| {
            let text = http::HeaderValue::from_bytes(text).unwrap();
            let request = Request::get("/").header("authorization", text);
            let head = request.body(()).unwrap().into_parts().0;
            let value = source.value(&head, &Claims::default())?;
            Ok::<_, BadRequest>(value.map(Cow::into_owned))
        };
        let (bearer, whole) = (Source::bearer(), Source::header("Authorization"));
        for (text, token, counted) in [
            ("Bearer Ab", Some("Ab"), "bearer Ab"),
            ("bEARER   Ab", Some("Ab"), "bearer Ab"),
            ("bearer\tAb=", Some("Ab="), "bearer Ab="),
            ("Basic Ab", None, "basic Ab"),
            ("Bearer", None, "Bearer"),
            ("Bearers Ab", None, "bearers Ab"),
            ("Ab", None, "Ab"),
            ("", None, ""),
        ] {
            let token = Ok(token.map(str::to_owned));
            assert_eq!(value(&bearer, text.as_bytes()), token, "{text}");
            let counted = Ok(Some(counted.to_owned()));
            assert_eq!(value(&whole, text.as_bytes()), counted, "{text}");
        }
        for text in [
            &b"Bearer a b"[..],
            b"Bearer a\xa0",
            b"Bearer\xa0a",
            b"Bearer\xc2\xa0a",
            b"\xa0Bearer a",
            b"\xe3\x80\x80Bearer a",
            b"=?utf-8?q?Bearer_a?=",
        ] {
            assert!(value(&bearer, text).is_err(), "{text:?}");
        }
        for text in [
            &b"Bearer a b"[..],
            b"Bearer a\xa0",
            b"Bearer\xa0a",
            b"Basic \xa0a",
        ] {
            assert!(value(&whole, text).is_err(), "{text:?}");
        }
    }
}
