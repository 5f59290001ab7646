//! Recognizes calls to language models.

use std::future::Future;

use bytes::Bytes;
use fluxgate_core::internals::RequestPath;
use fluxgate_llm::Api;
use fluxgate_tower::internals::RequestHead;

use crate::error::GatewayError;

/// These methods make no calls: they list, fetch and delete what calls have stored.
const OTHER_METHODS: [&str; 4] = ["GET", "HEAD", "OPTIONS", "DELETE"];

/// The body of a request, for routes that read it before it is forwarded.
pub(crate) trait ReadBody: Send {
    /// Reads the whole body, which may have `max` bytes.
    fn read(&mut self, max: u64) -> impl Future<Output = Result<Bytes, GatewayError>> + Send;
}

/// Returns the API of a language model that a request calls, if any.
///
/// # Errors
/// If the two forms of its path belong to different APIs, so that it cannot be counted, or if
/// its body is encoded.
pub(crate) fn api_of(
    head: &impl RequestHead,
    path: &RequestPath<'_>,
) -> Result<Option<Api>, GatewayError> {
    if OTHER_METHODS.contains(&head.method()) {
        return Ok(None);
    }
    let raw = Api::of_path(path.raw());
    let api = match path.other().and_then(Api::of_path) {
        Some(other) if raw.is_some_and(|raw| raw != other) => {
            let reason = "the two forms of the path belong to different APIs";
            return Err(GatewayError::Ambiguous(reason));
        }
        other => other.or(raw),
    };
    let is_plain = |line: &[u8]| line.trim_ascii().eq_ignore_ascii_case(b"identity");
    if api.is_some() && !head.header_lines("content-encoding").all(is_plain) {
        return Err(GatewayError::EncodedCall);
    }
    Ok(api)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(method: &str, path: &str, encoding: Option<&str>) -> Result<Option<Api>, u16> {
        let mut request = http::Request::builder().method(method).uri(path);
        if let Some(encoding) = encoding {
            request = request.header("Content-Encoding", encoding);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let path = RequestPath::read(parts.uri.path()).unwrap();
        api_of(&parts, &path).map_err(|error| error.status().as_u16())
    }

    #[test]
    fn either_form_of_the_path_makes_a_call() {
        for (path, expected) in [
            ("/v1/chat/completions", Ok(Some(Api::ChatCompletions))),
            ("/v1/chat%2Fcompletions", Ok(Some(Api::ChatCompletions))),
            ("/v1/chat/completions;x", Ok(Some(Api::ChatCompletions))),
            ("/v1/chat/%63ompletions", Ok(Some(Api::ChatCompletions))),
            ("/v1/chat;x/completions", Err(400)),
            ("/v1/models", Ok(None)),
        ] {
            assert_eq!(api("POST", path, None), expected, "{path}");
            assert_eq!(api("post", path, None), expected, "{path}");
            assert_eq!(api("GET", path, None), Ok(None), "{path}");
        }
    }

    #[test]
    fn an_encoded_body_is_refused() {
        let chat = "/v1/chat/completions";
        assert_eq!(api("POST", chat, Some("gzip")), Err(415));
        let known = Ok(Some(Api::ChatCompletions));
        assert_eq!(api("POST", chat, Some("Identity")), known);
        assert_eq!(api("POST", "/v1/files", Some("gzip")), Ok(None));
    }
}
