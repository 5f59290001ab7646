//! How a route counts calls to language models.

use std::num::NonZeroU32;

use fluxgate_core::internals::yaml::{Faults, Node};
use fluxgate_gateway::Reserve;

use crate::config::{read, tree};

/// The fewest bytes that make a token: with more, the prompt would be bounded too low.
const BYTES_PER_TOKEN: (u64, u64) = (1, 16);
const MAX_TOKENS: (u64, u64) = (1, 1_000_000_000);

/// How a route counts calls to language models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Llm {
    /// The name of the filter that counts them, which is one of the route.
    pub rules: String,
    /// How tokens are bounded before they are known.
    pub reserve: Reserve,
}

impl Llm {
    /// Reads the setting of a route with these filters.
    pub(super) fn read(node: &Node, filters: &[String], faults: &mut Faults) -> Option<Self> {
        let before = faults.count();
        let [rules, reserve] = node.fields("`llm`", ["rules", "reserve"], faults);
        let Some(rules) = rules else {
            if faults.count() == before {
                faults.add(
                    node.position,
                    "`llm` needs `rules`, the filter of the route that counts its tokens",
                );
            }
            return None;
        };
        let reserve = read_reserve(reserve, faults);
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
        ])
    }
}

fn read_reserve(node: Option<&Node>, faults: &mut Faults) -> Reserve {
    let names = ["prompt_bytes_per_token", "default_max_tokens"];
    let [bytes, tokens] = node.map_or([None; 2], |node| node.fields("`reserve`", names, faults));
    let default = Reserve::default();
    let bytes = read::whole(
        bytes,
        "`prompt_bytes_per_token`",
        BYTES_PER_TOKEN,
        default.prompt_bytes_per_token.get().into(),
        faults,
    );
    let bytes = u32::try_from(bytes).ok().and_then(NonZeroU32::new);
    Reserve {
        prompt_bytes_per_token: bytes.unwrap_or(default.prompt_bytes_per_token),
        default_max_tokens: read::whole(
            tokens,
            "`default_max_tokens`",
            MAX_TOKENS,
            default.default_max_tokens,
            faults,
        ),
    }
}
