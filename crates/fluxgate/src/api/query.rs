//! The query of a request, read strictly: what is not encoded as it should be is
//! told, and never stands for something else.

use crate::http::Problem;

/// The fields of a query, by name and value.
pub(super) fn fields(query: &str) -> impl Iterator<Item = Result<(String, String), Problem>> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decoded(name).ok_or_else(|| {
            Problem::bad_request("the name of a field of the query is badly encoded")
        })?;
        let value = decoded(value).ok_or_else(|| {
            Problem::bad_request(format!(
                "`{name}` is badly encoded: `%` and two hexadecimal digits for each byte, and \
                 the bytes in UTF-8"
            ))
        })?;
        Ok((name, value))
    })
}

/// The text behind `+` and `%XX`, if there is one.
fn decoded(text: &str) -> Option<String> {
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
    fn what_is_encoded_is_read_exactly_or_not_at_all() {
        for (text, expected) in [
            ("", ""),
            ("a+b%20c", "a b c"),
            ("%2B%25%c3%A4", "+%ä"),
            ("ä=", "ä="),
        ] {
            assert_eq!(decoded(text).as_deref(), Some(expected), "{text}");
        }
        for bad in ["%", "a%", "%4", "%zz", "%+1", "%FF", "%C3", "%c3%28"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }
}
