//! Checks one rule.

use std::collections::HashSet;
use std::time::Duration;

use super::conditions::{self, ListUses, header_name};
use crate::band::Band;
use crate::key::{self, KeyPart, KeyPartError, OnMissingKey, RuleNumber, SubjectBytes};
use crate::lease::{self, Lease};
use crate::limit::{Algorithm, LimitError, LimitField, MAX_UNITS, check_span, saturating_micros};
use crate::percent::Percent;
use crate::rules::action::{RuleAction, misplaced};
use crate::rules::active_rule::{ActiveOverride, ActiveRule, Overrides};
use crate::rules::cost::{Cost, Tokens};
use crate::rules::fault::{FaultCollector, Step};
use crate::rules::names::{MAX_NAME, is_band_id, is_rule_id, is_set_name};
use crate::rules::rule::{Key, Pairs, Rule, RuleMode};
use crate::rules::write::write_rule;
use crate::sip::public_hash;
use crate::time::Micros;

/// The most shares of one rule.
const MAX_NOTIFY: usize = 10;
const EXPECTED_SHARE: &str =
    "a share of `notify` must be above 0%, up to 100%, such as 80% or 99.5%";

/// Checks one rule of a set.
pub(super) struct RuleChecker<'a, 'f, 's> {
    pub(super) set: &'a str,
    pub(super) rule: &'a Rule,
    pub(super) ipv6_prefix: u8,
    /// The groups of the set, sorted.
    pub(super) groups: &'a [&'a str],
    pub(super) faults: &'f mut FaultCollector<'s>,
}

