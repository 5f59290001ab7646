//! What the head of a call says of its body.

use fluxgate_http::RequestHead;

use crate::error::GatewayError;

/// Checks that a server reads the body of a call as the gateway does: as JSON in UTF-8,
/// without an encoding. In `charset=utf-7`, for one, `max_tokens` can be written so that only
/// the server finds it.
///
/// Without `Content-Type`, servers read UTF-8 or refuse the call.
///
/// # Errors
/// If it has an encoding, or if `Content-Type` says otherwise or can be read in two ways.
pub(super) fn check_body_head(head: &impl RequestHead) -> Result<(), GatewayError> {
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
