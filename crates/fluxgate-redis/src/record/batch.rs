//! What an instance writes at once: one script call for each key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::Outcome;
use redis::Cmd;

use super::entries::{DenialBlock, RecordedChange, RecordedDenial};
use super::keys::{RecordKeys, RecordedRule, STEPS_IN_KEY, Step, count_field};
use super::scripts::{self, MAX_AUDIT_ENTRIES, MAX_MINUTE_ROWS, SECONDS_KEPT};
use crate::script::Script;

/// What is kept longer than it is read, because the clocks of instances differ.
const SLACK: Duration = Duration::from_secs(3600);
/// The maximum number of members of an index.
const MAX_INDEXED: usize = 100_000;
/// The maximum number of changes of rules that are kept.
const MAX_CHANGES: usize = 1_000;

/// The call of a script on one key.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) script: &'static Script,
    pub(super) key: String,
    arguments: Vec<String>,
    /// For rows of denials, the index and the member that has their number.
    pub(super) indexed: Option<(u64, String)>,
    /// The decisions that the record lacks without this call.
    pub(super) decisions: u64,
}

impl Call {
    /// Returns the command, by hash (`EVALSHA`) or by text (`EVAL`).
    pub(super) fn command(&self, name: &str) -> Cmd {
        let by_text = name == "EVAL";
        let mut command = redis::cmd(name);
        command.arg(if by_text {
            self.script.text
        } else {
            &self.script.sha1
        });
        command.arg(1).arg(&self.key).arg(&self.arguments);
        command
    }
}

/// What an instance writes at once. What the server has confirmed is removed.
#[derive(Debug)]
pub struct RecordBatch {
    number: u64,
    guard: Arc<str>,
    keys: RecordKeys,
    keep: Duration,
    /// By key.
    counts: BTreeMap<(Step, u64, RecordedRule), Vec<(String, u64)>>,
    denials: Vec<Call>,
    /// The rules that have counts, and their last hour.
    rules: BTreeMap<String, u64>,
    /// The number of rows of each minute and rule, by hour.
    rows: BTreeMap<u64, BTreeMap<String, u64>>,
    /// The same of denials without a row.
    dropped: BTreeMap<u64, BTreeMap<String, u64>>,
    /// What is left to be sent; `None` before the first time.
    calls: Option<Vec<Call>>,
    confirmed: Vec<ConfirmedBlock>,
    /// The decisions whose keys another program has taken.
    lost: u64,
}

/// What the server has of a minute and a rule.
#[derive(Clone, Debug)]
pub(super) struct ConfirmedBlock {
    pub(super) hour: u64,
    pub(super) member: String,
    pub(super) rows: u64,
    pub(super) dropped: u64,
}

impl RecordBatch {
    pub(super) fn new(number: u64, guard: &Arc<str>, keys: RecordKeys, keep: Duration) -> Self {
        Self {
            number,
            guard: Arc::clone(guard),
            keys,
            keep,
            counts: BTreeMap::new(),
            denials: Vec::new(),
            rules: BTreeMap::new(),
            rows: BTreeMap::new(),
            dropped: BTreeMap::new(),
            calls: None,
            confirmed: Vec::new(),
            lost: 0,
        }
    }

    /// Returns whether nothing is left to be sent.
    pub fn is_done(&self) -> bool {
        match &self.calls {
            Some(calls) => calls.is_empty(),
            None => self.counts.is_empty() && self.denials.is_empty() && self.rows.is_empty(),
        }
    }

    /// Adds a count of a rule. `at` is the number of the step since 1970.
    pub fn add_count(
        &mut self,
        step: Step,
        at: u64,
        rule: &RecordedRule,
        outcome: Outcome,
        count: u64,
    ) {
        let Some(field) = count_field(at, outcome) else {
            return;
        };
        let block = at / STEPS_IN_KEY;
        let key = (step, block, rule.clone());
        self.counts.entry(key).or_default().push((field, count));
        if step == Step::Minute {
            let last = self.rules.entry(rule.name()).or_default();
            *last = block.max(*last);
        }
    }

    /// Adds rows of denials by a rule in a minute, and the number of denials without a row.
    pub fn add_denials(
        &mut self,
        minute: u64,
        rule: &RecordedRule,
        rows: &[RecordedDenial],
        dropped: u64,
    ) {
        let mut arguments = vec![
            self.guard.to_string(),
            self.number.to_string(),
            millis(self.keep + SLACK),
            MAX_MINUTE_ROWS.to_string(),
            dropped.to_string(),
        ];
        for row in rows {
            arguments.push(format!("={}", row.id));
            arguments.push(row.count.to_string());
            arguments.push(row.first_ms.to_string());
            arguments.push(row.last_ms.to_string());
            arguments.push(row.text.clone());
        }
        let (hour, member) = (minute / 60, member_of(minute, rule));
        let denials = { rows.iter() }.fold(dropped, |sum, row| sum.saturating_add(row.count));
        // Readers find the rows by the index; how many there are is written with the next batch.
        let known = self.rows.entry(hour).or_default();
        known.entry(member.clone()).or_insert(rows.len() as u64);
        self.denials.push(Call {
            script: &scripts::DENIALS,
            key: self.keys.denials(minute, rule),
            arguments,
            indexed: Some((hour, member)),
            decisions: denials,
        });
    }