impl RuleChecker<'_, '_, '_> {
    /// Returns the rule, or `None` if it has faults. Without a `number`, it has that of the
    /// process.
    pub(super) fn check(
        mut self,
        lists: &mut ListUses<'_>,
        number: Option<usize>,
    ) -> Option<ActiveRule> {
        let rule = self.rule;
        let faults_before = self.faults.count();
        self.id();
        let conditions = self
            .faults
            .field("match", |faults| conditions::check(rule, lists, faults));
        self.action();
        let key = self.key();
        let group = self.group();
        self.rollout();
        let max_wait = self.max_wait();
        let lease = self.lease();
        self.charge();
        let notify = self.notify();
        let mut bands = match rule.action {
            RuleAction::Limit => self.bands("a rule needs `bands`", &rule.bands, max_wait),
            _ => Vec::new(),
        };
        let own = bands.len() as u32;
        let cost = self.cost();
        self.clamp();
        let overrides = self.overrides(key.as_deref(), max_wait, &mut bands);
        let attributes = unique("attributes", &rule.attributes, self.faults);

        // Numbers are never reused, so only rules without faults get one.
        if self.faults.count() > faults_before {
            return None;
        }
        let (id, key) = (rule.id.clone()?, key?);
        let subject = subject_of_rule(self.set, &id, rule);
        let rollout = rule.rollout.map(|share| (share, subject_of(self.set, &id)));
        let number = match number {
            Some(index) => RuleNumber::at(index),
            None => RuleNumber::of(&subject),
        };
        let Some(number) = number else {
            self.faults
                .add("this process has seen a million different rules; restart it to load more");
            return None;
        };
        let mut active = ActiveRule {
            id,
            name: rule.name.clone(),
            mode: rule.mode,
            action: rule.action,
            priority: rule.priority,
            conditions,
            key,
            group,
            depends_on_call: false,
            rollout: rollout.map(|(share, subject)| (share, subject.to_vec().into())),
            on_missing_key: rule.on_missing_key,
            cost,
            clamp: rule.clamp,
            max_wait: max_wait.map(Micros::from_duration),
            lease,
            bands,
            own,
            overrides,
            attributes,
            subject: subject.to_vec().into(),
            number,
            reset_on_change: rule.reset_on_change,
            notify,
        };
        active.lease_bands();
        Some(active)
    }

    fn id(&mut self) {
        let Some(id) = &self.rule.id else { return };
        if !is_rule_id(id) {
            self.faults.add_in("id", format!("`{id}` is not a rule id; allowed is [a-z0-9][a-z0-9_-]* up to {MAX_NAME} characters"));
        }
    }

    /// Checks that a rule that decides by itself has nothing that only limits have.
    fn action(&mut self) {
        let rule = self.rule;
        if let RuleAction::Deny { status } = rule.action
            && !RuleAction::STATUSES.contains(&status)
        {
            let message = format!("`status` must be a whole number from 400 to 499, not {status}");
            self.faults.add_in("status", message);
        }
        if !rule.action.decides() {
            return;
        }
        let on_missing_key = rule.on_missing_key != OnMissingKey::default();
        let misplaced_fields = [
            ("key", rule.key != Key::Missing),
            ("group", rule.group.is_some()),
            ("rollout", rule.rollout.is_some()),
            ("on_missing_key", on_missing_key),
            ("bands", !rule.bands.is_empty()),
            ("cost", rule.cost != Cost::default()),
            ("clamp", rule.clamp),
            ("max_wait", rule.max_wait.is_some()),
            ("lease", rule.lease.is_some()),
            ("overrides", !rule.overrides.is_empty()),
            ("charge", rule.charge_always),
            ("notify", !rule.notify.is_empty()),
            ("reset_on_change", rule.reset_on_change),
        ];
        for (field, is_given) in misplaced_fields {
            if is_given {
                self.faults.add_in(field, misplaced(field, rule.action));
            }
        }
    }

    /// Returns the number of its group.
    fn group(&mut self) -> Option<u32> {
        let group = self.rule.group.as_deref()?;
        if !is_set_name(group) {
            let message =
                format!("`group` must have 1 to {MAX_NAME} bytes and no control character");
            self.faults.add_in("group", message);
        }
        let number = self.groups.binary_search(&group).ok()?;
        Some(number as u32)
    }

    fn charge(&mut self) {
        let rule = self.rule;
        let first = rule.bands.first().map(Band::limit);
        let other = if !rule.charge_always {
            return;
        } else if rule.max_wait.is_some() {
            "on_exceed: wait"
        } else if rule.lease.is_some() {
            "lease"
        } else if first.is_some_and(|limit| limit.rate().shape()) {
            "shape: true"
        } else if first.is_some_and(|limit| limit.algorithm() == Algorithm::Concurrency) {
            "algorithm: concurrency"
        } else {
            return;
        };
        let message = format!("`charge: always` cannot be combined with `{other}`; remove one");
        self.faults.add_in("charge", message);
    }

    /// Returns the shares whose use is reported, in ascending order.
    fn notify(&mut self) -> Box<[Percent]> {
        let rule = self.rule;
        self.faults.field("notify", |faults| {
            for (index, share) in rule.notify.iter().enumerate() {
                let message = if *share == Percent::new(0) {
                    EXPECTED_SHARE.to_owned()
                } else if rule.notify[..index].contains(share) {
                    format!("`{share}` appears twice in `notify`")
                } else {
                    continue;
                };
                faults.at(Step::Index(index), |faults| faults.add(message));
            }
            if rule.notify.len() > MAX_NOTIFY {
                faults.add(format!("`notify` has at most {MAX_NOTIFY} shares"));
            }
            let is_limit = !rule.action.decides() && !rule.notify.is_empty();
            // A rule without bands has that fault.
            if is_limit && !rule.bands.is_empty() && !rule.bands.iter().any(Band::notifies) {
                faults.add(
                    "`notify` needs a band whose window, or time to fill, is a minute or more; \
                     shorter bands and `algorithm: concurrency` give no events",
                );
            }
        });
        let mut shares = rule.notify.clone();
        shares.sort();
        shares.into()
    }

    fn rollout(&mut self) {
        if self.rule.rollout.is_some() && self.rule.key == Key::Global {
            let message = "a global rule has no identities that `rollout` could choose from";
            self.faults.add_in("rollout", message);
        }
    }

    /// Returns the parts of the key, with the names of headers in lower case.
    fn key(&mut self) -> Option<Vec<KeyPart>> {
        let parts = match &self.rule.key {
            Key::Missing if self.rule.action.decides() => return Some(Vec::new()),
            Key::Missing => {
                self.faults
                    .add_in("scope", "a rule needs a `scope` or a `key`");
                return None;
            }
            Key::Faulty => return None,
            Key::Global => return Some(Vec::new()),
            Key::Parts(parts) => parts,
        };
        self.faults.field("key", |faults| {
            if parts.is_empty() {
                faults.add("`key` must not be an empty list");
                return None;
            }
            let earlier = |index: usize| parts[..index].iter();
            let parts: Vec<_> = { parts.iter().enumerate() }
                .map(|(index, part)| {
                    faults.at(Step::Index(index), |faults| {
                        if earlier(index).any(|earlier| earlier.is_same(part)) {
                            faults.add(format!("`{part}` appears twice in `key`"));
                        }
                        match part {
                            KeyPart::Header(name) => header_name(name, faults).map(KeyPart::Header),
                            KeyPart::Attribute(name) if name.is_empty() => {
                                faults.add(KeyPartError(part.to_string()).to_string());
                                None
                            }
                            _ => Some(part.clone()),
                        }
                    })
                })
                .collect();
            parts.into_iter().collect()
        })
    }

    fn cost(&mut self) -> Cost {
        let cost = &self.rule.cost;
        self.faults.field("cost", |faults| match cost {
            Cost::Fixed(1..=MAX_UNITS) => cost.clone(),
            Cost::Header(name) => Cost::Header(header_name(name, faults).unwrap_or_default()),
            Cost::Attribute(name) if !name.is_empty() => cost.clone(),
            Cost::Tokens(_) => cost.clone(),
            Cost::Fixed(_) | Cost::Attribute(_) => {
                faults.add(Cost::expected());
                Cost::default()
            }
        })
    }

    fn clamp(&mut self) {
        let has_completion = matches!(
            self.rule.cost,
            Cost::Tokens(Tokens::Total | Tokens::Completion)
        );
        if self.rule.clamp && !has_completion {
            let message = "`clamp` needs a cost of llm:total_tokens or llm:completion_tokens";
            self.faults.add_in("clamp", message);
        }
    }

    /// Returns the longest wait, if it is valid.
    fn max_wait(&mut self) -> Option<Duration> {
        let max_wait = self.rule.max_wait?;
        let overrides = self.rule.overrides.iter().flat_map(|given| &given.bands);
        let mut bands = self.rule.bands.iter().chain(overrides);
        if bands.any(|band| band.limit().rate().shape()) {
            self.faults
                .add_in("shape", LimitError::ShapeAndWait.to_string());
            return None;
        }
        if { self.rule.bands.iter() }.any(|band| band.algorithm() == Algorithm::Concurrency) {
            self.faults
                .add_in("on_exceed", LimitError::WaitForSlots.to_string());
            return None;
        }
        match check_span(LimitField::MaxWait, saturating_micros(max_wait)) {
            Ok(()) => Some(max_wait),
            Err(error) => {
                self.faults.add_in("max_wait", error.to_string());
                None
            }
        }
    }

    /// Returns the lease, if it has an effect: requests that wait or are only reported are
    /// decided call by call.
    fn lease(&mut self) -> Option<Lease> {
        let lease = self.rule.lease?;
        self.faults.field("lease", |faults| {
            if !lease::is_share(lease.share()) {
                let message = lease::expected_share(&lease.share().to_string());
                faults.add_in("share", message);
            }
            if !lease::is_span(lease.span()) {
                let message = lease::expected_span(&format!("{:?}", lease.span()));
                faults.add_in("for", message);
            }
        });
        let is_exact = self.rule.mode == RuleMode::Shadow || self.rule.max_wait.is_some();
        (!is_exact).then_some(lease)
    }

    /// Returns the bands of the rule or of an override, with the rule's longest wait.
    fn bands(&mut self, missing: &str, bands: &[Band], max_wait: Option<Duration>) -> Vec<Band> {
        let rule = self.rule;
        self.faults.field("bands", |faults| {
            if bands.is_empty() {
                faults.add(missing);
            }
            let mut ids = HashSet::new();
            let mut checked = Vec::with_capacity(bands.len());
            for (index, band) in bands.iter().enumerate() {
                faults.at(Step::Index(index), |faults| {
                    faults.field("id", |faults| band_id(band.id(), &mut ids, faults));
                    let mut first = rule.bands.iter().take(1);
                    if !first.all(|first| same_style(first, band)) {
                        faults.add("all bands of a rule must use the same algorithm");
                    }
                    // Its other numbers are those of a limit.
                    let limit = band.limit().waiting(max_wait);
                    let band = Band::new(band.id(), limit.unwrap_or(*band.limit()));
                    checked.push(if rule.charge_always {
                        band.charging_always()
                    } else {
                        band
                    });
                });
            }
            checked
        })
    }

    fn overrides(
        &mut self,
        key: Option<&[KeyPart]>,
        max_wait: Option<Duration>,
        bands: &mut Vec<Band>,
    ) -> Overrides {
        let mut overrides = Overrides::default();
        for (index, given) in self.rule.overrides.iter().enumerate() {
            self.faults
                .enter([Step::Field("overrides"), Step::Index(index)]);
            let start = bands.len() as u32;
            bands.extend(self.bands("an override needs `bands`", &given.bands, max_wait));
            let own = ActiveOverride {
                bands: start..bands.len() as u32,
                until: given.until,
            };
            let ipv6_prefix = self.ipv6_prefix;
            self.faults.field("identity", |faults| {
                let identity = given
                    .identity
                    .as_ref()
                    .zip(key)
                    .and_then(|(values, key)| identity_of(values, key, ipv6_prefix, faults));
                if let Some(identity) = identity
                    && overrides.insert(identity, own).is_some()
                {
                    faults.add("there is an override for this identity already");
                }
            });
            self.faults.leave(2);
        }
        overrides
    }
}

