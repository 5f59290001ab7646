//! How a filter verifies tokens.

use std::path::PathBuf;
use std::time::Duration;

use fluxgate_http::{OnInvalid, Source};

use super::section::{self, Section};
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

impl Jwt {
    /// Reads the section of a filter, if it has one. Returns `None`, with a fault, if it does not
    /// say where the keys are.
    pub(super) fn read(filter: &mut Section<'_, '_>) -> Option<Self> {
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
        const ON_INVALID: [(&str, OnInvalid); 2] = [
            ("anonymous", OnInvalid::Anonymous),
            ("deny", OnInvalid::Deny),
        ];
        let jwt = filter.optional_section("jwt", FIELDS, |section| {
            let from = read_from(section);
            let issuers = read_texts(section, "issuer");
            let audiences = read_texts(section, "audience");
            let leeway = section.short_duration("leeway", DEFAULT_LEEWAY);
            let on_invalid = section.one_of("on_invalid", &ON_INVALID, OnInvalid::default());
            let keys = ["jwks_file", "jwks_url", "secret_file"];
            if keys.iter().filter_map(|name| section.get(name)).count() != 1 {
                let message =
                    "`jwt` needs exactly one of `jwks_file`, `jwks_url` and `secret_file`";
                section.missing(message);
                return None;
            }
            let jwks_file = section.path("jwks_file").map(JwtKeys::JwksFile);
            let secret_file = section.path("secret_file").map(JwtKeys::SecretFile);
            let jwks_url = section.parsed("jwks_url", parse_url);
            Some(Self {
                from,
                keys: jwks_file
                    .or(secret_file)
                    .or(jwks_url.map(JwtKeys::JwksUrl))?,
                issuers,
                audiences,
                leeway,
                on_invalid,
            })
        });
        jwt.flatten()
    }
}

fn read_from(section: &mut Section<'_, '_>) -> Source {
    let given = section.get("from").and_then(|node| {
        let source = read_source(node, "`from`", section.faults)?;
        let reason = match source.claim_name() {
            Some(_) => "claims are in the token",
            None if source.is_of_mcp_call() => "a call is read after the token",
            None => return Some(source),
        };
        let message =
            format!("`from` must be header:NAME, bearer, query:NAME or cookie:NAME: {reason}");
        section.fault(node, message);
        None
    });
    let source = given.unwrap_or_else(|| Source::header(DEFAULT_FROM));
    section.show("from", tree::text(source.to_string()));
    source
}

/// Reads a text or a list of texts.
fn read_texts(section: &mut Section<'_, '_>, name: &'static str) -> Vec<String> {
    let Some(node) = section.get(name) else {
        return Vec::new();
    };
    let what = format!("`{name}`");
    let nodes = section::one_or_list(node, &what, section.faults).iter();
    let texts: Vec<_> = nodes
        .filter_map(|node| section::name(node, &what, section.faults))
        .map(str::to_owned)
        .collect();
    section.show(name, tree::one_or_list(&texts));
    texts
}

fn parse_url(text: &str) -> Result<HttpUrl, String> {
    HttpUrl::parse_strict(text, "https://issuer.example/jwks.json")
}