    /// Adds the numbers of rows that the server has reported for the last batch.
    pub fn index_rows_of(&mut self, last: &Self) {
        for block in &last.confirmed {
            let known = self.rows.entry(block.hour).or_default();
            known.insert(block.member.clone(), block.rows);
            if block.dropped > 0 {
                let known = self.dropped.entry(block.hour).or_default();
                known.insert(block.member.clone(), block.dropped);
            }
        }
    }

    /// Returns whether the server has reported what the next batch adds to the index.
    pub fn has_news(&self) -> bool {
        !self.confirmed.is_empty()
    }

    /// Returns the minutes and rules of which the server has denials without a row, as it has
    /// reported for this batch.
    pub fn confirmed_dropped(&self) -> impl Iterator<Item = (DenialBlock, u64)> {
        let dropped = self.confirmed.iter().filter(|block| block.dropped > 0);
        dropped.filter_map(|block| Some((DenialBlock::parse(&block.member)?, block.dropped)))
    }

    /// Returns the decisions that are lost since the last time, because another program has taken the
    /// keys where they belong.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    pub(super) fn add_lost(&mut self, decisions: u64) {
        self.lost = self.lost.saturating_add(decisions);
    }

    pub(super) fn calls(&mut self) -> &[Call] {
        if self.calls.is_none() {
            self.calls = Some(self.make_calls());
        }
        self.calls.as_deref().unwrap_or_default()
    }

    pub(super) fn take_calls(&mut self) -> Vec<Call> {
        self.calls.take().unwrap_or_default()
    }

    pub(super) fn set_calls(&mut self, calls: Vec<Call>) {
        self.calls = Some(calls);
    }

    pub(super) fn add_confirmed(&mut self, blocks: Vec<ConfirmedBlock>) {
        self.confirmed.extend(blocks);
    }

    fn make_calls(&mut self) -> Vec<Call> {
        let mut calls = Vec::new();
        for ((step, block, rule), counts) in std::mem::take(&mut self.counts) {
            let keep = match step {
                // The block is a minute.
                Step::Second => SECONDS_KEPT + Duration::from_secs(120),
                Step::Minute => self.keep + SLACK,
            };
            let mut arguments = vec![
                self.guard.to_string(),
                self.number.to_string(),
                millis(keep),
            ];
            let mut decisions = 0_u64;
            for (field, count) in counts {
                arguments.extend([field, count.to_string()]);
                // Seconds are kept for a short time, and minutes have the same.
                if step == Step::Minute {
                    decisions = decisions.saturating_add(count);
                }
            }
            calls.push(Call {
                script: &scripts::COUNTS,
                key: self.keys.counts(step, block, &rule),
                arguments,
                indexed: None,
                decisions,
            });
        }
        calls.append(&mut self.denials);
        let rules = std::mem::take(&mut self.rules);
        if !rules.is_empty() {
            calls.push(self.index_call(self.keys.rules(), rules));
        }
        for (hour, rows) in std::mem::take(&mut self.rows) {
            calls.push(self.index_call(self.keys.denied(hour), rows));
        }
        for (hour, dropped) in std::mem::take(&mut self.dropped) {
            calls.push(self.index_call(self.keys.dropped(hour), dropped));
        }
        calls
    }

    fn index_call(&self, key: String, members: BTreeMap<String, u64>) -> Call {
        index_call(key, self.keep, members)
    }
}

/// Returns the call that deletes the rows of a minute and a rule.
pub(super) fn drop_call(keys: &RecordKeys, minute: u64, rule: &RecordedRule) -> Call {
    Call {
        script: &scripts::DROP_DENIALS,
        key: keys.denials(minute, rule),
        arguments: Vec::new(),
        indexed: Some((minute / 60, member_of(minute, rule))),
        decisions: 0,
    }
}

/// Returns the call that sets the scores of members of an index.
pub(super) fn index_call(
    key: String,
    keep: Duration,
    members: impl IntoIterator<Item = (String, u64)>,
) -> Call {
    let mut arguments = vec![millis(keep + SLACK), MAX_INDEXED.to_string()];
    for (member, score) in members {
        arguments.extend([member, score.to_string()]);
    }
    Call {
        script: &scripts::INDEX,
        key,
        arguments,
        indexed: None,
        decisions: 0,
    }
}

/// Returns the name of a minute and a rule in an index.
fn member_of(minute: u64, rule: &RecordedRule) -> String {
    format!("{minute} {}", rule.name())
}

/// Returns the call that adds a change.
pub(super) fn change_call(
    keys: &RecordKeys,
    keep: Duration,
    change: &RecordedChange,
    is_first: bool,
) -> Call {
    let clean = |text: &str| text.replace(['\t', '\n'], " ");
    Call {
        script: &scripts::CHANGE,
        key: keys.changes(),
        arguments: vec![
            millis(keep + SLACK),
            change.at_ms.to_string(),
            clean(&change.revision),
            clean(&change.rule_set),
            clean(&change.who),
            u8::from(is_first).to_string(),
            MAX_CHANGES.to_string(),
        ],
        indexed: None,
        decisions: 0,
    }
}

/// Returns the call that adds an entry of the audit trail.
pub(super) fn audit_call(keys: &RecordKeys, keep: Duration, entry: &str) -> Call {
    Call {
        script: &scripts::AUDIT,
        key: keys.audit(),
        arguments: vec![
            millis(keep + SLACK),
            MAX_AUDIT_ENTRIES.to_string(),
            entry.to_owned(),
        ],
        indexed: None,
        decisions: 0,
    }
}

fn millis(span: Duration) -> String {
    span.as_millis().to_string()
}
