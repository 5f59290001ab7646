//! Reads the record, summed over all instances.

use std::collections::{BTreeMap, HashMap};

use fluxgate_core::StoreError;
use redis::Cmd;

use super::batch::{Call, drop_call, index_call};
use super::client::{Record, confirmed_block};
use super::entries::{DenialBlock, RecordedChange, RecordedCount, RecordedDenial};
use super::keys::{RecordedRule, STEPS_IN_KEY, Step, parse_count_field};

impl Record {
    /// Returns the rules that have counts.
    pub async fn rules(&self) -> Result<Vec<RecordedRule>, StoreError> {
        let keys = [self.keys.rules()];
        let names: Vec<Vec<String>> = self.read_all(&keys, |key| Cmd::zrange(key, 0, -1)).await?;
        let names = names.iter().flatten();
        Ok(names.filter_map(|name| RecordedRule::parse(name)).collect())
    }

    /// Returns the counts of these rules from the step `from` to the one before `to`.
    pub async fn counts(
        &self,
        step: Step,
        from: u64,
        to: u64,
        rules: &[RecordedRule],
    ) -> Result<Vec<RecordedCount>, StoreError> {
        let blocks = from / STEPS_IN_KEY..to.div_ceil(STEPS_IN_KEY);
        let wanted: Vec<_> = blocks
            .flat_map(|block| rules.iter().map(move |rule| (block, rule)))
            .collect();
        let keys: Vec<_> = wanted
            .iter()
            .map(|(block, rule)| self.keys.counts(step, *block, rule))
            .collect();
        let hashes: Vec<HashMap<String, String>> = self.read_all(&keys, hash_of).await?;
        let mut counts = Vec::new();
        for ((block, rule), hash) in wanted.into_iter().zip(hashes) {
            for (field, count) in hash {
                let Some((at, outcome)) = parse_count_field(&field) else {
                    continue;
                };
                let at = block * STEPS_IN_KEY + at;
                if let (true, Ok(count)) = ((from..to).contains(&at), count.parse()) {
                    counts.push(RecordedCount {
                        rule: rule.clone(),
                        outcome,
                        at,
                        count,
                    });
                }
            }
        }
        Ok(counts)
    }

    /// Returns the minutes and rules with denials from the minute `from` to the one before `to`,
    /// the newest first.
    pub async fn denial_blocks(&self, from: u64, to: u64) -> Result<Vec<DenialBlock>, StoreError> {
        let hours: Vec<_> = (from / 60..to.div_ceil(60)).collect();
        let keys: Vec<_> = hours.iter().map(|hour| self.keys.denied(*hour)).collect();
        let with_scores = |key: &str| Cmd::zrange_withscores(key, 0, -1);
        let members: Vec<Vec<(String, u64)>> = self.read_all(&keys, with_scores).await?;
        let with_rows = members.iter().flatten().filter(|(_, rows)| *rows > 0);
        let mut blocks: Vec<_> = with_rows
            .filter_map(|(member, _)| DenialBlock::parse(member))
            .filter(|block| (from..to).contains(&block.minute))
            .collect();
        blocks.sort_by(|a, b| (b.minute, &a.rule).cmp(&(a.minute, &b.rule)));
        Ok(blocks)
    }

    /// Returns the rows of a minute and a rule, and how many denials have none.
    pub async fn denials(
        &self,
        blocks: &[DenialBlock],
    ) -> Result<Vec<(Vec<RecordedDenial>, u64)>, StoreError> {
        let keys: Vec<_> = blocks
            .iter()
            .map(|block| self.keys.denials(block.minute, &block.rule))
            .collect();
        let hashes: Vec<HashMap<String, String>> = self.read_all(&keys, hash_of).await?;
        let blocks = hashes.into_iter().map(|hash| {
            let dropped = hash.get("dropped").and_then(|it| it.parse().ok());
            let rows = hash
                .into_iter()
                .filter_map(|(field, value)| parse_row(field.strip_prefix('=')?, &value));
            (rows.collect(), dropped.unwrap_or_default())
        });
        Ok(blocks.collect())
    }

    /// Returns the minutes and rules of which denials have no row, and how many.
    pub async fn dropped(&self, from: u64, to: u64) -> Result<Vec<(DenialBlock, u64)>, StoreError> {
        let hours = from / 60..to.div_ceil(60);
        let keys: Vec<_> = hours.map(|hour| self.keys.dropped(hour)).collect();
        let with_scores = |key: &str| Cmd::zrange_withscores(key, 0, -1);
        let members: Vec<Vec<(String, u64)>> = self.read_all(&keys, with_scores).await?;
        let dropped = members.into_iter().flatten();
        let dropped =
            dropped.filter_map(|(member, count)| Some((DenialBlock::parse(&member)?, count)));
        Ok(dropped
            .filter(|(block, _)| (from..to).contains(&block.minute))
            .collect())
    }

