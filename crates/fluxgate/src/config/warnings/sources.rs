//! Warnings about identities and attributes that clients can choose, and about tokens.

use fluxgate_core::{KeyPart, RuleSets};
use fluxgate_http::Source;

use crate::config::filters::Filter;
use crate::config::jwt::JwtKeys;
use crate::config::sources::{Field, SourceField};

/// Returns warnings about sources of identities and attributes that clients control, with these
/// rules. Sources that the file does not name count only if the rules use them.
pub fn source_warnings(filters: &[Filter], rules: &RuleSets) -> Vec<String> {
    let mut warnings = Vec::new();
    for filter in filters {
        let name = &filter.name;
        let trusts_no_proxy = filter.trusted_proxies.is_empty();
        for source in filter.sources.fields() {
            if trusts_no_proxy
                && let Some(controlled) = client_controlled(source)
                && is_used(filter, source, rules)
            {
                let field = &source.field;
                warnings.push(format!(
                    "filter `{name}`: `{field}` comes from `{controlled}`, which every client can \
                     set, and the filter trusts no proxy: a client can change it to evade its \
                     limits; use a claim of a verified token (`jwt:sub`), or list in \
                     `trusted_proxies` the proxy that sets and strips it"
                ));
            }
        }
        let Some(jwt) = &filter.jwt else {
            continue;
        };
        let claims = filter.sources.fields().iter();
        let sources = claims.flat_map(|it| &it.sources);
        let mut claims = sources.filter_map(|source| source.claim_name());
        if claims.next().is_none() {
            warnings.push(format!(
                "filter `{name}`: `jwt` verifies tokens, but no source uses their claims, \
                 such as `identity: {{ user: \"jwt:sub\" }}`"
            ));
        }
        if let JwtKeys::JwksUrl(url) = &jwt.keys
            && !url.is_secure()
            && !url.is_loopback()
        {
            warnings.push(format!(
                "filter `{name}`: `jwks_url` uses http, so an attacker on the network can \
                 replace the keys; use https"
            ));
        }
    }
    warnings
}

/// Returns the first source that every client can set.
fn client_controlled(field: &SourceField) -> Option<&Source> {
    let mut sources = field.sources.iter();
    sources.find(|source| source.claim_name().is_none())
}

/// Returns whether the file names the source, or a rule counts by the field.
fn is_used(filter: &Filter, field: &SourceField, rules: &RuleSets) -> bool {
    if field.position.is_some() {
        return true;
    }
    let part = match field.field {
        Field::User => KeyPart::User,
        Field::ApiKey => KeyPart::ApiKey,
        // Attributes have no default source.
        Field::Attribute(_) => return true,
    };
    let set = filter.rule_set.as_ref().and_then(|name| rules.get(name));
    let rules = set.map(|set| set.rules()).unwrap_or_default();
    rules.iter().any(|rule| rule.key().contains(&part))
}