fn band_id<'b>(id: &'b str, ids: &mut HashSet<&'b str>, faults: &mut FaultCollector<'_>) {
    if !is_band_id(id) {
        faults.add(format!("`{id}` is not a band id; allowed is [A-Za-z0-9][A-Za-z0-9_.-]* up to {MAX_NAME} characters"));
    } else if id == Band::MISSING_KEY {
        faults.add(format!(
            "`{id}` is not a band id: `RULE/{id}` reports a missing key"
        ));
    } else if !ids.insert(id) {
        faults.add(format!("this rule already has a band `{id}` (without an `id`, a band is b0, b1, … by its position)"));
    }
}

/// Returns whether two bands can belong to one rule.
fn same_style(a: &Band, b: &Band) -> bool {
    let style = |band: &Band| {
        let limit = band.limit();
        let hold = (limit.algorithm() == Algorithm::Concurrency).then(|| limit.window());
        (limit.algorithm(), limit.rate().shape(), hold)
    };
    style(a) == style(b)
}

fn identity_of(
    values: &[Box<str>],
    key: &[KeyPart],
    ipv6_prefix: u8,
    faults: &mut FaultCollector<'_>,
) -> Option<Box<[u8]>> {
    if key.is_empty() {
        faults.add("a global rule has no identities that could be overridden");
        return None;
    }
    let values: Vec<_> = values.iter().map(|value| &**value).collect();
    let mut encoded = SubjectBytes::new();
    key::encode_values(key, &values, ipv6_prefix, &mut encoded)
        .map_err(|error| faults.add(error.to_string()))
        .ok()?;
    Some(encoded.to_vec().into())
}

/// Returns the pairs, whose names must differ.
fn unique(field: &'static str, pairs: &Pairs, faults: &mut FaultCollector<'_>) -> Pairs {
    let mut names = HashSet::new();
    for (name, _) in pairs {
        if !names.insert(name) {
            faults.add_in(field, format!("`{name}` appears twice in `{field}`"));
        }
    }
    pairs.clone()
}

/// Returns the id of a rule with its set.
fn subject_of(set: &str, id: &str) -> SubjectBytes {
    let mut subject = SubjectBytes::new();
    key::encode_bytes(set, &mut subject);
    key::encode_bytes(id, &mut subject);
    subject
}

/// Returns the start of every subject of a rule. For a rule that resets on change it
/// contains a hash of the rule, so any change makes other subjects.
fn subject_of_rule(set: &str, id: &str, rule: &Rule) -> SubjectBytes {
    let mut subject = subject_of(set, id);
    if rule.reset_on_change {
        let mut text = String::new();
        write_rule(rule, &mut text);
        let hash = public_hash(text.as_bytes());
        // No part of an identity begins with this byte.
        subject.push(key::RESETS);
        subject.extend_from_slice(&hash.to_le_bytes());
    }
    subject
}
