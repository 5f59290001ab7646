//! How a route counts calls to language models.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use fluxgate_core::yaml::{Faults, Node};
use fluxgate_gateway::{OnAbort, Reserve, UnknownCalls};

use crate::config::read::Section;
use crate::config::tree;

/// The fewest bytes that make a token: with more, the prompt would be bounded too low.
const BYTES_PER_TOKEN: RangeInclusive<u64> = 1..=16;
const TOKENS: RangeInclusive<u64> = 1..=1_000_000_000;

/// The memory for bodies of calls, unless configured.
const DEFAULT_BUFFER: u64 = 256 << 20;
const BUFFER: RangeInclusive<u64> = 1..=1 << 50;

const ON_ABORT_NAMES: [(&str, OnAbort); 2] =
    [("seen", OnAbort::Seen), ("reserved", OnAbort::Reserved)];

/// Reads `llm` of the gateway, which applies to all routes: the memory for bodies.
pub(super) fn read_buffer(node: Option<&Node>, faults: &mut Faults) -> u64 {
    let section = Section::read(node, "`llm`", &["buffer"], faults);
    let buffer = section.size("buffer", BUFFER, faults);
    buffer.unwrap_or(DEFAULT_BUFFER)
}

pub(super) fn show_buffer(bytes: u64) -> Node {
    tree::map([("buffer", Some(tree::size(bytes)))])
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
    /// Reads the setting of a route with these filters.
    pub(super) fn read(node: &Node, filters: &[String], faults: &mut Faults) -> Option<Self> {
        let before = faults.count();
        const FIELDS: &[&str] = &["rules", "reserve", "unknown", "on_abort"];
        let section = Section::read(node, "`llm`", FIELDS, faults);
        let Some(rules) = section.get("rules") else {
            if faults.count() == before {
                faults.add(
                    node.position,
                    "`llm` needs `rules`, the filter of the route that counts its tokens",
                );
            }
            return None;
        };
        let reserve = read_reserve(section.get("reserve"), faults);
        let unknown = read_unknown(section.get("unknown"), &reserve, faults);
        let on_abort = section.one_of("on_abort", &ON_ABORT_NAMES, faults);
        let name = rules.text("`rules`", faults)?;
        if !filters.iter().any(|filter| filter == name) {
            let known = match filters {
                [] => "it has none".into(),
                filters => format!("it has {}", filters.join(", ")),
            };
            faults.add(
                rules.position,
                format!("`rules` must be a filter of the route, not `{name}`; {known}"),
            );
        }
        Some(Self {
            rules: name.into(),
            reserve,
            unknown,
            on_abort: on_abort.unwrap_or_default(),
        })
    }

    pub(super) fn node(&self) -> Node {
        let reserve = tree::map([
            (
                "prompt_bytes_per_token",
                Some(tree::plain(self.reserve.prompt_bytes_per_token)),
            ),
            (
                "default_max_tokens",
                Some(tree::plain(self.reserve.default_max_tokens)),
            ),
        ]);
        tree::map([
            ("rules", Some(tree::text(&self.rules))),
            ("reserve", Some(reserve)),
            ("unknown", Some(show_unknown(self.unknown))),
            (
                "on_abort",
                Some(tree::name_of(&ON_ABORT_NAMES, self.on_abort)),
            ),
        ])
    }
}

/// Reads how unknown calls are treated. By default they cost as much as a known call that states
/// no bound.
fn read_unknown(node: Option<&Node>, reserve: &Reserve, faults: &mut Faults) -> UnknownCalls {
    let default = reserve.default_max_tokens;
    match node {
        None => UnknownCalls::Cost(default),
        Some(node) => match node.as_text() {
            Some("allow") => UnknownCalls::Allow,
            Some("deny") => UnknownCalls::Deny,
            Some(other) => {
                let message =
                    format!("`unknown` must be allow, deny or {{ cost: TOKENS }}, not `{other}`");
                faults.add(node.position, message);
                UnknownCalls::Deny
            }
            None => {
                let before = faults.count();
                let section = Section::read(node, "`unknown`", &["cost"], faults);
                if section.get("cost").is_none() && faults.count() == before {
                    let message = "`unknown` needs `cost`, a number of tokens";
                    faults.add(node.position, message);
                }
                let cost = section.whole("cost", TOKENS, faults);
                UnknownCalls::Cost(cost.unwrap_or(default))
            }
        },
    }
}

fn show_unknown(unknown: UnknownCalls) -> Node {
    match unknown {
        UnknownCalls::Cost(tokens) => tree::map([("cost", Some(tree::plain(tokens)))]),
        UnknownCalls::Allow => tree::plain("allow"),
        UnknownCalls::Deny => tree::plain("deny"),
    }
}

fn read_reserve(node: Option<&Node>, faults: &mut Faults) -> Reserve {
    const FIELDS: &[&str] = &["prompt_bytes_per_token", "default_max_tokens"];
    let section = Section::read(node, "`reserve`", FIELDS, faults);
    let default = Reserve::default();
    let bytes = section
        .whole("prompt_bytes_per_token", BYTES_PER_TOKEN, faults)
        .and_then(|bytes| u32::try_from(bytes).ok());
    let tokens = section.whole("default_max_tokens", TOKENS, faults);
    Reserve {
        prompt_bytes_per_token: bytes
            .and_then(NonZeroU32::new)
            .unwrap_or(default.prompt_bytes_per_token),
        default_max_tokens: tokens.unwrap_or(default.default_max_tokens),
    }
}
