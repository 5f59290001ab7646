//! One rule.

use std::collections::HashSet;
use std::time::Duration;

use super::{BandStyle, MAX_NAME, ParsedRule, RuleReader};
use crate::key::{self, OnMissingKey, RuleNumber, SubjectBytes};
use crate::limit::Algorithm;
use crate::rules::rule::{CostSource, Rule, RuleMode};
use crate::rules::values;
use crate::sip::Sip13;
use crate::time::Micros;
use crate::yaml::Node;

const DEFAULT_PRIORITY: i64 = 100;
const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(5);

impl RuleReader<'_> {
    /// Reads a rule. Returns `None` if it has faults, which are reported.
    pub(super) fn rule<'n>(
        &mut self,
        node: &'n Node,
        ids: &mut HashSet<&'n str>,
    ) -> Option<ParsedRule> {
        let faults_before = self.faults.count();
        let [
            id,
            name,
            enabled,
            mode,
            priority,
            matches,
            scope,
            key,
            on_missing_key,
            algorithm,
            shape,
            bands,
            cost,
            on_exceed,
            max_wait,
            overrides,
            reset_on_change,
            attributes,
        ] = node.fields(
            "a rule",
            [
                "id",
                "name",
                "enabled",
                "mode",
                "priority",
                "match",
                "scope",
                "key",
                "on_missing_key",
                "algorithm",
                "shape",
                "bands",
                "cost",
                "on_exceed",
                "max_wait",
                "overrides",
                "reset_on_change",
                "attributes",
            ],
            self.faults,
        );
        if !node.is_map() {
            return None;
        }
        let id = self.rule_id(node, id, ids);
        let name = name.and_then(|node| node.text("`name`", self.faults));
        let enabled = self.boolean(enabled, "`enabled`", true);
        let modes = [("enforce", RuleMode::Enforce), ("shadow", RuleMode::Shadow)];
        let mode = mode.and_then(|node| node.one_of("`mode`", &modes, self.faults));
        let priority = priority.and_then(|node| {
            let (least, most) = (i64::from(i32::MIN), i64::from(i32::MAX));
            node.whole("`priority`", least, most, self.faults)
        });
        let (conditions, not_path) = self.conditions(matches);
        let key = self.key(node, scope, key);
        let on_missing_key = on_missing_key.and_then(|node| {
            let names = [
                ("ip", OnMissingKey::Ip),
                ("anonymous", OnMissingKey::Anonymous),
                ("skip", OnMissingKey::Skip),
                ("deny", OnMissingKey::Deny),
            ];
            node.one_of("`on_missing_key`", &names, self.faults)
        });
        let algorithm = match algorithm {
            Some(node) => node.one_of("`algorithm`", &Algorithm::NAMES, self.faults),
            None => Some(Algorithm::TokenBucket),
        };
        let waits = on_exceed
            .and_then(|node| {
                let names = [("reject", false), ("wait", true)];
                node.one_of("`on_exceed`", &names, self.faults)
            })
            .unwrap_or(false);
        let max_wait = max_wait.and_then(|node| values::duration(node, "`max_wait`", self.faults));
        let max_wait = waits.then(|| max_wait.unwrap_or(DEFAULT_MAX_WAIT));
        let style = BandStyle {
            algorithm,
            shape: self.boolean(shape, "`shape`", false),
            shape_at: shape.map_or(node.position, |node| node.position),
            max_wait,
        };
        let mut bands = match bands {
            Some(list) => self.bands(list, &style),
            None => {
                self.faults.add(node.position, "a rule needs `bands`");
                Vec::new()
            }
        };
        let cost = cost.map_or(Some(CostSource::Fixed(1)), |node| self.cost(node));
        let own = bands.len() as u32;
        let overrides =
            overrides.map(|node| self.overrides(node, key.as_deref(), &style, &mut bands));
        let reset_on_change = self.boolean(reset_on_change, "`reset_on_change`", false);
        let attributes = attributes.map(|node| self.texts(node, "`attributes`"));

        // Numbers are never reused, so only rules without faults get one.
        if self.faults.count() > faults_before {
            return None;
        }
        let id = id?;
        let subject = subject_of_rule(self.set, id, reset_on_change.then_some(node));
        let Some(number) = RuleNumber::of(&subject) else {
            self.faults.add(
                node.position,
                "this process has seen a million different rules; restart it to load more",
            );
            return None;
        };
        Some(ParsedRule {
            rule: Rule {
                id: id.into(),
                name: name.map(Into::into),
                mode: mode.unwrap_or_default(),
                priority: priority.unwrap_or(DEFAULT_PRIORITY),
                not_path,
                key: key?,
                on_missing_key: on_missing_key.unwrap_or_default(),
                cost: cost?,
                max_wait: max_wait.map(Micros::from_duration),
                bands,
                own,
                overrides: overrides.unwrap_or_default(),
                attributes: attributes.unwrap_or_default(),
                subject: subject.to_vec().into(),
                number,
                reset_on_change,
            },
            conditions,
            enabled,
        })
    }

    fn rule_id<'n>(
        &mut self,
        rule: &Node,
        node: Option<&'n Node>,
        ids: &mut HashSet<&'n str>,
    ) -> Option<&'n str> {
        let Some(node) = node else {
            self.faults.add(rule.position, "a rule needs an `id`");
            return None;
        };
        let id = node.text("`id`", self.faults)?;
        let mut bytes = id.bytes();
        let has_good_start = bytes
            .next()
            .is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let has_good_rest = bytes.all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-'
        });
        if !has_good_start || !has_good_rest || id.len() > MAX_NAME {
            self.faults.add(
                node.position,
                format!("`{id}` is not a rule id; allowed is [a-z0-9][a-z0-9_-]* up to {MAX_NAME} characters"),
            );
        }
        if !ids.insert(id) {
            let set = self.set;
            self.faults.add(
                node.position,
                format!("rule set `{set}` already has a rule `{id}`"),
            );
        }
        Some(id)
    }

    fn boolean(&mut self, node: Option<&Node>, what: &str, default: bool) -> bool {
        node.and_then(|node| node.boolean(what, self.faults))
            .unwrap_or(default)
    }
}

/// Returns the start of every subject of a rule. For a rule that resets on change it
/// contains a hash of the rule, so any change makes other subjects.
fn subject_of_rule(set: &str, id: &str, resets: Option<&Node>) -> SubjectBytes {
    let mut subject = SubjectBytes::new();
    key::encode_bytes(set, &mut subject);
    key::encode_bytes(id, &mut subject);
    if let Some(rule) = resets {
        let hash = Sip13::PUBLIC.hash(rule.canonical().as_bytes());
        // No part of an identity begins with this byte.
        subject.push(key::RESETS);
        subject.extend_from_slice(&hash.to_le_bytes());
    }
    subject
}
