//! Reads rows of denials, of all instances.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use fluxgate_redis::record::{DenialBlock, RecordedDenial, RecordedRule};

use super::collector::History;
use super::denials::{DenialDetail, merge};
use super::denied_id::DeniedId;
use super::error::HistoryError;
use super::query::check_range;
use super::writer::WriterState;
use crate::telemetry::unix_time;

/// The range that is read if the query names none.
const DEFAULT_RANGE: Duration = Duration::from_secs(24 * 3600);
const MINUTE_MS: u64 = 60_000;
/// How many minutes and rules are read at once.
const BLOCKS_AT_ONCE: usize = 64;

/// Says which identities a query includes.
pub(crate) type IdentityTest = dyn Fn(&RecordedRule, &DeniedId) -> bool + Send + Sync;

/// Which rows to read. Times are in milliseconds since 1970.
pub(crate) struct DenialQuery {
    pub(crate) rule_set: Option<String>,
    pub(crate) rule: Option<String>,
    pub(crate) from: Option<u64>,
    pub(crate) to: Option<u64>,
    pub(crate) identity: Option<Box<IdentityTest>>,
    pub(crate) count: usize,
    pub(crate) cursor: Option<DenialCursor>,
}

/// Rows of denials.
#[derive(Debug)]
pub(crate) struct DenialReply {
    /// The newest first.
    pub(crate) rows: Vec<DenialRow>,
    /// Continues after the last row, if there are more.
    pub(crate) cursor: Option<DenialCursor>,
    /// The denials of the range, and of the rules, that have no row.
    pub(crate) dropped: u64,
}

/// The denials of one identity by one rule in one minute.
#[derive(Debug)]
pub(crate) struct DenialRow {
    pub(crate) rule: RecordedRule,
    pub(crate) identity: DeniedId,
    pub(crate) first_ms: u64,
    pub(crate) last_ms: u64,
    pub(crate) count: u64,
    pub(crate) detail: DenialDetail,
}

/// The place of a row in the order of all rows: by minute and by the last denial, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DenialCursor {
    /// Counted from the end of time, so that the newest is the least.
    minute: u64,
    last_ms: u64,
    rule: RecordedRule,
    id: String,
}

impl DenialCursor {
    fn of(minute: u64, rule: &RecordedRule, row: &RecordedDenial) -> Self {
        Self {
            minute: u64::MAX - minute,
            last_ms: u64::MAX - row.last_ms,
            rule: rule.clone(),
            id: row.id.clone(),
        }
    }

    /// Returns the text in responses.
    pub(crate) fn to_text(&self) -> String {
        let Self {
            minute,
            last_ms,
            rule,
            id,
        } = self;
        let RecordedRule { rule_set, rule } = rule;
        let (minute, last_ms) = (u64::MAX - minute, u64::MAX - last_ms);
        BASE64_URL_SAFE_NO_PAD.encode(format!("{minute}\t{last_ms}\t{rule_set}\t{rule}\t{id}"))
    }

    /// Reads a text of a response.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let text = String::from_utf8(text).ok()?;
        let [minute, last_ms, rule_set, rule, id] =
            text.splitn(5, '\t').collect::<Vec<_>>().try_into().ok()?;
        Some(Self {
            minute: u64::MAX - minute.parse::<u64>().ok()?,
            last_ms: u64::MAX - last_ms.parse::<u64>().ok()?,
            rule: RecordedRule {
                rule_set: rule_set.into(),
                rule: rule.into(),
            },
            id: id.to_owned(),
        })
    }

    fn minute(&self) -> u64 {
        u64::MAX - self.minute
    }
}

impl DenialQuery {
    fn includes_rule(&self, rule: &RecordedRule) -> bool {
        let is = |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|it| it == name);
        is(&self.rule_set, &rule.rule_set) && is(&self.rule, &rule.rule)
    }

    fn includes_identity(&self, rule: &RecordedRule, id: &DeniedId) -> bool {
        self.identity.as_ref().is_none_or(|test| test(rule, id))
    }
}

