//! One rule.

use std::time::Duration;

use super::bands::{self, BandStyle};
use super::request;
use crate::hold::DEFAULT_HOLD;
use crate::key::OnMissingKey;
use crate::lease::{self, Lease};
use crate::limit::Algorithm;
use crate::percent::Percent;
use crate::rules::action::{RuleAction, misplaced};
use crate::rules::rule::{DEFAULT_PRIORITY, Override, Pairs, Rule, RuleMode};
use crate::rules::values;
use crate::time::{Timestamp, parse_rfc3339};
use crate::yaml::{Faults, Fields, Node, Value};

const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(5);

/// The fields of a rule.
const FIELDS: [&str; 27] = [
    "id",
    "name",
    "enabled",
    "mode",
    "action",
    "status",
    "priority",
    "match",
    "scope",
    "key",
    "group",
    "rollout",
    "on_missing_key",
    "algorithm",
    "shape",
    "hold",
    "bands",
    "cost",
    "clamp",
    "on_exceed",
    "max_wait",
    "lease",
    "overrides",
    "charge",
    "notify",
    "reset_on_change",
    "attributes",
];

/// The fields of rules that do not limit, too.
const COMMON_FIELDS: [&str; 9] = [
    "id",
    "name",
    "enabled",
    "mode",
    "action",
    "status",
    "priority",
    "match",
    "attributes",
];

/// Reads a rule. What has a fault is replaced by a value that causes no further fault.
pub(super) fn read(node: &Node, faults: &mut Faults) -> Rule {
    let fields = Fields::read(Some(node), "a rule", &FIELDS, faults);
    if fields.get("id").is_none() && node.is_map() {
        faults.add(node.position, "a rule needs an `id`");
    }
    let mut rule = Rule::with_id(fields.text("id", faults).map(Into::into));
    rule.name = fields.text("name", faults).map(Into::into);
    rule.enabled = fields.boolean("enabled", true, faults);
    let modes = [("enforce", RuleMode::Enforce), ("shadow", RuleMode::Shadow)];
    rule.mode = fields.one_of("mode", &modes, faults).unwrap_or_default();
    let priority = fields.get("priority").and_then(|node| {
        let (least, most) = (i64::from(i32::MIN), i64::from(i32::MAX));
        node.whole("`priority`", least, most, faults)
    });
    let priority = priority.and_then(|priority| i32::try_from(priority).ok());
    rule.priority = priority.unwrap_or(DEFAULT_PRIORITY);
    request::read_conditions(fields.get("match"), &mut rule, faults);
    let known = read_action(&fields, faults);
    rule.action = known.unwrap_or(RuleAction::Allow);
    rule.attributes = read_attributes(fields.get("attributes"), faults);
    if rule.action.decides() {
        // What an unknown action may have is not known either.
        let fields = fields.iter().filter(|_| known.is_some());
        for (field, node) in fields.filter(|(field, _)| !COMMON_FIELDS.contains(field)) {
            faults.add(node.position, misplaced(field, rule.action));
        }
        return rule;
    }
    rule.key = request::read_key(fields.get("scope"), fields.get("key"), faults);
    rule.group = fields.text("group", faults).map(Into::into);
    let rollout = fields.get("rollout");
    rule.rollout = rollout.and_then(|node| node.parsed("`rollout`", faults));
    let on_missing_key = fields.one_of("on_missing_key", &OnMissingKey::NAMES, faults);
    rule.on_missing_key = on_missing_key.unwrap_or_default();
    let algorithm = match fields.get("algorithm") {
        Some(node) => node.one_of("`algorithm`", &Algorithm::NAMES, faults),
        None => Some(Algorithm::TokenBucket),
    };
    let shape_at = fields
        .get("shape")
        .map_or(node.position, |node| node.position);
    let style = BandStyle {
        // A leaky bucket can have all fields.
        algorithm: algorithm.unwrap_or(Algorithm::LeakyBucket),
        is_known: algorithm.is_some(),
        shape: fields.boolean("shape", false, faults),
        shape_at,
        hold: read_hold(fields.get("hold"), algorithm, faults),
    };
    let bands = fields.get("bands");
    rule.bands = bands.map_or(Vec::new(), |node| bands::read(node, &style, faults));
    let cost = fields.get("cost");
    let cost = cost.and_then(|node| request::read_cost(node, faults));
    rule.cost = cost.unwrap_or_default();
    rule.clamp = fields.boolean("clamp", false, faults);
    let waits = fields.one_of("on_exceed", &[("reject", false), ("wait", true)], faults);
    let max_wait = fields.get("max_wait");
    let max_wait = max_wait.and_then(|node| values::duration(node, "`max_wait`", faults));
    rule.max_wait = (waits == Some(true)).then(|| max_wait.unwrap_or(DEFAULT_MAX_WAIT));
    rule.lease = fields
        .get("lease")
        .and_then(|node| read_lease(node, faults));
    if let Some(node) = fields.get("overrides") {
        let nodes = node.list("`overrides`", faults).iter();
        rule.overrides = nodes
            .map(|node| read_override(node, &style, faults))
            .collect();
    }
    let charges = [("when_allowed", false), ("always", true)];
    rule.charge_always = fields.one_of("charge", &charges, faults).unwrap_or(false);
    let notify = fields.get("notify");
    rule.notify = notify.map_or(Vec::new(), |node| read_notify(node, faults));
    rule.reset_on_change = fields.boolean("reset_on_change", false, faults);
    rule
}

