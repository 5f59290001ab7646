//! Strict parsing of a query: a badly encoded field is an error and is never replaced.

use fluxgate_http::Problem;

/// Returns the names and values of the fields of a query.
pub(super) fn fields(query: &str) -> impl Iterator<Item = Result<(String, String), Problem>> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decode(name).ok_or_else(|| {
            Problem::bad_request("the name of a query field is badly encoded")
        })?;
        let value = decode(value).ok_or_else(|| {
            Problem::bad_request(format!(
                "`{name}` is badly encoded: use UTF-8, with `%` and two hexadecimal digits for each \
                 escaped byte"
            ))
        })?;
        Ok((name, value))
    })
}

/// Reads a number of results to return, from 1.
pub(super) fn count(name: &str, value: &str, most: usize) -> Result<usize, Problem> {
    let count = value
        .parse()
        .ok()
        .filter(|count| (1..=most).contains(count));
    count.ok_or_else(|| expected(name, &format!("1 to {most}"), value))
}

/// Reads a name; an empty one is as good as none.
pub(super) fn name(value: String) -> Option<String> {
    Some(value).filter(|value| !value.is_empty())
}

/// Reads a time in milliseconds since 1970.
pub(super) fn millis(name: &str, value: &str) -> Result<u64, Problem> {
    let millis = value.parse().ok();
    millis.ok_or_else(|| expected(name, "a time in milliseconds since 1970", value))
}

/// Returns the error for an invalid value.
pub(super) fn expected(name: &str, expected: &str, value: &str) -> Problem {
    Problem::bad_request(format!("`{name}` must be {expected}, not {value:?}"))
}

/// Returns the error for a field that a call does not have.
pub(super) fn unknown(name: &str) -> Problem {
    Problem::bad_request(format!("unknown field `{name}`"))
}

/// Decodes `+` and `%XX`.
fn decode(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => digit(bytes.next()?)? << 4 | digit(bytes.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

fn digit(char: u8) -> Option<u8> {
    let digit = char::from(char).to_digit(16)?;
    u8::try_from(digit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_decoded_exactly_or_not_at_all() {
        for (text, expected) in [
            ("", ""),
            ("a+b%20c", "a b c"),
            ("%2B%25%c3%A4", "+%ä"),
            ("ä=", "ä="),
        ] {
            assert_eq!(decode(text).as_deref(), Some(expected), "{text}");
        }
        for bad in ["%", "a%", "%4", "%zz", "%+1", "%FF", "%C3", "%c3%28"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