/// The rows of a minute, as they are found.
type MinuteRows = Vec<(DenialCursor, RecordedDenial)>;

impl History {
    /// Returns denials of the fleet.
    pub(crate) async fn denials(
        self: &Arc<Self>,
        query: DenialQuery,
    ) -> Result<DenialReply, HistoryError> {
        let now = unix_time().as_millis() as u64;
        let default = DEFAULT_RANGE.min(self.config.keep);
        let (from, to) = check_range(query.from, query.to, default, now, self.config.keep)?;
        let this = Arc::clone(self);
        let read = self
            .runtime
            .spawn(async move { this.read_denials(&query, from, to).await });
        read.await.unwrap_or(Err(HistoryError::Closing))
    }

    async fn read_denials(
        &self,
        query: &DenialQuery,
        from_ms: u64,
        to_ms: u64,
    ) -> Result<DenialReply, HistoryError> {
        self.collect();
        let (from, to) = (from_ms / MINUTE_MS, to_ms / MINUTE_MS + 1);
        // What is on its way is either in Redis or here, as long as this is held.
        let mut writing = None;
        if let Some(writer) = &self.writer {
            let mut state = writer.lock().await;
            writer.confirm(&mut state).await?;
            writing = Some(state);
        }
        let dropped = self
            .read_dropped(query, from, to, writing.as_deref())
            .await?;
        // From the minute of the cursor on.
        let last = query
            .cursor
            .as_ref()
            .map_or(to, |cursor| cursor.minute().saturating_add(1));
        // A cursor of another range may lie before this one.
        let last = to.min(last).max(from);
        let blocks = self.blocks(query, from, last).await?;
        let mut rows = Vec::new();
        let mut next = None;
        let mut minutes = blocks.chunk_by(|a, b| a.minute == b.minute).peekable();
        'minutes: while minutes.peek().is_some() {
            let mut part = Vec::new();
            while part.len() < BLOCKS_AT_ONCE
                && let Some(minute) = minutes.next()
            {
                part.extend_from_slice(minute);
            }
            let mut found = self.read_blocks(query, &part, from_ms..=to_ms).await?;
            found.sort_by(|(a, _), (b, _)| a.cmp(b));
            for (place, row) in found {
                if query.cursor.as_ref().is_some_and(|cursor| place <= *cursor) {
                    continue;
                }
                let Some(identity) = DeniedId::parse(&row.id) else {
                    continue;
                };
                if !query.includes_identity(&place.rule, &identity) {
                    continue;
                }
                if rows.len() == query.count {
                    // There is at least this one.
                    next = rows
                        .last()
                        .map(|(place, _): &(DenialCursor, DenialRow)| place.clone());
                    break 'minutes;
                }
                let row = DenialRow {
                    rule: place.rule.clone(),
                    identity,
                    first_ms: row.first_ms,
                    last_ms: row.last_ms,
                    count: row.count,
                    // Another version may have written something else.
                    detail: serde_json::from_str(&row.text).unwrap_or_default(),
                };
                rows.push((place, row));
            }
        }
        Ok(DenialReply {
            rows: rows.into_iter().map(|(_, row)| row).collect(),
            cursor: next,
            dropped,
        })
    }

    /// Returns the minutes and rules with rows, the newest first.
    async fn blocks(
        &self,
        query: &DenialQuery,
        from: u64,
        to: u64,
    ) -> Result<Vec<DenialBlock>, HistoryError> {
        let mut blocks: HashSet<DenialBlock> = self.lock().denials.blocks(from..to).collect();
        if let Some(writer) = &self.writer {
            blocks.extend(writer.record.denial_blocks(from, to).await?);
        }
        let mut blocks: Vec<_> = { blocks.into_iter() }
            .filter(|block| query.includes_rule(&block.rule))
            .collect();
        blocks.sort_by(|a, b| (b.minute, &a.rule).cmp(&(a.minute, &b.rule)));
        Ok(blocks)
    }

    /// Returns the rows of some minutes and rules.
    async fn read_blocks(
        &self,
        query: &DenialQuery,
        blocks: &[DenialBlock],
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<MinuteRows, HistoryError> {
        let mut shared = match &self.writer {
            Some(writer) => writer.record.denials(blocks).await?.into_iter(),
            None => Vec::new().into_iter(),
        };
        let mut found = Vec::new();
        let state = self.lock();
        for block in blocks {
            let (rows, _) = shared.next().unwrap_or_default();
            let mut by_id: HashMap<String, RecordedDenial> = HashMap::new();
            let (own, _) = state.denials.block(block);
            for row in rows.into_iter().chain(own) {
                match by_id.get_mut(&row.id) {
                    Some(known) => merge(known, row),
                    None => drop(by_id.insert(row.id.clone(), row)),
                }
            }
            let is_within = |row: &RecordedDenial| {
                row.first_ms <= *range.end() && row.last_ms >= *range.start()
            };
            let rows = by_id.into_values().filter(is_within);
            found.extend(rows.map(|row| (DenialCursor::of(block.minute, &block.rule, &row), row)));
        }
        drop(state);
        found.retain(|(place, _)| query.includes_rule(&place.rule));
        Ok(found)
    }

    /// Returns how many denials have no row.
    async fn read_dropped(
        &self,
        query: &DenialQuery,
        from: u64,
        to: u64,
        writing: Option<&WriterState>,
    ) -> Result<u64, HistoryError> {
        let mut dropped: BTreeMap<(u64, RecordedRule), u64> = BTreeMap::new();
        let is_wanted = |block: &DenialBlock| {
            (from..to).contains(&block.minute) && query.includes_rule(&block.rule)
        };
        if let (Some(writer), Some(writing)) = (&self.writer, writing) {
            let shared = writer.record.dropped(from, to).await?;
            // What the server has just reported is newer than the index.
            for (block, count) in shared.into_iter().chain(writing.confirmed_dropped()) {
                if is_wanted(&block) {
                    let known = dropped.entry((block.minute, block.rule)).or_default();
                    *known = count.max(*known);
                }
            }
        }
        let state = self.lock();
        for block in state.denials.blocks(from..to).filter(is_wanted) {
            let (_, count) = state.denials.block(&block);
            let known = dropped.entry((block.minute, block.rule)).or_default();
            *known = known.saturating_add(count);
        }
        Ok(dropped.values().copied().fold(0, u64::saturating_add))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(minute: u64, last_ms: u64, rule: &str, id: &str) -> DenialCursor {
        let rule = RecordedRule {
            rule_set: "s".into(),
            rule: rule.into(),
        };
        let row = RecordedDenial {
            id: id.into(),
            count: 1,
            first_ms: last_ms,
            last_ms,
            text: String::new(),
        };
        DenialCursor::of(minute, &rule, &row)
    }

    #[test]
    fn the_newest_row_comes_first() {
        let mut places = [
            place(1, 70_000, "a", "x"),
            place(2, 120_000, "b", "x"),
            place(2, 130_000, "b", "y"),
            place(2, 130_000, "a", "z"),
        ];
        places.sort();
        let ids: Vec<_> = places.iter().map(|place| &*place.id).collect();
        assert_eq!(ids, ["z", "y", "x", "x"]);
    }

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        for place in [place(2, 130_000, "a", "~x"), place(0, 0, "", "")] {
            assert_eq!(DenialCursor::parse(&place.to_text()), Some(place));
        }
        for bad in ["", "x", "MQkyCWE", "!"] {
            assert_eq!(DenialCursor::parse(bad), None, "{bad}");
        }
    }
}
