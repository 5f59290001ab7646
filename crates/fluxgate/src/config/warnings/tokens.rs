//! Warnings about routes and rules that count the tokens of language models.

use std::sync::Arc;

use fluxgate_core::{ActiveRule, Band, RuleMode, RuleSet, Tokens};
use fluxgate_gateway::{MAX_CALL_BODY, UnknownCalls};

use crate::config::checked::Config;
use crate::config::filters::Filter;
use crate::config::gateway::{Llm, Route};
use crate::config::rules::Rules;

/// Warns of routes that count no tokens, or that deny calls without a bound. Rules
/// from another source are not known yet, so they are not checked.
pub(super) fn warn_about_tokens(config: &Config, warn: &mut impl FnMut(String)) {
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
    let largest = gateway.limits.body_bytes.map_or(MAX_CALL_BODY, u64::from);
    let buffer = gateway.llm_buffer;
    if buffer < largest && gateway.routes.iter().any(|route| route.llm.is_some()) {
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
