//! Converts Envoy's descriptors to request contexts. The domain is the name of the rule set
//! (`service.rs`).

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use fluxgate_core::{AdHocCheck, AdHocKey, RequestContext};

use super::messages::{RateLimitDescriptor, RateLimitRequest};
use super::own_limit::OwnLimit;

/// How many descriptors a call may have.
const MAX_DESCRIPTORS: usize = 1_000;
/// The entry that contains the address of the client.
const REMOTE_ADDRESS: &[u8] = b"remote_address";

/// Why a call cannot be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadRequest {
    #[error("`domain` is empty: it must name the rule set")]
    NoDomain,
    #[error("`descriptors` is empty: there is nothing to decide")]
    NoDescriptors,
    #[error("`descriptors` has more than {MAX_DESCRIPTORS} entries")]
    TooManyDescriptors,
    #[error("`descriptors[{0}].entries` is empty")]
    NoEntries(usize),
    #[error("`descriptors[{descriptor}].entries[{entry}].key` is empty")]
    NoKey { descriptor: usize, entry: usize },
    #[error("`descriptors[{0}].limit.unit` is unknown: it must be SECOND to YEAR, or WEEK")]
    UnknownUnit(usize),
    #[error("`descriptors[{0}].limit` is not supported by this service: write it as a rule")]
    OwnLimit(usize),
    #[error("`descriptors[{0}].is_negative_hits` is not supported: use /v1/refund over HTTP")]
    NegativeHits(usize),
}

/// The descriptors of a call, in the form in which they are decided.
#[derive(Debug, Default)]
pub(super) struct Descriptors<'a> {
    /// Those that the rules decide.
    pub(super) contexts: Vec<RequestContext<'a>>,
    /// Those that have a limit of their own.
    pub(super) own: Vec<AdHocCheck>,
    /// The own limit of each descriptor, in the order of the call, if it has one.
    pub(super) limits: Vec<Option<OwnLimit>>,
}

/// Reads the descriptors of a call. Rules by the name `domain` decide those without a limit.
pub(super) fn descriptors<'a>(
    domain: &str,
    request: &'a RateLimitRequest,
) -> Result<Descriptors<'a>, BadRequest> {
    check_call(&request.domain, &request.descriptors)?;
    let cost = cost_of(request);
    let mut read = Descriptors::default();
    for (index, descriptor) in request.descriptors.iter().enumerate() {
        let context = context(index, descriptor, cost)?;
        let limit = match descriptor.limit {
            Some(limit) => Some(OwnLimit::read(limit).ok_or(BadRequest::UnknownUnit(index))?),
            None => None,
        };
        match limit {
            Some(limit) => read.own.push(AdHocCheck {
                key: key(domain, descriptor),
                band: limit.band(),
                cost: descriptor.hits_addend.or(cost).unwrap_or(1),
            }),
            None => read.contexts.push(context),
        }
        read.limits.push(limit);
    }
    Ok(read)
}

/// Returns the context of each descriptor of a call, which must have no limit of its own.
pub(super) fn contexts(request: &RateLimitRequest) -> Result<Vec<RequestContext<'_>>, BadRequest> {
    contexts_of(&request.domain, &request.descriptors, cost_of(request))
}

/// Returns the context of each of these descriptors, which must have no limit of their own; `cost`
/// is that of the call.
pub(super) fn contexts_of<'r>(
    domain: &[u8],
    descriptors: &'r [RateLimitDescriptor],
    cost: Option<u64>,
) -> Result<Vec<RequestContext<'r>>, BadRequest> {
    check_call(domain, descriptors)?;
    let descriptors = descriptors.iter().enumerate();
    let contexts = descriptors.map(|(index, descriptor)| match descriptor.limit {
        Some(_) => Err(BadRequest::OwnLimit(index)),
        None => context(index, descriptor, cost),
    });
    contexts.collect()
}

/// Returns the cost of a call. On the wire, 0 is the same as none.
fn cost_of(request: &RateLimitRequest) -> Option<u64> {
    Some(u64::from(request.hits_addend)).filter(|&cost| cost > 0)
}

fn check_call(domain: &[u8], descriptors: &[RateLimitDescriptor]) -> Result<(), BadRequest> {
    if domain.is_empty() {
        return Err(BadRequest::NoDomain);
    }
    match descriptors.len() {
        0 => Err(BadRequest::NoDescriptors),
        1..=MAX_DESCRIPTORS => Ok(()),
        _ => Err(BadRequest::TooManyDescriptors),
    }
}

/// Returns what the own limit of a descriptor counts.
fn key(domain: &str, descriptor: &RateLimitDescriptor) -> AdHocKey {
    let entries = descriptor.entries.iter();
    AdHocKey::descriptor(domain, entries.map(|entry| (&*entry.key, &*entry.value)))
}

/// Returns the context of a descriptor; `cost` is that of the call.
fn context(
    index: usize,
    descriptor: &RateLimitDescriptor,
    cost: Option<u64>,
) -> Result<RequestContext<'_>, BadRequest> {
    if descriptor.entries.is_empty() {
        return Err(BadRequest::NoEntries(index));
    }
    // An error, because charging for a refund would be worse.
    if descriptor.is_negative_hits {
        return Err(BadRequest::NegativeHits(index));
    }
    let mut attributes = Vec::with_capacity(descriptor.entries.len());
    let mut ip = None;
    for (place, entry) in descriptor.entries.iter().enumerate() {
        if entry.key.is_empty() {
            return Err(BadRequest::NoKey {
                descriptor: index,
                entry: place,
            });
        }
        if entry.key == REMOTE_ADDRESS {
            ip = address(&entry.value);
        }
        attributes.push((Cow::from(&entry.key[..]), Cow::from(&entry.value[..])));
    }
    let mut context = RequestContext::builder()
        .attributes_bytes(attributes)
        .whole_keys_only();
    if let Some(ip) = ip {
        context = context.ip(ip);
    }
    if let Some(cost) = descriptor.hits_addend.or(cost) {
        context = context.cost(cost);
    }
    Ok(context.build())
}

/// Parses an address with or without a port.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?;
    let ip = text.parse().ok();
    ip.or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;

    proptest! {
        #[test]
        fn random_bytes_give_an_error_or_a_context_for_each_descriptor(
            bytes in prop::collection::vec(prop_oneof![0..0x30_u8, any::<u8>()], 0..200),
        ) {
            if let Ok(request) = RateLimitRequest::decode(&*bytes)
                && let Ok(read) = descriptors("d", &request)
            {
                let count = request.descriptors.len();
                prop_assert_eq!(read.contexts.len() + read.own.len(), count);
                prop_assert_eq!(read.limits.len(), count);
            }
        }
    }

    #[test]
    fn addresses_may_have_a_port() {
        let v4: IpAddr = [10, 0, 0, 1].into();
        for text in ["10.0.0.1", "10.0.0.1:80"] {
            assert_eq!(address(text.as_bytes()), Some(v4), "{text}");
        }
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        for text in ["2001:db8::1", "[2001:db8::1]:80"] {
            assert_eq!(address(text.as_bytes()), Some(v6), "{text}");
        }
        for text in ["", "ann", "10.0.0.1/24", "10.0.0.1:", "10.0.0.1:x"] {
            assert_eq!(address(text.as_bytes()), None, "{text}");
        }
    }
}
