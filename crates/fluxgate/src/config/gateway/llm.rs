//! How a route counts calls to language models.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use fluxgate_core::yaml::Node;
use fluxgate_gateway::{OnAbort, Reserve, UnknownCalls};

use crate::config::section::Section;
use crate::config::tree;

/// The fewest bytes that make a token: with more, the prompt would be bounded too low.
const BYTES_PER_TOKEN: RangeInclusive<u32> = 1..=16;
const TOKENS: RangeInclusive<u64> = 1..=1_000_000_000;

/// The memory for bodies of calls, unless configured.
const DEFAULT_BUFFER: u64 = 256 << 20;
const BUFFER: RangeInclusive<u64> = 1..=1 << 50;

/// Reads `llm` of the gateway, which applies to all routes: the memory for bodies.
pub(super) fn read_buffer(gateway: &mut Section<'_, '_>) -> u64 {
    gateway.section("llm", &["buffer"], |section| {
        section.size("buffer", BUFFER, DEFAULT_BUFFER)
    })
}

/// How a route counts calls to language models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Llm {
    /// The name of the filter that counts them, which is one of the route.
    pub rules: String,
    /// How tokens are bounded before they are known.
    pub reserve: Reserve,
    /// How requests are treated that may use tokens, but are not known calls.
    pub unknown: UnknownCalls,
    /// The cost of a call whose client disconnects before the end of the response.
    pub on_abort: OnAbort,
}

impl Llm {
    /// Reads the setting of a route with these filters, if it has one.
    pub(super) fn read(route: &mut Section<'_, '_>, filters: &[String]) -> Option<Self> {
        const ON_ABORT: [(&str, OnAbort); 2] =
            [("seen", OnAbort::Seen), ("reserved", OnAbort::Reserved)];
        const FIELDS: &[&str] = &["rules", "reserve", "unknown", "on_abort"];
        let llm = route.optional_section("llm", FIELDS, |section| {
            let Some(rules) = section.get("rules") else {
                section
                    .missing("`llm` needs `rules`, the filter of the route that counts its tokens");
                return None;
            };
            let reserve = read_reserve(section);
            let unknown = read_unknown(section, &reserve);
            let on_abort = section.one_of("on_abort", &ON_ABORT, OnAbort::default());
            let name = rules.text("`rules`", section.faults)?;
            check_filter(rules, name, ("rules", filters), section);
            section.show("rules", tree::text(name));
            Some(Self {
                rules: name.into(),
                reserve,
                unknown,
                on_abort,
            })
        });
        llm.flatten()
    }
}

/// Checks that a field of a route names one of its filters.
pub(super) fn check_filter(
    node: &Node,
    name: &str,
    (field, filters): (&str, &[String]),
    section: &mut Section<'_, '_>,
) {
    if filters.iter().any(|filter| filter == name) {
        return;
    }
    let known = match filters {
        [] => "it has none".into(),
        filters => format!("it has {}", filters.join(", ")),
    };
    let message = format!("`{field}` must be a filter of the route, not `{name}`; {known}");
    section.fault(node, message);
}

/// Reads how unknown calls are treated. By default they cost as much as a known call that states
/// no bound.
fn read_unknown(section: &mut Section<'_, '_>, reserve: &Reserve) -> UnknownCalls {
    let node = section.get("unknown");
    let text = node.and_then(|node| Some((node, node.as_text()?)));
    let Some((node, name)) = text else {
        return section.section("unknown", &["cost"], |section| {
            if section.get("cost").is_none() {
                section.missing("`unknown` needs `cost`, a number of tokens");
            }
            UnknownCalls::Cost(section.whole("cost", TOKENS, reserve.default_max_tokens))
        });
    };
    section.show("unknown", tree::plain(name));
    match name {
        "allow" => UnknownCalls::Allow,
        "deny" => UnknownCalls::Deny,
        other => {
            let message =
                format!("`unknown` must be allow, deny or {{ cost: TOKENS }}, not `{other}`");
            section.fault(node, message);
            UnknownCalls::Deny
        }
    }
}

fn read_reserve(section: &mut Section<'_, '_>) -> Reserve {
    const FIELDS: &[&str] = &["prompt_bytes_per_token", "default_max_tokens"];
    let default = Reserve::default();
    let (bytes, tokens) = (default.prompt_bytes_per_token, default.default_max_tokens);
    section.section("reserve", FIELDS, |section| Reserve {
        prompt_bytes_per_token: NonZeroU32::new(section.whole(
            "prompt_bytes_per_token",
            BYTES_PER_TOKEN,
            bytes.get(),
        ))
        .unwrap_or(bytes),
        default_max_tokens: section.whole("default_max_tokens", TOKENS, tokens),
    })
}
