//! Values that several parts of the section share.

use crate::config::section::Section;

/// The largest limit of a body.
pub(super) const MAX_BODY: u64 = 1 << 50;

/// Reads the list under `methods`.
pub(super) fn read_methods(section: &mut Section<'_, '_>) -> Vec<String> {
    let mut methods = Vec::new();
    for node in section.list("methods") {
        let Some(text) = node.text("a method", section.faults) else {
            continue;
        };
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            section.fault(node, format!("`{text}` cannot be a method"));
        }
        methods.push(text.to_owned());
    }
    methods
}
