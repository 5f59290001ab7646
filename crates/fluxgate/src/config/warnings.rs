//! Warnings about settings that are valid, but probably not intended.

use std::sync::Arc;

use fluxgate_core::{ActiveRule, Band, KeyPart, RuleMode, RuleSet, RuleSets, Tokens};
use fluxgate_gateway::{MAX_CALL_BODY, MAX_MCP_BODY, UnknownCalls};
use fluxgate_http::Source;

use super::checked::Config;
use super::filters::Filter;
use super::gateway::{Llm, Route};
use super::jwt::JwtKeys;
use super::rules::Rules;
use super::sources::{Field, FieldSources};

/// Returns warnings about settings that are valid, but probably not intended.
pub fn config_warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |warning: String| warnings.push(warning);
    if config.listen.is_empty() {
        warn("`listen` names no listener: the service accepts no connections".into());
    }
    if config.hashes_without_secret() {
        warn(
            "`keys.hash_secret_file` is missing: anyone who can read the store can confirm \
             guesses of hashed identities"
                .into(),
        );
    }
    warn_about_tokens(config, &mut warn);
    warn_about_unread_calls(config, &mut warn);
    for filter in &config.filters {
        let name = &filter.name;
        if filter.rule_set.is_none() {
            warn(format!(
                "filter `{name}` has no `rule_set`: everything passes"
            ));
        }
    }
    if config.listen.gateway.is_none() && !config.gateway.routes.is_empty() {
        warn("`gateway.routes` has no effect: `listen.gateway` is missing".into());
    }
    warnings
}

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

/// Returns the first source that every client can set. What a call names is what it does, so a
/// client that changes it makes another call.
fn client_controlled(field: &FieldSources) -> Option<&Source> {
    let mut sources = field.sources.iter();
    sources.find(|source| source.claim_name().is_none() && !source.is_of_mcp_call())
}

