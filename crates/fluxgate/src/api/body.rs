//! What a client sends, within bounds.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use fluxgate_core::json::without_position;
use http::StatusCode;
use http_body::Body;
use http_body_util::BodyExt;

use crate::http::Problem;

/// How large a body may be.
const MAX_BYTES: usize = 64 * 1024;
/// How long a client may take to send it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The whole body.
pub(super) async fn read<B>(body: B) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<axum::BoxError>,
{
    match tokio::time::timeout(TIMEOUT, collect(body)).await {
        Ok(read) => read,
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not come in time",
        )),
    }
}

/// Nearly every body comes in one piece, which is then taken as it is.
async fn collect<B>(body: B) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<axum::BoxError>,
{
    let mut body = pin!(body);
    let (mut first, mut rest) = (Bytes::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let error: axum::BoxError = error.into();
            Problem::bad_request(format!("the body ended early: {error}"))
        })?;
        // Trailers say nothing that would matter here.
        let Ok(piece) = frame.into_data() else {
            continue;
        };
        check_size(first.len() + rest.len() + piece.len())?;
        match first.is_empty() {
            true => first = piece,
            false => rest.extend_from_slice(&piece),
        }
    }
    Ok(match rest.is_empty() {
        true => first,
        false => [&first[..], &rest].concat().into(),
    })
}

/// Whether a body of so many bytes is taken.
pub(super) fn check_size(bytes: usize) -> Result<(), Problem> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the body is larger than {MAX_BYTES} bytes"),
    ))
}

/// Reads JSON, which must be an object.
pub(super) fn parse<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    let text =
        std::str::from_utf8(body).map_err(|_| Problem::bad_request("the body is not UTF-8"))?;
    // A list would do for serde as well.
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

/// The field that is wrong. To follow the way there takes time, so it is done
/// only once something is known to be wrong.
fn field_of<'a, T: serde::Deserialize<'a>>(text: &'a str) -> Option<String> {
    let mut json = serde_json::Deserializer::from_str(text);
    let error = serde_path_to_error::deserialize::<_, T>(&mut json).err()?;
    let path = error.path().to_string();
    // Neither the whole nor what cannot be read is a field.
    if path == "." || path.ends_with('?') {
        return None;
    }
    // Some name their field themselves; then the way to them is enough.
    let (way, last) = path.rsplit_once('.').unwrap_or(("", &path));
    let names_itself = error
        .inner()
        .to_string()
        .starts_with(&format!("`{last}`: "));
    let named = if names_itself { way } else { &path };
    (!named.is_empty()).then(|| format!("`{named}`"))
}
