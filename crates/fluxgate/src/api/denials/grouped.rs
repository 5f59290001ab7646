//! Denials summed by rule and identity: who was denied most.

use std::collections::HashMap;

use crate::history::DenialRow;

/// Which rows of a list are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) offset: usize,
    pub(super) count: usize,
}

/// Returns one row for each rule and identity, those with the most denials first. Its outcome, band and request are the newest, which come
/// first.
pub(super) fn sum(rows: Vec<DenialRow>) -> Vec<DenialRow> {
    let mut places = HashMap::new();
    let mut sums: Vec<DenialRow> = Vec::new();
    for row in rows {
        let place = *places
            .entry((row.rule.clone(), row.identity.clone()))
            .or_insert(sums.len());
        match sums.get_mut(place) {
            Some(known) => {
                known.count += row.count;
                known.first_ms = known.first_ms.min(row.first_ms);
                known.last_ms = known.last_ms.max(row.last_ms);
            }
            None => sums.push(row),
        }
    }
    sums.sort_by_key(|sum| std::cmp::Reverse((sum.count, sum.last_ms)));
    sums
}

#[cfg(test)]
mod tests {
    use fluxgate_redis::record::RecordedRule;
    use serde_json::json;

    use super::*;
    use crate::history::DeniedId;

    fn row(rule: &str, id: u8, first_ms: u64, count: u64, path: &str) -> DenialRow {
        let text = json!({ "o": "denied", "p": path }).to_string();
        DenialRow {
            rule: RecordedRule {
                rule_set: "api".into(),
                rule: rule.into(),
            },
            identity: DeniedId::Long([id; 16]),
            first_ms,
            last_ms: first_ms + 10,
            count,
            detail: serde_json::from_str(&text).unwrap(),
        }
    }

    #[test]
    fn rows_are_summed_by_rule_and_identity() {
        let rows = vec![
            row("a", 1, 200, 2, "/new"),
            row("a", 2, 190, 4, "/other"),
            row("b", 1, 180, 1, "/b"),
            row("a", 1, 100, 3, "/old"),
        ];
        let sums = sum(rows);
        let shown: Vec<_> = sums
            .iter()
            .map(|row| {
                let path = row.detail.path.as_deref().unwrap();
                (&*row.rule.rule, row.count, row.first_ms, row.last_ms, path)
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("a", 5, 100, 210, "/new"),
                ("a", 4, 190, 200, "/other"),
                ("b", 1, 180, 190, "/b"),
            ]
        );
    }
}
