//! The built-in upstream: it answers with a description of the request.

use fluxgate_core::json::quoted;

/// Returns the JSON that describes a request: the head as an upstream would get it, and the
/// length of its body.
pub(crate) fn describe(head: &[u8], body_length: u64) -> String {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.split("\r\n").filter(|line| !line.is_empty());
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (first.next(), first.next().unwrap_or_default());
    let lines = lines.filter_map(|line| line.split_once(": "));
    let lines = lines
        .map(|(name, value)| format!("[{},{}]", quoted(&name.to_ascii_lowercase()), quoted(value)));
    let lines: Vec<_> = lines.collect();
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, quoted(query)),
        None => (target, "null".into()),
    };
    format!(
        "{{\"method\":{},\"path\":{},\"query\":{query},\"headers\":[{}],\"body_bytes\":{body_length}}}\n",
        quoted(method.unwrap_or_default()),
        quoted(path),
        lines.join(","),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_is_described() {
        let lines: String = (0..300).map(|at| format!("X-{at}: {at}: b\r\n")).collect();
        let head = format!("POST /a?b=c HTTP/1.1\r\n{lines}X-Empty: \r\n\r\n");
        let text = describe(head.as_bytes(), 3);
        assert!(text.starts_with(
            r#"{"method":"POST","path":"/a","query":"b=c","headers":[["x-0","0: b"],"#
        ));
        assert!(text.ends_with("[\"x-299\",\"299: b\"],[\"x-empty\",\"\"]],\"body_bytes\":3}\n"));
    }
}