    /// Deletes the oldest rows of denials if there are more than `most` from the minute `from` on,
    /// and counts them as dropped. Returns how many minutes of a rule were deleted.
    pub async fn trim_denials(&self, from: u64, to: u64, most: u64) -> Result<usize, StoreError> {
        let hours: Vec<_> = (from / 60..to.div_ceil(60)).rev().collect();
        let keys: Vec<_> = hours.iter().map(|hour| self.keys.denied(*hour)).collect();
        let with_scores = |key: &str| Cmd::zrange_withscores(key, 0, -1);
        let indexes: Vec<Vec<(String, u64)>> = self.read_all(&keys, with_scores).await?;
        let mut sum = 0;
        let mut trimmed = 0;
        for (hour, members) in hours.into_iter().zip(indexes) {
            let mut by_minute: BTreeMap<u64, Vec<RecordedRule>> = BTreeMap::new();
            let mut rows_of: HashMap<u64, u64> = HashMap::new();
            for (member, rows) in members {
                if let Some(block) = DenialBlock::parse(&member) {
                    let minute = by_minute.entry(block.minute).or_default();
                    minute.push(block.rule);
                    let known = rows_of.entry(block.minute).or_default();
                    *known = known.saturating_add(rows);
                }
            }
            let mut calls = Vec::new();
            for (minute, blocks) in by_minute.into_iter().rev() {
                let rows = rows_of.get(&minute).copied().unwrap_or_default();
                sum = rows.saturating_add(sum);
                if sum > most && rows > 0 {
                    let dropped = blocks
                        .iter()
                        .map(|rule| drop_call(&self.keys, minute, rule));
                    calls.extend(dropped);
                }
            }
            trimmed += calls.len();
            self.drop_rows(hour, &calls).await?;
        }
        Ok(trimmed)
    }

    /// Deletes rows of an hour, and updates its index.
    async fn drop_rows(&self, hour: u64, calls: &[Call]) -> Result<(), StoreError> {
        if calls.is_empty() {
            return Ok(());
        }
        let replies = self.run(&calls.iter().collect::<Vec<_>>()).await;
        let (mut rows, mut dropped) = (Vec::new(), Vec::new());
        for (call, reply) in calls.iter().zip(replies) {
            if let Some(block) = confirmed_block(call, reply?) {
                rows.push((block.member.clone(), block.rows));
                dropped.push((block.member, block.dropped));
            }
        }
        let rows = index_call(self.keys.denied(hour), self.keep, rows);
        let dropped = index_call(self.keys.dropped(hour), self.keep, dropped);
        for reply in self.run(&[&dropped, &rows]).await {
            reply?;
        }
        Ok(())
    }

    /// Returns the last entries of the audit trail, the newest first.
    pub async fn audit(&self, most: usize) -> Result<Vec<String>, StoreError> {
        let keys = [self.keys.audit()];
        let last = isize::try_from(most).unwrap_or(isize::MAX) - 1;
        let mut lists: Vec<Vec<String>> = self
            .read_all(&keys, |key| Cmd::lrange(key, 0, last))
            .await?;
        Ok(lists.pop().unwrap_or_default())
    }

    /// Returns the changes of rule sets, the oldest first.
    pub async fn changes(&self) -> Result<Vec<RecordedChange>, StoreError> {
        let keys = [self.keys.changes()];
        let lists: Vec<Vec<String>> = self.read_all(&keys, |key| Cmd::lrange(key, 0, -1)).await?;
        let entries = lists.iter().flatten();
        let mut changes: Vec<_> = entries.filter_map(|it| parse_change(it)).collect();
        // Baselines are no changes.
        changes.retain(|change| change.at_ms > 0);
        changes.reverse();
        changes.sort_by_key(|change| change.at_ms);
        Ok(changes)
    }
}

/// Reads an entry of the list of changes.
pub(super) fn parse_change(entry: &str) -> Option<RecordedChange> {
    let mut parts = entry.splitn(4, '\t');
    Some(RecordedChange {
        at_ms: parts.next()?.parse().ok()?,
        revision: parts.next()?.to_owned(),
        rule_set: parts.next()?.to_owned(),
        who: parts.next()?.to_owned(),
    })
}

/// Reads a row of denials.
pub(super) fn parse_row(id: &str, value: &str) -> Option<RecordedDenial> {
    let mut parts = value.splitn(4, ' ');
    let mut number = || parts.next()?.parse().ok();
    Some(RecordedDenial {
        id: id.to_owned(),
        count: number()?,
        first_ms: number()?,
        last_ms: number()?,
        text: parts.next()?.to_owned(),
    })
}

fn hash_of(key: &str) -> Cmd {
    Cmd::hgetall(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_read_with_its_tabs() {
        let change = parse_change("5\tb\tx\tops").unwrap();
        assert_eq!((change.at_ms, &*change.rule_set), (5, "x"));
        assert_eq!((&*change.revision, &*change.who), ("b", "ops"));
        assert_eq!(parse_change("5\tb"), None);
    }

    #[test]
    fn a_row_is_read_with_its_spaces() {
        let row = parse_row("h", "3 10 20 {\"path\":\"/a b\"}").unwrap();
        assert_eq!((row.count, row.first_ms, row.last_ms), (3, 10, 20));
        assert_eq!(row.text, "{\"path\":\"/a b\"}");
        assert_eq!(parse_row("h", "3 10"), None);
    }
}
