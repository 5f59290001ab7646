//! Lists of path patterns.

use std::sync::Arc;

use fluxgate_core::path::{PathSet, Pattern};
use fluxgate_core::rules::values;
use fluxgate_core::yaml::{Faults, Node};

use super::section::Section;
use super::tree;

/// A list of path patterns, as written and compiled.
#[derive(Clone, Debug, Default)]
pub struct PathPatterns {
    patterns: Vec<String>,
    set: Arc<PathSet>,
}

impl PathPatterns {
    /// Returns the compiled patterns.
    pub fn set(&self) -> &Arc<PathSet> {
        &self.set
    }

    /// Returns the patterns as written.
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }

    /// Returns the pattern that matches every path.
    pub(crate) fn all() -> Self {
        const ALL: &str = "/**";
        Self {
            patterns: vec![ALL.into()],
            set: Arc::new(PathSet::new(Pattern::parse(ALL).into_iter().collect())),
        }
    }

    /// Reads one or more patterns, if they are given.
    pub(super) fn read(section: &mut Section<'_, '_>, name: &'static str) -> Option<Self> {
        section.get(name)?;
        Some(Self::compile(section.list(name), section.faults))
    }

    /// Compiles patterns; there may be none.
    pub(super) fn compile(nodes: &[Node], faults: &mut Faults) -> Self {
        let patterns: Vec<_> = nodes
            .iter()
            .filter_map(|node| values::pattern(node, faults))
            .collect();
        let texts = nodes.iter().filter_map(Node::as_text);
        Self {
            patterns: texts.map(Into::into).collect(),
            set: Arc::new(PathSet::new(patterns)),
        }
    }

    pub(super) fn node(&self) -> Option<Node> {
        (!self.patterns.is_empty()).then(|| tree::texts(&self.patterns))
    }
}
