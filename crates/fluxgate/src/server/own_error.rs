//! What the HTTP library answers by itself to heads that it cannot read.
//!
//! It says no more than the status. Clients get the same as with every other
//! error instead.

use http::StatusCode;

use crate::api::Problem;

/// The status that the library answers with, if these bytes are all of such an
/// answer.
pub(crate) fn own_error(bytes: &[u8]) -> Option<StatusCode> {
    let rest = bytes.strip_prefix(b"HTTP/1.1 4")?;
    let is_bare = rest.ends_with(b"\r\n\r\n") && rest.len() < 160;
    let text = std::str::from_utf8(rest).ok().filter(|_| is_bare)?;
    let mut lines = text.split("\r\n").skip(1).filter(|line| !line.is_empty());
    let is_known = |line: &str| {
        line == "connection: close" || line == "content-length: 0" || line.starts_with("date: ")
    };
    let code = 400 + text.get(..2)?.parse::<u16>().ok()?;
    lines
        .all(is_known)
        .then(|| StatusCode::from_u16(code).ok())?
}

/// The whole of an answer after which the connection ends.
pub(crate) fn last_answer(problem: &Problem, request_id: &str) -> Vec<u8> {
    let status = problem.status();
    let mut body = Vec::new();
    problem.write(&mut body);
    let head = format!(
        "HTTP/1.1 {} {}\r\ncontent-type: application/problem+json\r\nx-request-id: {request_id}\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        body.len()
    );
    let mut answer = head.into_bytes();
    answer.append(&mut body);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bare_answers_are_taken_for_the_librarys() {
        let bare = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\
                    content-length: 0\r\ndate: Sun, 15 Nov 2026 12:11:23 GMT\r\n\r\n";
        assert_eq!(own_error(bare.as_bytes()).map(|it| it.as_u16()), Some(431));
        for other in [
            bare.replace("HTTP/1.1 4", "HTTP/1.1 5"),
            bare.replace("date:", "x-request-id: 1\r\ndate:"),
            bare.replace("content-length: 0", "content-length: 1"),
            format!("{bare}x"),
            bare.trim_end().into(),
        ] {
            assert_eq!(own_error(other.as_bytes()), None, "{other}");
        }
    }
}
