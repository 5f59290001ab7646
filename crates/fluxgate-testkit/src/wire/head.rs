//! The parser of heads: the first line and the headers.

use super::{Ambiguous, Headers, Read, bad};

/// The first line and the headers.
pub(super) struct Head {
    pub(super) first: String,
    pub(super) headers: Headers,
}

/// Parses a head, which ends with an empty line.
pub(super) fn read(bytes: &[u8]) -> Result<Read<Head>, Ambiguous> {
    let mut at = 0;
    let first = match line(bytes, &mut at)? {
        Some(first) => first,
        None => return Ok(Read::Part),
    };
    Ok(match fields(bytes, &mut at)? {
        Some(headers) => Read::Whole(Head { first, headers }, at),
        None => Read::Part,
    })
}

/// Parses headers or trailers up to an empty line.
pub(super) fn fields(bytes: &[u8], at: &mut usize) -> Result<Option<Headers>, Ambiguous> {
    let mut headers = Vec::new();
    loop {
        match line(bytes, at)? {
            None => return Ok(None),
            Some(line) if line.is_empty() => return Ok(Some(headers)),
            Some(line) => headers.push(field(&line)?),
        }
    }
}

fn field(line: &str) -> Result<(String, String), Ambiguous> {
    let Some((name, value)) = line.split_once(':') else {
        return bad(format!("a header without a colon: {line:?}"));
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(is_name) {
        return bad(format!("invalid header name: {line:?}"));
    }
    let is_value = |c: char| c == '\t' || (c >= ' ' && c != '\x7f');
    if !value.chars().all(is_value) {
        return bad(format!("invalid header value: {line:?}"));
    }
    let value = value.trim_matches([' ', '\t']);
    Ok((name.to_ascii_lowercase(), value.to_owned()))
}

/// Returns the next line without its end. Each byte becomes a character.
pub(super) fn line(bytes: &[u8], at: &mut usize) -> Result<Option<String>, Ambiguous> {
    let rest = &bytes[*at..];
    let Some(end) = rest.iter().position(|byte| b"\r\n".contains(byte)) else {
        return Ok(None);
    };
    let text = || rest[..end].iter().copied().map(char::from).collect();
    match &rest[end..] {
        [b'\r', b'\n', ..] => {
            *at += end + 2;
            Ok(Some(text()))
        }
        [b'\r'] => Ok(None),
        _ => bad(format!("a bare line end after {:?}", text() as String)),
    }
}