/// Reads what the rule does, and the status that it denies with.
fn read_action(fields: &Fields<'_>, faults: &mut Faults) -> Option<RuleAction> {
    let given = match fields.get("action") {
        Some(node) => node.one_of("`action`", &RuleAction::NAMES, faults)?,
        None => RuleAction::Limit,
    };
    let Some(node) = fields.get("status") else {
        return Some(given);
    };
    let (least, most) = RuleAction::STATUSES.into_inner();
    let status = node.whole("`status`", least.into(), most.into(), faults);
    let status = status.and_then(|status| u16::try_from(status).ok());
    if let RuleAction::Deny { status: default } = given {
        let status = status.unwrap_or(default);
        return Some(RuleAction::Deny { status });
    }
    faults.add(node.position, "`status` is only for `action: deny`");
    Some(given)
}

/// Reads the attributes of a rule.
fn read_attributes(node: Option<&Node>, faults: &mut Faults) -> Pairs {
    let mut texts = Vec::new();
    let pairs = node.map(|node| node.map("`attributes`", faults));
    for (name, _, value) in pairs.unwrap_or_default() {
        if let Some(value) = value.text(&format!("`{name}`"), faults) {
            texts.push((name.into(), value.into()));
        }
    }
    texts
}

/// Returns how long slots are held at most.
fn read_hold(node: Option<&Node>, algorithm: Option<Algorithm>, faults: &mut Faults) -> Duration {
    let default = DEFAULT_HOLD.as_duration();
    let Some(node) = node else { return default };
    if algorithm.is_some_and(|algorithm| algorithm != Algorithm::Concurrency) {
        let message = "`hold` is only for `algorithm: concurrency`; to hold a rate, send \
                       `hold` with the check";
        faults.add(node.position, message);
        return default;
    }
    values::hold(node, faults).unwrap_or(default)
}

/// Reads the shares that are reported; none if one of them has a fault, which would leave the
/// others at other places.
fn read_notify(node: &Node, faults: &mut Faults) -> Vec<Percent> {
    let nodes = node.list("`notify`", faults).iter();
    let shares: Vec<_> = { nodes }
        .map(|node| node.parsed("a share of `notify`", faults))
        .collect();
    shares
        .into_iter()
        .collect::<Option<_>>()
        .unwrap_or_default()
}

/// Reads a lease, which has a share and a span.
fn read_lease(node: &Node, faults: &mut Faults) -> Option<Lease> {
    let [share, span] = node.fields("`lease`", ["share", "for"], faults);
    for (field, value) in [("share", share), ("for", span)] {
        if value.is_none() && node.is_map() {
            faults.add(node.position, format!("`lease` needs a `{field}`"));
        }
    }
    let mut part = |node: &Node, is_valid: bool, expected: fn(&str) -> String| {
        if !is_valid {
            let given = node.as_text().unwrap_or(node.kind());
            faults.add(node.position, expected(given));
        }
    };
    let share = share.and_then(|node| {
        let share = node.as_text().and_then(|text| text.parse().ok());
        let share = share.filter(|share| lease::is_share(*share));
        part(node, share.is_some(), lease::expected_share);
        share
    });
    let span = span.and_then(|node| {
        let span = node.as_text().and_then(values::parse_duration);
        let span = span.filter(|span| lease::is_span(*span));
        part(node, span.is_some(), lease::expected_span);
        span
    });
    Some(Lease::new(share?, span?))
}

fn read_override(node: &Node, style: &BandStyle, faults: &mut Faults) -> Override {
    let names = ["identity", "bands", "until"];
    let [identity, bands, until] = node.fields("an override", names, faults);
    if identity.is_none() && node.is_map() {
        faults.add(node.position, "an override needs an `identity`");
    }
    Override {
        identity: identity.and_then(|node| read_identity(node, faults)),
        bands: bands.map_or(Vec::new(), |node| bands::read(node, style, faults)),
        until: until.and_then(|node| read_instant(node, faults)),
    }
}

fn read_identity(node: &Node, faults: &mut Faults) -> Option<Vec<Box<str>>> {
    let values: Option<Vec<_>> = match &node.value {
        Value::List(_) => {
            let nodes = node.list("`identity`", faults).iter();
            let texts = nodes.map(|node| node.text("a value of `identity`", faults));
            texts.map(|text| text.map(Into::into)).collect()
        }
        _ => node
            .text("`identity`", faults)
            .map(|value| vec![value.into()]),
    };
    // An empty list has been reported.
    values.filter(|values| !values.is_empty())
}

/// Reads when an override ends.
fn read_instant(node: &Node, faults: &mut Faults) -> Option<Timestamp> {
    let text = node.text("`until`", faults)?;
    let instant = parse_rfc3339(text);
    if instant.is_none() {
        let message = format!(
            "`until` must be a time from 1970 on as RFC 3339 writes it, such as \
             2027-01-01T00:00:00Z, not {text}"
        );
        faults.add(node.position, message);
    }
    instant
}
