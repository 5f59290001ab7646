//! `RequestRateLimiter` filters.

use std::time::Duration;

use fluxgate_core::yaml::Faults;
use fluxgate_core::{Algorithm, OnMissingKey};

use super::definitions::{Arguments, Definition, PREFIXES};
use super::keys;
use crate::draft::{BandDraft, MAX_UNITS, Remark, RuleDraft, largest_capacity};
use crate::fields::parse_digits;
use crate::names::{UniqueNames, is_expressible, rule_id};
use crate::spring::Properties;

const SECOND: Duration = Duration::from_secs(1);

/// What filters have that do not say otherwise.
#[derive(Debug)]
pub(super) struct LimiterDefaults {
    denies_empty_key: bool,
    empty_key_status: String,
}

impl LimiterDefaults {
    pub(super) fn read(properties: &Properties, faults: &mut Faults) -> Self {
        let names =
            |name: &str| PREFIXES.map(|it| format!("{it}.filter.request-rate-limiter.{name}"));
        let denies = names("deny-empty-key").map(|name| properties.boolean(&name, faults));
        let status = names("empty-key-status-code").map(|name| {
            let status = properties.text(&name, faults);
            status.map(str::to_owned)
        });
        Self {
            denies_empty_key: denies.into_iter().flatten().next().unwrap_or(true),
            empty_key_status: status.into_iter().flatten().next().unwrap_or("403".into()),
        }
    }
}

/// Returns remarks on settings of all limiters that have not been read.
pub(super) fn unread(properties: &Properties) -> Vec<Remark> {
    let mut remarks = Vec::new();
    for prefix in PREFIXES {
        for name in ["redis-rate-limiter", "filter.request-rate-limiter"] {
            remarks.extend(properties.unread(&format!("{prefix}.{name}")));
        }
    }
    remarks
}

/// The bucket of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    /// The tokens that return in a second.
    replenish_rate: u64,
    burst_capacity: u64,
    /// The tokens of a request.
    requested_tokens: u64,
}

/// A filter that limits requests.
#[derive(Debug)]
pub(super) struct Limiter {
    line: usize,
    text: String,
    numbers: Option<Numbers>,
    key_resolver: Option<String>,
    denies_empty_key: bool,
    remarks: Vec<Remark>,
}

impl Limiter {
    pub(super) fn read_all<'d>(
        definitions: impl Iterator<Item = &'d Definition>,
        defaults: &LimiterDefaults,
        faults: &mut Faults,
    ) -> Vec<Self> {
        definitions
            .map(|it| Self::read(it, defaults, faults))
            .collect()
    }

    fn read(definition: &Definition, defaults: &LimiterDefaults, faults: &mut Faults) -> Self {
        let mut limiter = Self {
            line: definition.line,
            text: definition.text.clone(),
            numbers: None,
            key_resolver: None,
            denies_empty_key: defaults.denies_empty_key,
            remarks: Vec::new(),
        };
        match &definition.arguments {
            Arguments::Short(values) => limiter.read_short(values),
            Arguments::Named(arguments) => limiter.read_named(arguments, defaults, faults),
        }
        limiter
    }

    /// Reads `RequestRateLimiter=RATE,BURST,RESOLVER`. Spring Cloud Gateway accepts this form but
    /// ignores its values.
    fn read_short(&mut self, values: &[String]) {
        let number = |index: usize| values.get(index).and_then(|it| parse_digits(it));
        let (Some(rate), Some(burst)) = (number(0).filter(|it| *it > 0), number(1)) else {
            return;
        };
        self.numbers = Some(Numbers {
            replenish_rate: rate,
            burst_capacity: burst,
            requested_tokens: 1,
        });
        self.key_resolver = values.get(2).cloned();
        let text = format!(
            "Spring Cloud Gateway does not read the values of `{}`; this rule does",
            self.text
        );
        self.remarks.push(Remark::changed(self.line, text));
    }

    fn read_named(
        &mut self,
        arguments: &Properties,
        defaults: &LimiterDefaults,
        faults: &mut Faults,
    ) {
        arguments.get("name");
        let lost = |text: String| Remark::lost(self.line, text);
        if let Some(bean) = arguments.text("args.rate-limiter", faults) {
            let text = format!("the rate limiter `{bean}`: it is Java code");
            self.remarks.push(lost(text));
            self.numbers = None;
        }
        let limit = "args.redis-rate-limiter";
        if arguments.has(limit) {
            let mut number =
                |name, least| arguments.number(&format!("{limit}.{name}"), least, faults);
            let rate = number("replenishRate", 1);
            let burst = number("burstCapacity", 0);
            let requested = number("requestedTokens", 1);
            self.numbers = rate.map(|replenish_rate| Numbers {
                replenish_rate,
                burst_capacity: burst.unwrap_or(1),
                requested_tokens: requested.unwrap_or(1),
            });
        }
        let resolver = arguments.text("args.key-resolver", faults);
        self.key_resolver = resolver.map(str::to_owned);
        let denies = arguments.boolean("args.deny-empty-key", faults);
        self.denies_empty_key = denies.unwrap_or(self.denies_empty_key);
        let status = arguments.text("args.empty-key-status", faults);
        let status = status.unwrap_or(&defaults.empty_key_status);
        let can_be_empty = keys::resolve(resolver, true).on_missing_key == OnMissingKey::Deny;
        if self.denies_empty_key && can_be_empty && !is_status(status, 429, "TOO_MANY_REQUESTS") {
            let text = format!("a request without a key gets 429, not {status}");
            self.remarks.push(Remark::changed(self.line, text));
        }
        if let Some(status) = arguments.text("args.status-code", faults)
            && !is_status(status, 429, "TOO_MANY_REQUESTS")
        {
            let text = format!("`statusCode: {status}`: a denied request gets 429");
            self.remarks.push(Remark::lost(self.line, text));
        }
        self.remarks.extend(arguments.unread(""));
    }
}

