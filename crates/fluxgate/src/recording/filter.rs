//! Which recorded requests a call wants.

use std::borrow::Cow;

use fluxgate_core::{KeyPart, Outcome, RequestContext, RuleAction, RuleSets};
use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::identities::Identities;
use crate::telemetry::{MAX_RECENT, RecentRequest};

/// Which recorded requests are wanted, and how many of them. Instances send it to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestFilter {
    /// The last ones, at most so many.
    pub(crate) count: usize,
    pub(crate) rule_set: Option<String>,
    /// The reported rule.
    pub(crate) rule: Option<String>,
    /// `PART=VALUE` texts, which the request must have all.
    pub(crate) identity: Vec<String>,
    /// The handle of the identity that the reported rule counted.
    pub(crate) handle: Option<String>,
    /// The name of the outcome.
    pub(crate) outcome: Option<String>,
}

impl Default for RequestFilter {
    /// Wants all requests.
    fn default() -> Self {
        Self {
            count: MAX_RECENT,
            rule_set: None,
            rule: None,
            identity: Vec::new(),
            handle: None,
            outcome: None,
        }
    }
}

impl RequestFilter {
    /// Returns the last requests of this instance that pass, as they are encoded, the oldest first.
    pub(super) fn select(&self, engine: &Engine) -> Vec<Vec<u8>> {
        let count = self.count.min(MAX_RECENT);
        if self.wants_all() {
            return engine.telemetry().recent_encoded(count);
        }
        let identities = engine.identities();
        // It was valid where it came from.
        let Ok(wanted) = identities.filter(&self.identity) else {
            return Vec::new();
        };
        let rules = engine.rules().unwrap_or_default();
        let has_identity = |request: &RecentRequest| {
            let (parts, values) = parts_of(request);
            let values: Vec<_> = values.iter().map(|value| &**value).collect();
            identities.matches_values(&wanted, &parts, &values)
        };
        let passes = |encoded: &Vec<u8>| {
            RecentRequest::decode(encoded).is_some_and(|request| {
                self.is_of_rule(&request)
                    && (self.identity.is_empty() || has_identity(&request))
                    && (self.handle.is_none()
                        || self.handle == handle_of(&request, &rules, identities))
            })
        };
        let all = engine.telemetry().recent_encoded(MAX_RECENT);
        let mut selected: Vec<_> = all.into_iter().rev().filter(passes).take(count).collect();
        selected.reverse();
        selected
    }

    fn wants_all(&self) -> bool {
        let all = Self {
            count: self.count,
            ..Self::default()
        };
        *self == all
    }

    /// Returns whether a request has the wanted rule and outcome.
    fn is_of_rule(&self, request: &RecentRequest) -> bool {
        let is =
            |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        let outcome = request.outcome.map(Outcome::name);
        is(&self.rule_set, &request.rule_set)
            && is(&self.rule, &request.rule)
            && (self.outcome.is_none() || self.outcome.as_deref() == outcome)
    }
}

/// Returns the handle of the identity that the reported rule counted.
pub(crate) fn handle_of(
    request: &RecentRequest,
    rules: &RuleSets,
    identities: &Identities,
) -> Option<String> {
    let (rule_set, rule) = (request.rule_set.as_deref()?, request.rule.as_deref()?);
    let set = rules.get(rule_set)?;
    let known = set
        .rule(rule)
        .filter(|rule| rule.action() == RuleAction::Limit)?;
    let identity = set.identity_of(known, &context_of(request))?;
    let identity = identities.stored(rule_set, rule, &identity);
    identities.handle(rule_set, rule, &identity)
}

/// Returns the context of a recorded request.
pub(crate) fn context_of(request: &RecentRequest) -> RequestContext<'_> {
    let pairs = |pairs: &'_ [(String, String)]| -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.clone().into(), value.clone().into()))
            .collect()
    };
    let mut context = RequestContext::builder()
        .headers(pairs(&request.headers))
        .attributes(pairs(&request.attributes));
    if let Some(ip) = request.ip {
        context = context.ip(ip);
    }
    if let Some(user) = &request.user {
        context = context.user(user);
    }
    if let Some(api_key) = &request.api_key {
        context = context.api_key(api_key);
    }
    if let Some(method) = &request.method {
        context = context.method(method);
    }
    if let Some(path) = &request.path {
        context = context.path(path);
    }
    context.build()
}

/// Returns all that a rule could count in a request.
fn parts_of(request: &RecentRequest) -> (Vec<KeyPart>, Vec<Cow<'_, str>>) {
    let named = [
        (KeyPart::User, &request.user),
        (KeyPart::ApiKey, &request.api_key),
        (KeyPart::Method, &request.method),
        (KeyPart::Path, &request.path),
    ];
    let named = named.into_iter();
    let named = named.filter_map(|(part, value)| Some((part, value.as_deref()?.into())));
    let ip = request.ip.map(|ip| (KeyPart::Ip, ip.to_string().into()));
    let headers = request.headers.iter().map(|(name, value)| {
        (
            KeyPart::Header(name.to_ascii_lowercase().into()),
            value.as_str().into(),
        )
    });
    let attributes = request.attributes.iter().map(|(name, value)| {
        (
            KeyPart::Attribute(name.as_str().into()),
            value.as_str().into(),
        )
    });
    let all = named.chain(ip).chain(headers).chain(attributes);
    all.filter(|(_, value): &(KeyPart, Cow<'_, str>)| !value.is_empty())
        .unzip()
}
