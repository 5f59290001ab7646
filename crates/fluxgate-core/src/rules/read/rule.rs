//! One rule.

use std::time::Duration;

use crate::hold::DEFAULT_HOLD;
use crate::key::OnMissingKey;
use crate::lease::{self, Lease};
use crate::limit::Algorithm;
use crate::percent::Percent;
use crate::rules::action::{RuleAction, misplaced};
use crate::rules::rollout::Rollout;
use crate::rules::rule::{DEFAULT_PRIORITY, Override, Rule, RuleMode};
use crate::rules::values;
use crate::time::Timestamp;
use crate::time::parse_rfc3339;
use crate::yaml::{Faults, Fields, Node, Position};

const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(5);

/// Reads rules. What has a fault is replaced by a value that causes no further fault.
pub(super) struct RuleReader<'f> {
    pub(super) faults: &'f mut Faults,
}

/// What all bands of a rule have in common.
pub(super) struct BandStyle {
    pub(super) algorithm: Algorithm,
    /// Whether the algorithm is the one of the file, which has no fault.
    pub(super) is_known: bool,
    pub(super) shape: bool,
    pub(super) shape_at: Position,
    /// How long slots are held at most.
    pub(super) hold: Duration,
}

/// The fields of a rule.
const FIELDS: [&str; 26] = [
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

impl RuleReader<'_> {
    pub(super) fn rule(&mut self, node: &Node) -> Rule {
        let fields = Fields::read(Some(node), "a rule", &FIELDS, self.faults);
        let id = fields.get("id");
        if id.is_none() && node.is_map() {
            self.faults.add(node.position, "a rule needs an `id`");
        }
        let id = id.and_then(|node| node.text("`id`", self.faults));
        let mut rule = Rule::with_id(id.map(Into::into));
        let name = fields
            .get("name")
            .and_then(|node| node.text("`name`", self.faults));
        rule.name = name.map(Into::into);
        rule.enabled = self.boolean(fields.get("enabled"), "`enabled`", true);
        let modes = [("enforce", RuleMode::Enforce), ("shadow", RuleMode::Shadow)];
        let mode = fields
            .get("mode")
            .and_then(|node| node.one_of("`mode`", &modes, self.faults));
        rule.mode = mode.unwrap_or_default();
        let priority = fields.get("priority").and_then(|node| {
            let (least, most) = (i64::from(i32::MIN), i64::from(i32::MAX));
            node.whole("`priority`", least, most, self.faults)
        });
        let priority = priority.and_then(|priority| i32::try_from(priority).ok());
        rule.priority = priority.unwrap_or(DEFAULT_PRIORITY);
        self.conditions(fields.get("match"), &mut rule);
        let known = self.action(fields.get("action"), fields.get("status"));
        rule.action = known.unwrap_or(RuleAction::Allow);
        let attributes = fields
            .get("attributes")
            .map(|node| self.texts(node, "`attributes`"));
        rule.attributes = attributes.unwrap_or_default();
        if rule.action.decides() {
            // What an unknown action may have is not known either.
            let fields = fields.iter().filter(|_| known.is_some());
            for (field, node) in fields.filter(|(field, _)| !COMMON_FIELDS.contains(field)) {
                self.faults
                    .add(node.position, misplaced(field, rule.action));
            }
            return rule;
        }
        rule.key = self.key(fields.get("scope"), fields.get("key"));
        let group = fields
            .get("group")
            .and_then(|node| node.text("`group`", self.faults));
        rule.group = group.map(Into::into);
        rule.rollout = fields.get("rollout").and_then(|node| self.rollout(node));
        let on_missing_key = fields
            .get("on_missing_key")
            .and_then(|node| node.one_of("`on_missing_key`", &OnMissingKey::NAMES, self.faults));
        rule.on_missing_key = on_missing_key.unwrap_or_default();
        let algorithm = match fields.get("algorithm") {
            Some(node) => node.one_of("`algorithm`", &Algorithm::NAMES, self.faults),
            None => Some(Algorithm::TokenBucket),
        };
        let shape = fields.get("shape");
        let style = BandStyle {
            // A leaky bucket can have all fields.
            algorithm: algorithm.unwrap_or(Algorithm::LeakyBucket),
            is_known: algorithm.is_some(),
            shape: self.boolean(shape, "`shape`", false),
            shape_at: shape.map_or(node.position, |node| node.position),
            hold: self.hold(fields.get("hold"), algorithm),
        };
        let bands = fields.get("bands");
        rule.bands = bands.map_or(Vec::new(), |node| self.bands(node, &style));
        let cost = fields.get("cost").and_then(|node| self.cost(node));
        rule.cost = cost.unwrap_or_default();
        rule.clamp = self.boolean(fields.get("clamp"), "`clamp`", false);
        let waits = fields
            .get("on_exceed")
            .and_then(|node| {
                let names = [("reject", false), ("wait", true)];
                node.one_of("`on_exceed`", &names, self.faults)
            })
            .unwrap_or(false);
        let max_wait = fields.get("max_wait");
        let max_wait = max_wait.and_then(|node| values::duration(node, "`max_wait`", self.faults));
        rule.max_wait = waits.then(|| max_wait.unwrap_or(DEFAULT_MAX_WAIT));
        rule.lease = fields.get("lease").and_then(|node| self.lease(node));
        if let Some(node) = fields.get("overrides") {
            let nodes = node.list("`overrides`", self.faults).iter();
            rule.overrides = nodes.map(|node| self.override_of(node, &style)).collect();
        }
        let charges = [("when_allowed", false), ("always", true)];
        let charge = fields.get("charge");
        let charge = charge.and_then(|node| node.one_of("`charge`", &charges, self.faults));
        rule.charge_always = charge.unwrap_or(false);
        rule.reset_on_change =
            self.boolean(fields.get("reset_on_change"), "`reset_on_change`", false);
        rule
    }

    /// Reads what the rule does, and the status that it denies with.
    fn action(&mut self, action: Option<&Node>, status: Option<&Node>) -> Option<RuleAction> {
        let given = match action {
            Some(node) => node.one_of("`action`", &RuleAction::NAMES, self.faults)?,
            None => RuleAction::Limit,
        };
        let Some(node) = status else {
            return Some(given);
        };
        let (least, most) = RuleAction::STATUSES.into_inner();
        let status = node.whole("`status`", least.into(), most.into(), self.faults);
        let status = status.and_then(|status| u16::try_from(status).ok());
        if let RuleAction::Deny { status: default } = given {
            let status = status.unwrap_or(default);
            return Some(RuleAction::Deny { status });
        }
        self.faults
            .add(node.position, "`status` is only for `action: deny`");
        Some(given)
    }

    /// Returns how long slots are held at most.
    fn hold(&mut self, node: Option<&Node>, algorithm: Option<Algorithm>) -> Duration {
        let default = DEFAULT_HOLD.as_duration();
        let Some(node) = node else { return default };
        if algorithm.is_some_and(|algorithm| algorithm != Algorithm::Concurrency) {
            let message = "`hold` is only for `algorithm: concurrency`; to hold a rate, send \
                           `hold` with the check";
            self.faults.add(node.position, message);
            return default;
        }
        values::hold(node, self.faults).unwrap_or(default)
    }

    /// Reads a lease, which has a share and a span.
    fn lease(&mut self, node: &Node) -> Option<Lease> {
        let [share, span] = node.fields("`lease`", ["share", "for"], self.faults);
        for (field, value) in [("share", share), ("for", span)] {
            if value.is_none() && node.is_map() {
                self.faults
                    .add(node.position, format!("`lease` needs a `{field}`"));
            }
        }
        let share = share.and_then(|node| self.lease_share(node));
        let span = span.and_then(|node| self.lease_span(node));
        Some(Lease::new(share?, span?))
    }

    fn lease_share(&mut self, node: &Node) -> Option<Percent> {
        let share = node.as_text().and_then(|text| text.parse().ok());
        let share = share.filter(|share| lease::is_share(*share));
        if share.is_none() {
            let given = node.as_text().unwrap_or(node.kind());
            self.faults.add(node.position, lease::expected_share(given));
        }
        share
    }

    fn lease_span(&mut self, node: &Node) -> Option<Duration> {
        let span = node.as_text().and_then(values::parse_duration);
        let span = span.filter(|span| lease::is_span(*span));
        if span.is_none() {
            let given = node.as_text().unwrap_or(node.kind());
            self.faults.add(node.position, lease::expected_span(given));
        }
        span
    }

    fn override_of(&mut self, node: &Node, style: &BandStyle) -> Override {
        let names = ["identity", "bands", "until"];
        let [identity, bands, until] = node.fields("an override", names, self.faults);
        if identity.is_none() && node.is_map() {
            self.faults
                .add(node.position, "an override needs an `identity`");
        }
        Override {
            identity: identity.and_then(|node| self.identity(node)),
            bands: bands.map_or(Vec::new(), |node| self.bands(node, style)),
            until: until.and_then(|node| self.instant(node)),
        }
    }

    /// Reads when an override ends.
    fn instant(&mut self, node: &Node) -> Option<Timestamp> {
        let text = node.text("`until`", self.faults)?;
        let instant = parse_rfc3339(text);
        if instant.is_none() {
            self.faults.add(
                node.position,
                format!(
                    "`until` must be a time from 1970 on as RFC 3339 writes it, such as \
                     2027-01-01T00:00:00Z, not {text}"
                ),
            );
        }
        instant
    }

    fn rollout(&mut self, node: &Node) -> Option<Rollout> {
        let share = node
            .text("`rollout`", self.faults)?
            .parse::<Rollout>()
            .map_err(|error| self.faults.add(node.position, error.to_string()));
        share.ok()
    }

    fn boolean(&mut self, node: Option<&Node>, what: &str, default: bool) -> bool {
        node.and_then(|node| node.boolean(what, self.faults))
            .unwrap_or(default)
    }
}
