//! What the fuzz target of the record calls.

use std::time::Duration;

use fluxgate_redis::record::{RecordedDenial, RecordedRule};

use super::denial_query::DenialCursor;
use super::denials::{DenialDetail, DenialRows};
use super::denied_id::DeniedId;

/// The rows that are kept of a minute.
const MOST: usize = 3;

/// Reads each line as an id of an identity, as a cursor, as a detail, and as a row with its count, its
/// first and its last time. Adds the rows to one minute.
pub(crate) fn rows(text: &str) {
    let rule = RecordedRule {
        rule_set: "s".into(),
        rule: "r".into(),
    };
    let mut rows = DenialRows::new(MOST, MOST);
    let mut total = 0_u64;
    for line in text.lines() {
        if let Some(id) = DeniedId::parse(line) {
            assert_eq!(DeniedId::parse(&id.to_text()), Some(id));
        }
        if let Some(cursor) = DenialCursor::parse(line) {
            assert_eq!(DenialCursor::parse(&cursor.to_text()), Some(cursor));
        }
        if let Ok(detail) = serde_json::from_str::<DenialDetail>(line) {
            let written = serde_json::to_string(&detail).expect("texts have a form in JSON");
            let again: DenialDetail = serde_json::from_str(&written).expect("it was written");
            assert_eq!(again, detail);
        }
        if let Some(row) = read_row(line) {
            total = total.saturating_add(row.count);
            rows.add(1, &rule, row, Duration::ZERO);
            rows.prune();
        }
    }
    assert!(rows.len() <= MOST);
    let blocks = rows.blocks(0..u64::MAX).map(|block| rows.block(&block));
    let known = blocks.fold(0_u64, |sum, (rows, dropped)| {
        let counts = rows.iter().map(|row| row.count);
        counts.fold(sum.saturating_add(dropped), u64::saturating_add)
    });
    assert_eq!(known, total, "rows and what was dropped are all denials");
}

fn read_row(line: &str) -> Option<RecordedDenial> {
    let mut parts = line.splitn(4, ' ');
    let mut number = || parts.next()?.parse().ok();
    let (count, first_ms, last_ms) = (number()?, number()?, number()?);
    Some(RecordedDenial {
        id: parts.next()?.to_owned(),
        count,
        first_ms,
        last_ms,
        text: String::new(),
    })
}
