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

impl Framing {
    /// Reads a body from `at`, and moves `at` behind it. Without framing, it is empty. Returns
    /// `None` if the body is incomplete.
    pub(super) fn read(
        self,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<Option<BodyAndTrailers>, Ambiguous> {
        let length = match self {
            Self::Chunked => return chunks(bytes, at),
            Self::Length(length) => length,
            Self::Unspecified => 0,
        };
        let Some(body) = bytes.get(*at..at.saturating_add(length)) else {
            return Ok(None);
        };
        *at += length;
        Ok(Some((body.to_vec(), Vec::new())))
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A body and its trailers.
type BodyAndTrailers = (Vec<u8>, Headers);

/// Parses all chunks and the trailers.
fn chunks(bytes: &[u8], at: &mut usize) -> Result<Option<BodyAndTrailers>, Ambiguous> {
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
