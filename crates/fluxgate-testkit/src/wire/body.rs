//! The framing and parsing of bodies.

use super::head::{fields, line};
use super::{Ambiguous, Headers, bad, values};

/// How the end of a body is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// Neither `content-length` nor `transfer-encoding`.
    Unspecified,
    Length(usize),
    Chunked,
}

impl Framing {
    /// Returns the framing that the headers specify.
    pub(super) fn of(headers: &Headers) -> Result<Self, Ambiguous> {
        let lengths = values(headers, "content-length");
        match (&values(headers, "transfer-encoding")[..], &lengths[..]) {
            ([], []) => Ok(Self::Unspecified),
            ([coding], []) if coding.eq_ignore_ascii_case("chunked") => Ok(Self::Chunked),
            ([], [length]) if is_number(length) => length
                .parse()
                .map(Self::Length)
                .or_else(|_| bad(format!("invalid length: {length:?}"))),
            (codings, lengths) => bad(format!(
                "ambiguous framing: codings {codings:?}, lengths {lengths:?}"
            )),
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A chunked body and its trailers.
pub(super) type Chunked = (Vec<u8>, Headers);

/// Parses all chunks and the trailers.
pub(super) fn chunks(bytes: &[u8], at: &mut usize) -> Result<Option<Chunked>, Ambiguous> {
    let mut body = Vec::new();
    loop {
        let Some(size) = line(bytes, at)? else {
            return Ok(None);
        };
        let is_size = (1..=16).contains(&size.len()) && size.bytes().all(|b| b.is_ascii_hexdigit());
        let Some(size) = usize::from_str_radix(&size, 16).ok().filter(|_| is_size) else {
            return bad(format!("invalid chunk size: {size:?}"));
        };
        if size == 0 {
            return Ok(fields(bytes, at)?.map(|trailers| (body, trailers)));
        }
        let rest = &bytes[*at..];
        if rest.len() < size + 2 {
            return Ok(None);
        }
        if &rest[size..size + 2] != b"\r\n" {
            return bad("a chunk without a line end");
        }
        body.extend_from_slice(&rest[..size]);
        *at += size + 2;
    }
}
