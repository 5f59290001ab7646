//! How a filter verifies tokens.

use std::path::PathBuf;
use std::time::Duration;

use fluxgate_core::yaml::{Faults, Node, Position};
use fluxgate_http::{OnInvalid, Source};
use http::Uri;

use super::read::{self, Section};
use super::sources::read_source;
use super::tree;
use super::url::HttpUrl;

const DEFAULT_LEEWAY: Duration = Duration::from_secs(30);
const DEFAULT_FROM: &str = "authorization";

/// How tokens are found and verified.
#[derive(Clone, Debug)]
pub struct Jwt {
    /// Where the token is.
    pub from: Source,
    /// Where the keys come from.
    pub keys: JwtKeys,
    /// The allowed issuers. Without any, the issuer is not checked.
    pub issuers: Vec<String>,
    /// The allowed audiences. Without any, the audience is not checked.
    pub audiences: Vec<String>,
    /// The allowed difference between the clocks.
    pub leeway: Duration,
    /// What happens to a request with an invalid token.
    pub on_invalid: OnInvalid,
    /// The position of the section.
    pub position: Position,
}

/// Where the keys that verify tokens come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JwtKeys {
    /// A file with a key set.
    JwksFile(PathBuf),
    /// The address of a key set.
    JwksUrl(HttpUrl),
    /// A file with a secret.
    SecretFile(PathBuf),
}

const ON_INVALID_NAMES: [(&str, OnInvalid); 2] = [
    ("anonymous", OnInvalid::Anonymous),
    ("deny", OnInvalid::Deny),
];

impl Jwt {
    /// Reads the section. Returns `None`, with a fault, if it does not say where the keys are.
    pub(super) fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let faults_before = faults.count();
        const FIELDS: &[&str] = &[
            "from",
            "jwks_file",
            "jwks_url",
            "secret_file",
            "issuer",
            "audience",
            "leeway",
            "on_invalid",
        ];
        let section = Section::read(node, "`jwt`", FIELDS, faults);
        // A misspelled field may be the one that is missing.
        let has_unknown = faults.count() > faults_before;
        let from = section.get("from").and_then(|node| read_from(node, faults));
        let issuers = read_texts(&section, "issuer", faults);
        let audiences = read_texts(&section, "audience", faults);
        let leeway = section.short_duration("leeway", DEFAULT_LEEWAY, faults);
        let on_invalid = section.one_of("on_invalid", &ON_INVALID_NAMES, faults);
        let keys = ["jwks_file", "jwks_url", "secret_file"];
        if keys
            .into_iter()
            .filter_map(|name| section.get(name))
            .count()
            != 1
        {
            if !has_unknown {
                faults.add(
                    node.position,
                    "`jwt` needs exactly one of `jwks_file`, `jwks_url` and `secret_file`",
                );
            }
            return None;
        }
        let jwks_file = section.path("jwks_file", faults);
        let secret_file = section.path("secret_file", faults);
        let jwks_url = section
            .get("jwks_url")
            .and_then(|node| read_url(node, faults));
        Some(Self {
            from: from.unwrap_or_else(|| Source::header(DEFAULT_FROM)),
            keys: jwks_file
                .map(JwtKeys::JwksFile)
                .or(secret_file.map(JwtKeys::SecretFile))
                .or(jwks_url.map(JwtKeys::JwksUrl))?,
            issuers,
            audiences,
            leeway,
            on_invalid: on_invalid.unwrap_or_default(),
            position: node.position,
        })
    }

    pub(super) fn node(&self) -> Node {
        let texts = |texts: &[String]| match texts {
            [] => None,
            [only] => Some(tree::text(only)),
            several => Some(tree::list(several.iter().map(tree::text))),
        };
        let keys = match &self.keys {
            JwtKeys::JwksFile(path) => ("jwks_file", Some(tree::path(path))),
            JwtKeys::JwksUrl(url) => ("jwks_url", Some(tree::text(url.to_string()))),
            JwtKeys::SecretFile(path) => ("secret_file", Some(tree::path(path))),
        };
        let on_invalid = tree::name_of(&ON_INVALID_NAMES, self.on_invalid);
        tree::map([
            ("from", Some(tree::text(self.from.to_string()))),
            keys,
            ("issuer", texts(&self.issuers)),
            ("audience", texts(&self.audiences)),
            ("leeway", Some(tree::duration(self.leeway))),
            ("on_invalid", Some(on_invalid)),
        ])
    }
}

fn read_from(node: &Node, faults: &mut Faults) -> Option<Source> {
    let source = read_source(node, "`from`", faults)?;
    if source.claim_name().is_none() {
        return Some(source);
    }
    faults.add(
        node.position,
        "`from` must be header:NAME, bearer, query:NAME or cookie:NAME: claims are in the token",
    );
    None
}

/// Reads a text or a list of texts.
fn read_texts(section: &Section<'_>, name: &str, faults: &mut Faults) -> Vec<String> {
    let Some(node) = section.get(name) else {
        return Vec::new();
    };
    let what = format!("`{name}`");
    let nodes = read::one_or_list(node, &what, faults).iter();
    let texts = nodes.filter_map(|node| read::name(node, &what, faults));
    texts.map(str::to_owned).collect()
}

fn read_url(node: &Node, faults: &mut Faults) -> Option<HttpUrl> {
    let text = node.text("`jwks_url`", faults)?;
    // `HttpUrl` accepts and repairs more than an HTTP client does.
    let is_strict = text.parse::<Uri>().is_ok_and(|uri| uri.host().is_some());
    let url = HttpUrl::parse(text).and_then(|url| {
        if url.has_credentials() {
            Err("must not have a user name or password".into())
        } else if !is_strict {
            Err("must be a URL such as https://issuer.example/jwks.json".into())
        } else {
            Ok(url)
        }
    });
    url.map_err(|why| faults.add(node.position, format!("`jwks_url` {why}")))
        .ok()
}
