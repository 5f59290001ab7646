//! Recognizes calls to language models.

use std::future::Future;
use std::sync::Arc;

use fluxgate_core::path::RequestPath;
use fluxgate_http::RequestHead;
use fluxgate_llm::Api;

use super::body_buffer::{BodyBuffer, BufferedBody};
use crate::error::GatewayError;

/// These methods make no calls: they list, fetch and delete what calls have stored. All others
/// count as POST, which some servers take them for, and so do these with a body: servers that
/// look only at the path take it for a call.
const OTHER_METHODS: [&str; 4] = ["GET", "HEAD", "OPTIONS", "DELETE"];

/// The body of a request, for routes that read it before it is forwarded.
pub(crate) trait ReadBody: Send {
    /// Bounds the body by the limit of its route, now that the route is known.
    fn limit(&mut self, max: Option<u64>);

    /// Returns whether all of the body has arrived, so that reading it waits for nothing.
    fn has_arrived(&mut self) -> impl Future<Output = bool> + Send;

    /// Reads the whole body, which may have `max` bytes, into memory of `buffer`.
    fn read(
        &mut self,
        max: u64,
        buffer: &Arc<BodyBuffer>,
    ) -> impl Future<Output = Result<BufferedBody, GatewayError>> + Send;
}

/// What a request on a route for language models is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// A call whose tokens can be counted.
    Known(Api),
    /// It may use tokens, but it is not known how many.
    Unknown,
    /// It uses no tokens.
    NoCall,
}

impl CallKind {
    /// Returns what a request is, which may have a body, or upgrade its connection to another
    /// protocol.
    ///
    /// # Errors
    /// If the forms of its path belong to different APIs, or if servers could read its body
    /// otherwise than the gateway: then it cannot be counted.
    pub(crate) fn of(
        head: &impl RequestHead,
        path: &RequestPath<'_>,
        has_body: bool,
        upgrades: bool,
    ) -> Result<Self, GatewayError> {
        if OTHER_METHODS.contains(&head.method()) && !has_body {
            // A connection that is upgraded, such as a WebSocket, may carry any calls. Those at
            // the path of an API are not upgraded.
            let carries_calls = upgrades && !path.either(|path| Api::of_path(path).is_some());
            return Ok(if carries_calls {
                Self::Unknown
            } else {
                Self::NoCall
            });
        }
        let mut apis = path.forms().filter_map(Api::of_path);
        let Some(api) = apis.next() else {
            return Ok(Self::Unknown);
        };
        if apis.any(|other| other != api) {
            let reason = "the forms of the path belong to different APIs";
            return Err(GatewayError::Ambiguous(reason));
        }
        check_body_head(head)?;
        Ok(Self::Known(api))
    }
}

/// Checks that a server reads the body of a call as the gateway does: as JSON in UTF-8,
/// without an encoding. In `charset=utf-7`, for one, `max_tokens` can be written so that only
/// the server finds it.
///
/// Without `Content-Type`, servers read UTF-8 or refuse the call.
///
/// # Errors
/// If it has an encoding, or if `Content-Type` says otherwise or can be read in two ways.
pub(crate) fn check_body_head(head: &impl RequestHead) -> Result<(), GatewayError> {
    let is_plain = |line: &[u8]| line.trim_ascii().eq_ignore_ascii_case(b"identity");
    if !head.header_lines("content-encoding").all(is_plain) {
        return Err(GatewayError::EncodedCall);
    }
    let mut types = head.header_lines("content-type");
    match (types.next(), types.next()) {
        (None, _) => Ok(()),
        (Some(one), None) if is_utf8_json(one) => Ok(()),
        _ => Err(GatewayError::NotJsonCall),
    }
}

/// Returns whether every server takes this type for JSON in UTF-8: `application/json` or
/// another of its kind, with simple parameters and at most one `charset`.
///
/// Continued and encoded parameters (`charset*`, RFC 2231), comments, escapes and lists are
/// refused, because servers differ in whether they know them.
fn is_utf8_json(value: &[u8]) -> bool {
    let Ok(value) = std::str::from_utf8(value) else {
        return false;
    };
    let value = value.to_ascii_lowercase();
    let mut parts = value.split(';').map(|part| part.trim_matches([' ', '\t']));
    let is_json = parts.next().is_some_and(|media| {
        let subtype = media.strip_prefix("application/");
        subtype.is_some_and(|it| is_token(it) && (it == "json" || it.ends_with("+json")))
    });
    let mut charsets = 0;
    let is_simple = parts.filter(|part| !part.is_empty()).all(|part| {
        let Some((name, value)) = part.split_once('=') else {
            return false;
        };
        let quoted = value.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
        let value = quoted.unwrap_or(value);
        let is_charset = name == "charset";
        charsets += usize::from(is_charset);
        let is_known = !is_charset || matches!(value, "utf-8" | "utf8");
        is_known && is_token(name) && !name.contains('*') && is_token(value)
    });
    // Some servers search for the word.
    is_json && is_simple && charsets <= 1 && value.matches("charset").count() == charsets
}

