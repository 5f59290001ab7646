//! How a route reads calls of the Model Context Protocol.

use super::llm::check_filter;
use crate::config::section::Section;
use crate::config::tree;

/// How a route reads calls of the Model Context Protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mcp {
    /// The name of the filter that limits them, which is one of the route.
    pub filter: String,
}

impl Mcp {
    /// Reads the setting of a route with these filters, if it has one.
    pub(super) fn read(route: &mut Section<'_, '_>, filters: &[String]) -> Option<Self> {
        if route.get("llm").is_some()
            && let Some(node) = route.get("mcp")
        {
            let message = "a route has `llm` or `mcp`, not both: a body is a call of one protocol";
            route.fault(node, message);
        }
        let mcp = route.optional_section("mcp", &["filter"], |section| {
            let Some(filter) = section.get("filter") else {
                section.missing("`mcp` needs `filter`, the filter of the route that limits calls");
                return None;
            };
            let name = filter.text("`filter`", section.faults)?;
            check_filter(filter, name, ("filter", filters), section);
            section.show("filter", tree::text(name));
            Some(Self {
                filter: name.into(),
            })
        });
        mcp.flatten()
    }
}
