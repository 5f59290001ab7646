//! The built-in upstream: it answers with a description of the request.

use fluxgate_core::json::quoted;

/// Returns the JSON that describes a request: the head as an upstream would get it, and the
/// length of its body.
pub(crate) fn describe(head: &[u8], body_length: u64) -> String {
    let mut headers = [httparse::EMPTY_HEADER; 256];
    let mut request = httparse::Request::new(&mut headers);
    // The gateway wrote it, so it can be parsed.
    let _ = request.parse(head);
    let lines = request.headers.iter().map(|header| {
        let name = quoted(&header.name.to_ascii_lowercase());
        let value = quoted(&String::from_utf8_lossy(header.value));
        format!("[{name},{value}]")
    });
    let lines: Vec<_> = lines.collect();
    let target = request.path.unwrap_or_default();
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, quoted(query)),
        None => (target, "null".into()),
    };
    format!(
        "{{\"method\":{},\"path\":{},\"query\":{query},\"headers\":[{}],\"body_bytes\":{body_length}}}\n",
        quoted(request.method.unwrap_or_default()),
        quoted(path),
        lines.join(","),
    )
}