/// Returns whether the file names the source, or a rule counts by the field.
fn is_used(filter: &Filter, field: &FieldSources, rules: &RuleSets) -> bool {
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

/// Warns of sources in calls that no route reads.
fn warn_about_unread_calls(config: &Config, warn: &mut impl FnMut(String)) {
    for filter in &config.filters {
        let name = &filter.name;
        if config.gateway.reads_calls_for(name) {
            continue;
        }
        for field in filter.sources.fields() {
            let mut sources = field.sources.iter();
            if let Some(source) = sources.find(|source| source.is_of_mcp_call()) {
                warn(format!(
                    "filter `{name}`: `{}` comes from `{source}`, but no route has \
                     `mcp: {{ filter: {name} }}`, so it is always absent",
                    field.field
                ));
            }
        }
    }
}

/// Warns of routes that count no tokens, or that deny calls without a bound. Rules
/// from another source are not known yet, so they are not checked.
fn warn_about_tokens(config: &Config, warn: &mut impl FnMut(String)) {
    warn_about_buffer(config, warn);
    for route in &config.gateway.routes {
        match &route.llm {
            Some(llm) => warn_about_calls(config, route, llm, warn),
            None => warn_about_uncounted(config, route, warn),
        }
    }
}

/// Warns of a buffer that is smaller than one body may be.
fn warn_about_buffer(config: &Config, warn: &mut impl FnMut(String)) {
    let gateway = &config.gateway;
    let bound = gateway.limits.body_bytes.map(u64::from);
    let largest = gateway.routes.iter().filter_map(|route| {
        let llm = route.llm.as_ref().map(|_| bound.unwrap_or(MAX_CALL_BODY));
        let mcp = route.mcp.as_ref();
        llm.or(mcp.map(|_| bound.map_or(MAX_MCP_BODY, |bound| bound.min(MAX_MCP_BODY))))
    });
    let largest = largest.max().unwrap_or(0);
    let buffer = gateway.llm_buffer;
    if buffer < largest {
        warn(format!(
            "`gateway.llm.buffer` has {buffer} bytes, but a body may have {largest}: larger \
             bodies than the buffer are always answered with 503; raise it, or lower \
             `limits.body_bytes`"
        ));
    }
}

fn warn_about_calls(config: &Config, route: &Route, llm: &Llm, warn: &mut impl FnMut(String)) {
    let (id, name) = (&route.id, &llm.rules);
    let Some(set) = config
        .filter(name)
        .and_then(|filter| rules_of(config, filter))
    else {
        return;
    };
    if !set.rules().iter().any(|rule| rule.tokens().is_some()) {
        warn(format!(
            "route `{id}` has `llm`, but no rule of filter `{name}` counts tokens, as with \
             `cost: \"llm:total_tokens\"`"
        ));
    }
    let reserved = llm.reserve.default_max_tokens;
    for rule in set.rules() {
        if let Some(band) = band_below(reserved, rule) {
            warn(format!(
                "route `{id}`: calls without `max_tokens` are always denied: they reserve \
                 {reserved} tokens (`default_max_tokens`), but band `{}` of rule `{}` has a \
                 capacity of {}",
                band.id(),
                rule.id(),
                band.capacity()
            ));
        } else if let UnknownCalls::Cost(tokens) = llm.unknown
            && let Some(band) = band_below_unknown(tokens, rule)
        {
            warn(format!(
                "route `{id}`: POST requests that are no known calls are always denied: they \
                 cost {tokens} tokens (`unknown`), but band `{}` of rule `{}` has a capacity \
                 of {}",
                band.id(),
                rule.id(),
                band.capacity()
            ));
        }
    }
}

/// Warns of filters whose rules count tokens, although no route counts them.
fn warn_about_uncounted(config: &Config, route: &Route, warn: &mut impl FnMut(String)) {
    let is_counted = |name: &str| {
        let mut calls = config
            .gateway
            .routes
            .iter()
            .filter_map(|it| it.llm.as_ref());
        calls.any(|llm| llm.rules == name)
    };
    for name in route.filters.iter().filter(|name| !is_counted(name)) {
        let rule = config.filter(name).and_then(|filter| {
            let mut rules = rules_of(config, filter)?.rules().iter();
            rules.find(|rule| rule.tokens().is_some_and(|it| !sets_tokens(filter, it)))
        });
        if let Some(rule) = rule {
            warn(format!(
                "route `{}` has no `llm`, so rule `{}` of filter `{name}` counts each request \
                 as 1, and not its tokens",
                route.id,
                rule.id()
            ));
        }
    }
}

/// Returns the rules of a filter, if they are part of the config.
fn rules_of<'c>(config: &'c Config, filter: &Filter) -> Option<&'c RuleSet> {
    match &config.rules {
        Rules::Inline(sets) => sets.get(filter.rule_set.as_ref()?).map(Arc::as_ref),
        _ => None,
    }
}

/// Returns whether a filter sets the number of tokens itself.
fn sets_tokens(filter: &Filter, tokens: Tokens) -> bool {
    let mut attributes = filter.sources.attributes();
    attributes.any(|(name, _)| name == tokens.attribute())
}

/// Returns a band that always denies a completion of this many tokens, if there is one.
fn band_below(reserved: u64, rule: &ActiveRule) -> Option<&Band> {
    let counts_completion = matches!(rule.tokens(), Some(Tokens::Total | Tokens::Completion));
    if !counts_completion || rule.clamps() || rule.mode() != RuleMode::Enforce {
        return None;
    }
    narrower(rule, reserved)
}

/// Returns a band that always denies an unknown call of this many tokens, if there is one.
fn band_below_unknown(tokens: u64, rule: &ActiveRule) -> Option<&Band> {
    let is_counted = rule.tokens().is_some() && rule.mode() == RuleMode::Enforce;
    is_counted.then(|| narrower(rule, tokens)).flatten()
}

fn narrower(rule: &ActiveRule, tokens: u64) -> Option<&Band> {
    rule.bands().iter().find(|band| band.capacity() < tokens)
}
