//! The console: a web page that is part of the program.
//!
//! The files in `console` are served as they are, but for comments and indentation of scripts; there is
//! no build step.

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

/// The start of a type in a comment.
const TYPE: &str = "/** @";

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
    plain: Bytes,
    compressed: Bytes,
}

static BY_PATH: LazyLock<HashMap<&str, File>> = LazyLock::new(|| {
    let files = FILES.iter();
    files
        .map(|(path, text)| (*path, File::new(path, text)))
        .collect()
});

impl File {
    fn new(path: &str, text: &str) -> Self {
        let text = if path.ends_with(".js") {
            without_comments(text)
        } else if path.ends_with(".css") {
            without_spaces(without_comments(text))
        } else {
            text.to_owned()
        };
        let etag = HeaderValue::from_str(&format!("\"{}\"", etag_of(&text)));
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory does not fail.
        let compressed = encoder
            .write_all(text.as_bytes())
            .and_then(|()| encoder.finish());
        Self {
            kind: kind_of(path),
            // Hexadecimal digits are valid in a header.
            etag: etag.unwrap_or(HeaderValue::from_static("\"\"")),
            plain: text.into(),
            compressed: compressed.unwrap_or_default().into(),
        }
    }
}

/// Returns a script or a style without comments that stand on lines of their own, types, indentation
/// and the ends of lines that need none. Lines inside of a template literal stay as they are, but
/// none may begin inside of another one and span lines. It is no parser: a script that it would change in
/// another way fails the tests.
fn without_comments(script: &str) -> String {
    let mut sent = String::with_capacity(script.len());
    let (mut in_comment, mut in_template) = (false, false);
    for line in script.lines() {
        if in_template {
            push_line(&mut sent, line);
            in_template = !toggles_template(line);
            continue;
        }
        let mut code = line.trim();
        if in_comment {
            let Some((_, behind)) = code.split_once("*/") else {
                continue;
            };
            in_comment = false;
            code = behind.trim();
        }
        if code.starts_with("//") {
            continue;
        }
        if code.starts_with("/*") {
            let behind = code.split_once("*/").map(|(_, behind)| behind);
            in_comment = behind.is_none();
            if behind.is_none_or(str::is_empty) {
                continue;
            }
        }
        let code = without_types(code);
        in_template = toggles_template(&code);
        // What is behind `//` would go on in the next line.
        let needs_end =
            in_template || code.contains("//") || !code.ends_with([',', ';', '(', '[', '{']);
        if needs_end {
            push_line(&mut sent, &code);
        } else {
            sent.push_str(&code);
        }
    }
    sent
}

/// Returns a style without spaces that separate nothing. None is within a string in our styles.
fn without_spaces(style: String) -> String {
    let pairs = [
        (" {", "{"),
        ("{ ", "{"),
        (" }", "}"),
        (": ", ":"),
        ("; ", ";"),
        (", ", ","),
        (";}", "}"),
        ("}\n", "}"),
    ];
    let shorten = |style: String, (spaced, short)| style.replace(spaced, short);
    pairs.into_iter().fold(style, shorten)
}

fn push_line(sent: &mut String, line: &str) {
    if !line.is_empty() {
        sent.push_str(line);
        sent.push('\n');
    }
}

/// Returns whether a template literal begins on a line and does not end there, or the reverse.
fn toggles_template(line: &str) -> bool {
    line.matches('`').count() % 2 == 1
}

fn without_types(line: &str) -> String {
    let mut rest = line;
    let mut code = String::with_capacity(line.len());
    while let Some((before, comment)) = rest.split_once(TYPE)
        && let Some((_, behind)) = comment.split_once("*/")
    {
        code.push_str(before);
        rest = behind.trim_start();
    }
    code.push_str(rest);
    code.trim().to_owned()
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
            Body::from(file.plain.clone())
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
        let size: usize = BY_PATH.values().map(|file| file.plain.len()).sum();
        assert!(size < 300_000, "{size}");
    }

    #[test]
    fn code_stays_and_comments_go() {
        let script = "\
// A view.

/** @import { A } from \"./a.js\" */
/**
 * Returns a list. `b` is
 * @param {A} b
 */
export function list(b) {
  // Why.
  const all = /** @type {A[]} */ ([]);
  for (const each of b) all.push(each); // kept
  const path = \"/api/**\", other = \"/x/*/y\";
  /** @type {A} */ (all[0]).run(/** @param {A} c */ (c) => c);
  return `# Not a comment: ${path}
  // indented
`;
}
";
        let expected = "\
export function list(b) {const all = ([]);for (const each of b) all.push(each); // kept
const path = \"/api/**\", other = \"/x/*/y\";(all[0]).run((c) => c);return `# Not a comment: ${path}
  // indented
`;
}
";
        assert_eq!(without_comments(script), expected);
    }

    #[test]
    fn styles_have_the_spaces_that_they_need() {
        let style = ".a > :is(b, c):hover {\n  margin: calc(1px + 2px) 0; content: \"x \";\n}\n";
        let expected = ".a > :is(b,c):hover{margin:calc(1px + 2px) 0;content:\"x \"}";
        assert_eq!(without_spaces(without_comments(style)), expected);
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
