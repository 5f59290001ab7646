//! What the fuzz target of the record calls.

use super::entries::DenialBlock;
use super::keys::{RecordedRule, count_field, parse_count_field};
use super::read::{parse_change, parse_row};

/// Reads a text as a field of each kind. What is read must be read again as it is written.
pub(crate) fn field(text: &str) {
    if let Some(rule) = RecordedRule::parse(text) {
        assert_eq!(rule.name(), text);
    }
    if let Some(block) = DenialBlock::parse(text) {
        let written = format!("{} {}", block.minute, block.rule.name());
        assert_eq!(DenialBlock::parse(&written), Some(block));
    }
    if let Some((at, outcome)) = parse_count_field(text) {
        let written = count_field(at, outcome).expect("its letter is known");
        assert_eq!(parse_count_field(&written), Some((at, outcome)));
    }
    if let Some(change) = parse_change(text) {
        let written = format!(
            "{}\t{}\t{}\t{}",
            change.at_ms, change.revision, change.rule_set, change.who
        );
        assert_eq!(parse_change(&written), Some(change));
    }
    if let Some(row) = parse_row("id", text) {
        let written = format!(
            "{} {} {} {}",
            row.count, row.first_ms, row.last_ms, row.text
        );
        assert_eq!(parse_row("id", &written), Some(row));
    }
}
