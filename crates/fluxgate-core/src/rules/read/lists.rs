//! The lists of a rule set.

use crate::rules::lists::List;
use crate::yaml::{Faults, Node};

/// Reads the mapping of names to lists of values. A value that is not a text is empty.
pub(super) fn read(node: &Node, faults: &mut Faults) -> Vec<List> {
    let mut lists = Vec::new();
    for (name, _, values) in node.map("`lists`", faults) {
        let nodes = values.list(&format!("list `{name}`"), faults).iter();
        let texts = nodes
            .map(|node| node.text("a value of a list", faults))
            .map(|text| text.unwrap_or_default().into());
        lists.push(List::new(name, texts.collect()));
    }
    lists
}
