//! The console: a web page that is part of the program.
//!
//! The files in `console` are served as they are; there is no build step.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::LazyLock;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Redirect, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use fluxgate_http::Problem;
use fluxgate_redis::etag_of;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode};

/// Nothing is loaded from elsewhere, nothing is inline, and no page can frame it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        [$(($path, include_str!(concat!("console/", $path)))),*]
    };
}

/// Every file of the page.
const FILES: &[(&str, &str)] = &files![
    "api.js",
    "charts.js",
    "clock.js",
    "components.js",
    "demo.js",
    "dom.js",
    "events.css",
    "events.js",
    "events/happened.js",
    "events/item.js",
    "fleet.js",
    "format.js",
    "health.js",
    "icon.svg",
    "identities.css",
    "identities.js",
    "identities/bands.js",
    "identities/browse.js",
    "identities/customer.js",
    "identities/denial_log.js",
    "identities/download.js",
    "identities/explain.js",
    "identities/overrides.js",
    "identities/parts.js",
    "identities/raise.js",
    "identities/requests.js",
    "identities/rule_card.js",
    "identities/subjects.js",
    "identities/verdict.js",
    "index.html",
    "instances.js",
    "lab.css",
    "lab.js",
    "lab/chart.js",
    "lab/drawing.js",
    "lab/settings.js",
    "lab/simulation.js",
    "live.js",
    "main.js",
    "overview.css",
    "overview.js",
    "overview/by_rule.js",
    "overview/decisions.js",
    "overview/first.js",
    "overview/fleet_strip.js",
    "overview/history.js",
    "overview/limited.js",
    "overview/row_list.js",
    "overview/running_out.js",
    "polling.js",
    "rules.css",
    "rules.js",
    "rules/code.js",
    "rules/diff.js",
    "rules/document.js",
    "rules/editor.js",
    "rules/events.js",
    "rules/form.js",
    "rules/form_bands.js",
    "rules/last_change.js",
    "rules/list.js",
    "rules/pressure.js",
    "rules/row_actions.js",
    "rules/set_actions.js",
    "rules/store.js",
    "rules/trial.js",
    "rules/words.js",
    "rules/workbench.js",
    "rules/yaml.js",
    "stream.js",
    "style.css",
    "theme.js",
];

/// A file as it is sent.
struct File {
    kind: HeaderValue,
    etag: HeaderValue,
    plain: &'static str,
    compressed: Bytes,
}

static BY_PATH: LazyLock<HashMap<&str, File>> = LazyLock::new(|| {
    let files = FILES.iter();
    files
        .map(|(path, text)| (*path, File::new(path, text)))
        .collect()
});

impl File {
    fn new(path: &str, text: &'static str) -> Self {
        let etag = HeaderValue::from_str(&format!("\"{}\"", etag_of(text)));
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory does not fail.
        let compressed = encoder
            .write_all(text.as_bytes())
            .and_then(|()| encoder.finish());
        Self {
            kind: kind_of(path),
            // Hexadecimal digits are valid in a header.
            etag: etag.unwrap_or(HeaderValue::from_static("\"\"")),
            plain: text,
            compressed: compressed.unwrap_or_default().into(),
        }
    }
}

fn kind_of(path: &str) -> HeaderValue {
    let (_, extension) = path.rsplit_once('.').unwrap_or_default();
    HeaderValue::from_static(match extension {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        _ => "image/svg+xml",
    })
}

/// Sends a browser from the root to the console.
pub(crate) async fn redirect() -> Redirect {
    Redirect::temporary("/console/")
}

/// Serves a file of the console.
pub(crate) async fn serve(request: Request) -> Response {
    let path = request.uri().path();
    let name = match path.strip_prefix("/console/") {
        Some("") => "index.html",
        Some(name) => name,
        None => return redirect().await.into_response(),
    };
    let Some(file) = BY_PATH.get(name) else {
        let detail = format!("there is nothing at {path}");
        return Problem::new(StatusCode::NOT_FOUND, detail).into_response();
    };
    let headers = request.headers();
    let is_known = contains(headers, IF_NONE_MATCH.as_str(), file.etag.as_bytes());
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Response::new(Body::empty())
    };
    let answer = response.headers_mut();
    if !is_known {
        answer.insert(CONTENT_TYPE, file.kind.clone());
    }
    answer.insert(ETAG, file.etag.clone());
    // A new version of the program has new files.
    answer.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer.insert(VARY, HeaderValue::from_static("accept-encoding"));
    answer.insert(CONTENT_SECURITY_POLICY, POLICY);
    answer.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if !is_known {
        let takes_gzip = takes_gzip(headers);
        if takes_gzip {
            answer.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        *response.body_mut() = if takes_gzip {
            Body::from(file.compressed.clone())
        } else {
            Body::from(file.plain)
        };
    }
    response
}

/// Returns whether a client accepts compressed responses.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    contains(headers, ACCEPT_ENCODING.as_str(), b"gzip")
}

/// Returns whether a list in a header has an item, unless its quality is 0.
fn contains(headers: &HeaderMap, name: &str, item: &[u8]) -> bool {
    let values = headers.get_all(name).iter();
    let mut items = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    items.any(|known| {
        let mut parts = known.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let known = parts.next().unwrap_or_default();
        let is_refused =
            parts.any(|part| matches!(part, b"q=0" | b"q=0.0" | b"q=0.00" | b"q=0.000"));
        known.strip_prefix(b"W/").unwrap_or(known) == item && !is_refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page is small enough to be complete at once, also over a slow connection.
    #[test]
    fn the_page_is_less_than_300_kb() {
        let size: usize = FILES.iter().map(|(_, text)| text.len()).sum();
        assert!(size < 300_000, "{size}");
    }

    #[test]
    fn every_file_of_the_directory_is_served() {
        fn add(dir: &std::path::Path, root: &std::path::Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    add(&path, root, found);
                } else {
                    found.push(path.strip_prefix(root).unwrap().display().to_string());
                }
            }
        }
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/console");
        let mut found = Vec::new();
        add(&root, &root, &mut found);
        found.sort();
        let mut served: Vec<_> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        served.sort();
        assert_eq!(served, found);
    }

    #[test]
    fn an_encoding_with_quality_0_is_refused() {
        let takes_gzip = |accepted| {
            let headers =
                HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(accepted))]);
            contains(&headers, "accept-encoding", b"gzip")
        };
        assert!(takes_gzip("br, gzip;q=0.5") && takes_gzip("gzip"));
        assert!(!takes_gzip("gzip; q=0") && !takes_gzip("br") && !takes_gzip("xgzip"));
    }
}