/// Returns whether a text is a token of RFC 9110.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(fluxgate_http::server::is_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(method: &str, path: &str, header: Option<(&str, &str)>) -> Result<CallKind, u16> {
        let mut request = http::Request::builder().method(method).uri(path);
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let path = RequestPath::read(parts.uri.path()).unwrap();
        let has_body = !OTHER_METHODS.contains(&method);
        CallKind::of(&parts, &path, has_body, false).map_err(|error| error.status().as_u16())
    }

    const CHAT: CallKind = CallKind::Known(Api::ChatCompletions);

    #[test]
    fn either_form_of_the_path_makes_a_call() {
        for (path, expected) in [
            ("/v1/chat/completions", Ok(CHAT)),
            ("/v1/chat%2Fcompletions", Ok(CHAT)),
            ("/v1/chat/completions;x", Ok(CHAT)),
            ("/v1/chat/%63ompletions", Ok(CHAT)),
            ("/v1/chat;x/completions", Err(400)),
            // Some servers take the first segment for a host.
            ("//host/chat/completions", Ok(CHAT)),
            ("//host/v1/chat/completions/", Ok(CHAT)),
            ("//host/chat/%63ompletions", Ok(CHAT)),
            ("//chat/completions", Err(400)),
            ("//host%2Fchat/completions", Err(400)),
            ("/v1/models", Ok(CallKind::Unknown)),
            ("/v1/messages/batches", Ok(CallKind::Unknown)),
        ] {
            for method in ["POST", "post", "PUT", "PATCH", "QUERY"] {
                assert_eq!(kind(method, path, None), expected, "{path}");
            }
            for method in OTHER_METHODS {
                assert_eq!(kind(method, path, None), Ok(CallKind::NoCall), "{path}");
            }
        }
    }

    #[test]
    fn a_body_that_servers_read_otherwise_is_refused() {
        let chat = "/v1/chat/completions";
        for (name, value) in [
            ("Content-Encoding", "gzip"),
            ("Content-Encoding", "identity, gzip"),
            ("Content-Encoding", ""),
            ("Content-Type", "application/json; charset=utf-7"),
            ("Content-Type", "text/plain"),
        ] {
            assert_eq!(kind("POST", chat, Some((name, value))), Err(415), "{value}");
            let unknown = kind("POST", "/v1/files", Some((name, value)));
            assert_eq!(unknown, Ok(CallKind::Unknown));
        }
        let plain = Some(("Content-Encoding", "Identity"));
        assert_eq!(kind("POST", chat, plain), Ok(CHAT));
    }

    #[test]
    fn a_body_makes_a_call_of_any_method() {
        let (head, ()) = http::Request::new(()).into_parts();
        assert_eq!(head.method, "GET");
        for (path, expected) in [
            ("/v1/chat/completions", CHAT),
            ("/v1/models", CallKind::Unknown),
        ] {
            let path = RequestPath::read(path).unwrap();
            let kind = CallKind::of(&head, &path, true, false);
            assert_eq!(kind.unwrap(), expected);
        }
    }

    #[test]
    fn an_upgrade_may_carry_calls() {
        let (head, ()) = http::Request::new(()).into_parts();
        for (path, expected) in [
            ("/v1/realtime", CallKind::Unknown),
            ("/v1/responses", CallKind::NoCall),
        ] {
            let path = RequestPath::read(path).unwrap();
            let kind = CallKind::of(&head, &path, false, true);
            assert_eq!(kind.unwrap(), expected);
        }
    }

    #[test]
    fn only_simple_types_of_json_in_utf8_are_accepted() {
        for good in [
            "application/json",
            "Application/JSON",
            "application/json;",
            "application/json; charset=utf-8",
            "application/json;charset=UTF-8",
            "application/json ;\tcharset=\"utf-8\"",
            "application/json; charset=utf8; profile=\"x\"",
            "application/vnd.api+json; version=1",
        ] {
            assert!(is_utf8_json(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            "json",
            "application/",
            "application/jsonp",
            "application/x-ndjson",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "text/plain",
            "text/json",
            "*/*",
            "application/json; charset=utf-7",
            "application/json; charset=UTF-16LE",
            "application/json; charset=\"utf-7\"",
            "application/json; charset=utf-8; charset=utf-7",
            "application/json; charset=utf-7; charset=utf-8",
            "application/json; charset=utf-8, application/json; charset=utf-7",
            "application/json, application/json; charset=utf-7",
            "application/json; charset*=utf-8''utf-7",
            "application/json; charset*0=utf; charset*1=-7",
            "application/json; charset",
            "application/json; charset=",
            "application/json; charset = utf-8",
            "application/json; charset=utf-8(x)",
            "application/json; charset='utf-8'",
            "application/json; charset=\"utf\\-7\"",
            "application/json; a=\"; charset=utf-7\"",
            "application/json; a=\"x;charset=utf-7",
            "application/json; x-charset=utf-7",
            "application/json; a=charset",
            "application/json charset=utf-7",
            "application/json\u{a0}; charset=utf-8",
            "application/json; charset=utf-8\u{e9}",
        ] {
            assert!(!is_utf8_json(bad.as_bytes()), "{bad}");
        }
        assert!(!is_utf8_json(b"application/json; a=\xff"));
    }
}
