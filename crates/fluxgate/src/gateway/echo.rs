//! The upstream that is built in: it answers with what it was asked.

use std::pin::Pin;

use fluxgate_core::json::quoted;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Response};
use http_body::Body;

use super::activity::Activity;
use super::answer_body::AnswerBody;
use super::request_body::RequestBody;
use super::trouble::Trouble;

/// Reads the whole body, keeping nothing of it, and tells what was asked.
pub(super) async fn answer(
    parts: &Parts,
    mut body: RequestBody,
    activity: &Activity,
) -> Result<Response<AnswerBody>, Trouble> {
    let mut length: u64 = 0;
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let data = frame.ok().and_then(|frame| frame.into_data().ok());
        match data {
            Some(data) => length += u64::try_from(data.len()).unwrap_or(u64::MAX),
            None => return Err(broken_off(activity)),
        }
    }
    let mut response = Response::new(AnswerBody::whole(describe(parts, length)));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    Ok(response)
}

/// Why the body of a request was broken off.
pub(super) fn broken_off(activity: &Activity) -> Trouble {
    match activity.broken() {
        Some(Trouble::TooLarge(most)) => Trouble::TooLarge(*most),
        Some(Trouble::BodyTimeout) => Trouble::BodyTimeout,
        _ => Trouble::BodyBroken,
    }
}

fn describe(parts: &Parts, length: u64) -> String {
    let lines = parts.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes());
        format!("[{},{}]", quoted(name.as_str()), quoted(&value))
    });
    let lines: Vec<_> = lines.collect();
    let query = parts.uri.query().map_or_else(|| "null".into(), quoted);
    format!(
        "{{\"method\":{},\"path\":{},\"query\":{query},\"headers\":[{}],\"body_bytes\":{length}}}\n",
        quoted(parts.method.as_str()),
        quoted(parts.uri.path()),
        lines.join(","),
    )
}