fn is_status(given: &str, number: u16, name: &str) -> bool {
    given == number.to_string() || given.eq_ignore_ascii_case(name)
}

/// Returns the rules of a route's limiters. What has no rule is in the remarks.
///
/// The limiters of one route share its counters and the numbers of the last.
pub(super) fn rules(limiters: &[Limiter], id: &str, remarks: &mut Vec<Remark>) -> Vec<RuleDraft> {
    let mut ids = UniqueNames::default();
    let mut rules: Vec<RuleDraft> = Vec::new();
    let numbers = limiters.iter().rev().find_map(|limiter| limiter.numbers);
    for limiter in limiters {
        let Some(numbers) = numbers else {
            remarks.extend(limiter.remarks.iter().cloned());
            let text = format!("`{}`: its numbers are not in this file", limiter.text);
            remarks.push(Remark::lost(limiter.line, text));
            continue;
        };
        let key = keys::resolve(limiter.key_resolver.as_deref(), limiter.denies_empty_key);
        if limiter.numbers.is_some_and(|own| own != numbers) {
            let text = "the limiters of a route have the numbers of the last one";
            remarks.push(Remark::changed(limiter.line, text));
        }
        let same = rules.iter_mut().find(|rule| rule.key == [key.part.clone()]);
        if let Some(rule) = same {
            let text = "two limiters of a route with one key take their tokens from one bucket";
            rule.remarks.push(Remark::changed(limiter.line, text));
            rule.cost = rule
                .cost
                .saturating_add(numbers.requested_tokens)
                .min(MAX_UNITS);
            continue;
        }
        let mut rule = bucket(ids.unique(&rule_id(id)), numbers, limiter.line);
        if !is_expressible(id) {
            rule.name = Some(id.to_owned());
            let text = format!("the id `{id}` is kept in `name`");
            rule.remarks.push(Remark::changed(limiter.line, text));
        }
        rule.remarks.extend(limiter.remarks.iter().cloned());
        if rule.denies.is_none() {
            rule.remarks.push(Remark::changed(limiter.line, key.remark));
            rule.key = vec![key.part];
            rule.on_missing_key = key.on_missing_key;
        }
        if !rules.is_empty() {
            let text = "a request that one limiter denies is charged by none of the route";
            rule.remarks.push(Remark::changed(limiter.line, text));
        }
        rules.push(rule);
    }
    rules
}

/// Returns the rule of a bucket, without its conditions and its key.
fn bucket(id: String, numbers: Numbers, line: usize) -> RuleDraft {
    let Numbers {
        replenish_rate,
        burst_capacity,
        requested_tokens,
    } = numbers;
    if burst_capacity == 0 {
        return RuleDraft::denying(id, 429);
    }
    let mut rule = RuleDraft::new(id, Algorithm::TokenBucket);
    let refill = replenish_rate.min(MAX_UNITS);
    let capacity = burst_capacity.min(largest_capacity(refill, SECOND));
    let cost = requested_tokens.min(MAX_UNITS);
    if (refill, capacity, cost) != (replenish_rate, burst_capacity, requested_tokens) {
        let text = format!("numbers above {MAX_UNITS} are reduced to it");
        rule.remarks.push(Remark::changed(line, text));
    }
    if burst_capacity.saturating_mul(2) < replenish_rate {
        let text = format!(
            "Spring Cloud Gateway forgets a bucket of {burst_capacity} at a rate of \
             {replenish_rate} at once, and so denies nothing; this rule does"
        );
        rule.remarks.push(Remark::changed(line, text));
    }
    let mut band = BandDraft::new(capacity, SECOND);
    band.refill = (capacity != refill).then_some(refill);
    rule.bands.push(band);
    rule.cost = cost;
    rule
}
