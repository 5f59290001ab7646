//! Reads and parses request bodies, within limits of size and time.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use fluxgate_core::json::{whole_number, without_position};
use fluxgate_http::Problem;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use serde_json::value::RawValue;

/// The maximum size of a body.
pub(crate) const MAX_BYTES: usize = 64 * 1024;
/// How long a client may take to send a body.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the whole body. A `Content-Type` must allow JSON; it may be missing.
pub(super) async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
    read_up_to(MAX_BYTES, headers, body).await
}

/// Returns whether a body is declared as YAML.
pub(super) fn is_yaml(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .map(|value| value.as_bytes())
        .and_then(|value| value.split(|byte| *byte == b';').next());
    kind.is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(b"application/yaml"))
}

/// Reads a body like [`read`], up to another size.
pub(super) async fn read_up_to(
    max_bytes: usize,
    headers: &HeaderMap,
    body: Body,
) -> Result<Bytes, Problem> {
    check_type(headers)?;
    match tokio::time::timeout(TIMEOUT, collect(max_bytes, body)).await {
        Ok(read) => read,
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time",
        )),
    }
}

/// Collects a body. Nearly every body arrives in one frame, which is returned as it is.
async fn collect(max_bytes: usize, mut body: Body) -> Result<Bytes, Problem> {
    let (mut first, mut rest) = (Bytes::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| Problem::bad_request(format!("the body ended early: {error}")))?;
        // Trailers are ignored.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        check_size(max_bytes, first.len() + rest.len() + data.len())?;
        if first.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() {
        first
    } else {
        [&first[..], &rest].concat().into()
    })
}

/// Refuses a body that is declared as something other than JSON.
pub(super) fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    match types.find(|value| !may_be_json(value.as_bytes())) {
        None => Ok(()),
        Some(other) => {
            let other = String::from_utf8_lossy(other.as_bytes());
            Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!("`Content-Type` must be application/json, not {other}"),
            ))
        }
    }
}

/// Returns whether a body of this content type is read as JSON. Besides JSON types, these are
/// an empty type and `application/x-www-form-urlencoded`, the default of `curl -d`. An HTML
/// form can declare the latter, but percent-encodes quotes and braces, so that its body is
/// never JSON. `text/plain` is refused, because the body of such a form can be JSON.
pub(super) fn may_be_json(content_type: &[u8]) -> bool {
    let kind = content_type
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    if kind.is_empty() {
        return true;
    }
    const KNOWN: [&[u8]; 2] = [b"application/json", b"application/x-www-form-urlencoded"];
    if KNOWN.iter().any(|known| kind.eq_ignore_ascii_case(known)) {
        return true;
    }
    let (start, end) = (&b"application/"[..], &b"+json"[..]);
    let starts = kind
        .get(..start.len())
        .is_some_and(|it| it.eq_ignore_ascii_case(start));
    let rest = kind.get(start.len()..).unwrap_or_default();
    let name = rest.len().saturating_sub(end.len());
    starts && name > 0 && rest[name..].eq_ignore_ascii_case(end)
}

/// Refuses a body that is too large.
pub(super) fn check_size(max_bytes: usize, bytes: usize) -> Result<(), Problem> {
    if bytes <= max_bytes {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the body is larger than {max_bytes} bytes"),
    ))
}

/// Returns the error for a missing field.
pub(super) fn missing(name: &str) -> Problem {
    Problem::bad_request(format!("`{name}` is missing"))
}

/// Parses the `cost` of a call, if it has one.
pub(super) fn parse_cost(cost: Option<&RawValue>) -> Result<Option<u64>, Problem> {
    let error = || Problem::bad_request("`cost` must be a whole number from 0");
    let parse = |cost: &RawValue| whole_number(cost.get()).ok_or_else(error);
    cost.map(parse).transpose()
}

/// Parses a JSON object.
pub(super) fn parse<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    let text =
        std::str::from_utf8(body).map_err(|_| Problem::bad_request("the body is not UTF-8"))?;
    // serde would also accept a list.
    if !text.trim_ascii_start().starts_with('{') {
        return Err(Problem::bad_request("the body is not a JSON object"));
    }
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let what = without_position(&error);
        let problem = Problem::bad_request(format!("{what} (line {line}, column {column})"));
        match field_of::<T>(text) {
            Some(field) => problem.within(field),
            None => problem,
        }
    })
}

/// Returns the path of the invalid field. Tracking paths takes time, so this parses again
/// after an error.
fn field_of<'a, T: serde::Deserialize<'a>>(text: &'a str) -> Option<String> {
    let mut json = serde_json::Deserializer::from_str(text);
    let error = serde_path_to_error::deserialize::<_, T>(&mut json).err()?;
    let path = error.path().to_string();
    // Neither the whole body nor an unreadable part is a field.
    if path == "." || path.ends_with('?') {
        return None;
    }
    // Some messages name their field already; then the path to it is enough.
    let (parent, last) = path.rsplit_once('.').unwrap_or(("", &path));
    let names_itself = error
        .inner()
        .to_string()
        .starts_with(&format!("`{last}`: "));
    let named = if names_itself { parent } else { &path };
    (!named.is_empty()).then(|| format!("`{named}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_what_curl_declares_may_be_json() {
        for accepted in [
            "",
            "application/json",
            "Application/JSON ; charset=utf-8",
            "application/merge-patch+json",
            "application/x-www-form-urlencoded",
        ] {
            assert!(may_be_json(accepted.as_bytes()), "{accepted}");
        }
        for refused in [
            "text/plain",
            "text/json",
            "application/+json",
            "application/jsonp",
            "application/json, text/plain",
            "multipart/form-data; boundary=application/json",
            "json",
        ] {
            assert!(!may_be_json(refused.as_bytes()), "{refused}");
        }
    }
}
