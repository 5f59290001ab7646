//! Rule sets.

use std::sync::{Arc, OnceLock};

use foldhash::HashMap;

use super::action::RuleAction;
use super::active_rule::ActiveRule;
use super::rule::{List, OnError, Rule, RuleMode};
use crate::context::RequestContext;
use crate::key;
use crate::limit::Limit;
use crate::matcher::Matcher;
use crate::request_path::RequestPath;
#[cfg(feature = "yaml")]
use crate::yaml::suggestion;

/// All rule sets of a process.
///
/// ```
/// use fluxgate_core::{Quota, Rule, RuleSet, RuleSets};
///
/// # fn main() -> Result<(), fluxgate_core::InvalidRules> {
/// let rule = |id: &str| Rule::new(id).per_user().band(Quota::per_second(10));
/// let rules = RuleSets::from_iter([
///     RuleSet::builder("api").rule(rule("reads")).build()?,
///     RuleSet::builder("admin").rule(rule("writes")).build()?,
/// ]);
/// assert!(rules.get("api").is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleSets {
    pub(super) sets: HashMap<Box<str>, Arc<RuleSet>>,
    pub(super) on_missing: OnMissingRuleSet,
}

/// Settings that apply to all rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleOptions {
    /// The number of leading bits of an IPv6 address that count as one client.
    pub ipv6_prefix: u8,
    /// The decision on a rule set that does not exist.
    pub on_missing_rule_set: OnMissingRuleSet,
    /// Whether the rules are only tried: they have numbers of their own, because those of the
    /// process are never reused.
    pub is_trial: bool,
}

impl Default for RuleOptions {
    fn default() -> Self {
        Self {
            ipv6_prefix: 64,
            on_missing_rule_set: OnMissingRuleSet::default(),
            is_trial: false,
        }
    }
}

/// The decision on a rule set that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissingRuleSet {
    /// Allows the request, as if no rule matched.
    #[default]
    Allow,
    /// Denies the request; waiting does not help.
    Deny,
}

impl From<RuleSet> for RuleSets {
    fn from(set: RuleSet) -> Self {
        Self::from_iter([set])
    }
}

/// Collects rule sets. If two have the same name, the last one counts.
impl FromIterator<RuleSet> for RuleSets {
    fn from_iter<I: IntoIterator<Item = RuleSet>>(sets: I) -> Self {
        let sets = sets.into_iter();
        Self {
            sets: sets.map(|set| (set.name.clone(), Arc::new(set))).collect(),
            on_missing: OnMissingRuleSet::default(),
        }
    }
}

impl RuleSets {
    /// Sets the decision on a rule set that does not exist; [`OnMissingRuleSet::Allow`] by
    /// default.
    pub fn with_on_missing(mut self, on_missing: OnMissingRuleSet) -> Self {
        self.on_missing = on_missing;
        self
    }

    /// Adds the sets of another part of the same rules, in place of those with the same
    /// name.
    pub fn extend(&mut self, other: Self) {
        self.sets.extend(other.sets);
    }

    /// Returns the same rules with other limits. `change` is called for every band,
    /// including those of overrides. If it returns `None` for any band of a rule, that
    /// rule stays as it is.
    pub fn with_limits(
        &self,
        mut change: impl FnMut(&RuleSet, &ActiveRule, &Limit) -> Option<Limit>,
    ) -> Self {
        let mut changed = self.clone();
        for set in changed.sets.values_mut() {
            let old = Arc::clone(set);
            let set = Arc::make_mut(set);
            set.reporting = OnceLock::new();
            let rules = set.rules.iter_mut();
            for (rule, old_rule) in rules.zip(&old.rules) {
                let bands = old_rule.bands.iter();
                let limits = bands.map(|band| change(&old, old_rule, band.limit()));
                if let Some(limits) = limits.collect::<Option<Vec<_>>>() {
                    rule.set_limits(limits);
                }
            }
        }
        changed
    }

    /// Returns the set of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<RuleSet>> {
        self.sets.get(name)
    }

    /// Returns the name of the set that a name is most likely a misspelling of.
    #[cfg(feature = "yaml")]
    pub fn nearest_name(&self, name: &str) -> Option<&str> {
        let mut known: Vec<&str> = self.sets.keys().map(AsRef::as_ref).collect();
        known.sort_unstable();
        suggestion(name, &known)
    }

    /// Returns `None`: names are compared with the feature `yaml` only.
    #[cfg(not(feature = "yaml"))]
    pub fn nearest_name(&self, _: &str) -> Option<&str> {
        None
    }

    /// Returns the only set, if there is exactly one.
    pub fn only(&self) -> Option<&Arc<RuleSet>> {
        let mut sets = self.sets.values();
        sets.next().filter(|_| self.sets.len() == 1)
    }

    /// Returns all sets, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<RuleSet>> {
        self.sets.values()
    }

    /// Returns the decision on a set that does not exist.
    pub fn on_missing(&self) -> OnMissingRuleSet {
        self.on_missing
    }
}

/// Rules that are evaluated together.
#[derive(Clone, Debug)]
pub struct RuleSet {
    pub(super) name: Box<str>,
    pub(super) on_error: OnError,
    /// The enabled rules in the order of evaluation.
    pub(super) rules: Vec<ActiveRule>,
    pub(super) matcher: Matcher,
    /// The matcher of paths that ignore case; made when the first of them comes.
    pub(super) lower_matcher: OnceLock<Box<Matcher>>,
    /// The names of the groups, by their numbers.
    pub(super) groups: Box<[Box<str>]>,
    pub(super) ipv6_prefix: u8,
    /// The headers that the rules use, in lower case.
    pub(super) header_names: Box<[Box<str>]>,
    /// Those among them whose values count: that are part of a key, a cost, or matched by value.
    pub(super) checked_header_names: Box<[Box<str>]>,
    /// Whether a rule may delay requests.
    pub(super) delays: bool,
    /// Whether a rule may count by the client's address.
    pub(super) counts_addresses: bool,
    /// Whether a rule decides by itself.
    pub(super) has_actions: bool,
    /// All rules, enabled or not, as they were written.
    pub(super) written: Vec<Rule>,
    /// Its lists, by their numbers.
    pub(super) lists: Vec<List>,
    /// The same rules for costs that are reported; made when the first of them comes.
    pub(super) reporting: OnceLock<Arc<RuleSet>>,
    /// Whether these are the rules for such costs.
    pub(super) is_reporting: bool,
}

/// Rule sets are equal if all their rules, enabled or not, are written with the same
/// values.
impl PartialEq for RuleSet {
    fn eq(&self, other: &Self) -> bool {
        let bands = self.rules.iter().map(|rule| &rule.bands);
        let other_bands = other.rules.iter().map(|rule| &rule.bands);
        self.name == other.name
            && self.on_error == other.on_error
            && self.ipv6_prefix == other.ipv6_prefix
            && self.written == other.written
            && self.lists == other.lists
            // [`RuleSets::with_limits`] changes them.
            && bands.eq(other_bands)
    }
}

impl RuleSet {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the decision when the store fails.
    pub fn on_error(&self) -> OnError {
        self.on_error
    }

    /// Returns the enabled rules in the order of evaluation.
    pub fn rules(&self) -> &[ActiveRule] {
        &self.rules
    }

    /// Returns the enabled rule with this id.
    pub fn rule(&self, id: &str) -> Option<&ActiveRule> {
        self.rules.iter().find(|rule| rule.id() == id)
    }

    /// Returns the headers that any enabled rule uses, in lower case, each once. A
    /// context need not hold any other headers.
    pub fn header_names(&self) -> &[Box<str>] {
        &self.header_names
    }

    /// Returns the headers whose values an enabled rule uses in its key, as its cost or in a
    /// condition, in lower case, each once. A header that only has to be present or absent is
    /// not among them.
    pub fn checked_header_names(&self) -> &[Box<str>] {
        &self.checked_header_names
    }

    /// Returns whether an enabled rule may delay requests, by a reservation or in a
    /// shaping queue.
    pub fn delays(&self) -> bool {
        self.delays
    }

    /// Returns whether an enabled rule counts by the client's address, or does so for requests
    /// that lack a part of its key. Without an address, such requests all count as one identity.
    pub fn counts_addresses(&self) -> bool {
        self.counts_addresses
    }

    /// Returns the identity that a rule of this set counts in a request, encoded; `None` if a
    /// part of the key is missing and the rule has no substitute for it.
    pub fn identity_of(
        &self,
        rule: &ActiveRule,
        context: &RequestContext<'_>,
    ) -> Option<key::SubjectBytes> {
        let mut identity = key::SubjectBytes::new();
        let (parts, on_missing) = (rule.key(), rule.on_missing_key);
        let built =
            key::encode_identity(parts, on_missing, context, self.ipv6_prefix, &mut identity);
        (built == key::Identity::Known).then_some(identity)
    }

    /// Returns the identity of these values of a rule's key, encoded.
    pub fn identity_of_values(
        &self,
        rule: &ActiveRule,
        values: &[&str],
    ) -> Option<key::SubjectBytes> {
        let mut identity = key::SubjectBytes::new();
        key::encode_values(rule.key(), values, self.ipv6_prefix, &mut identity).ok()?;
        Some(identity)
    }

    /// Returns the group of an enabled rule, if it is in one.
    pub fn group_of(&self, rule: &ActiveRule) -> Option<&str> {
        rule.group.map(|group| self.group_name(group))
    }

    /// Returns the name of a group.
    pub(crate) fn group_name(&self, number: u32) -> &str {
        &self.groups[number as usize]
    }

    /// Returns the same rules for costs that are reported after the fact: they charge denied
    /// requests too, delay none, and take no slots.
    pub(crate) fn reporting(&self) -> &Arc<Self> {
        self.reporting.get_or_init(|| {
            let mut set = self.clone();
            set.is_reporting = true;
            set.delays = false;
            for rule in &mut set.rules {
                rule.charge_always();
            }
            Arc::new(set)
        })
    }

    /// Returns whether a rule takes no part, because its slots cannot be reported.
    #[inline]
    pub(crate) fn leaves_out(&self, rule: &ActiveRule) -> bool {
        self.is_reporting && rule.takes_slots()
    }

    /// Returns whether an enforced rule exempts some calls of the Model Context Protocol from the
    /// other rules.
    pub fn exempts_calls(&self) -> bool {
        let mut rules = self.rules.iter();
        rules.any(|rule| {
            rule.depends_on_call
                && rule.mode() == RuleMode::Enforce
                && rule.action() == RuleAction::Allow
        })
    }

    /// Returns whether an enabled rule decides by itself, without a limit.
    #[inline]
    pub(crate) fn has_actions(&self) -> bool {
        self.has_actions
    }

    /// Returns the name of a list.
    pub(crate) fn list_name(&self, number: u32) -> &str {
        &self.lists[number as usize].name
    }

    /// Returns the ids of the disabled rules.
    pub fn disabled(&self) -> impl Iterator<Item = &str> {
        let disabled = self.written.iter().filter(|rule| !rule.enabled);
        disabled.filter_map(|rule| rule.id.as_deref())
    }

    /// Returns what finds the rules that match a request.
    pub(crate) fn matcher(&self, context: &RequestContext<'_>) -> &Matcher {
        let path = context.request_path();
        if !path.is_some_and(RequestPath::ignores_case) {
            return &self.matcher;
        }
        self.lower_matcher.get_or_init(|| {
            let conditions = self.rules.iter().map(|rule| &rule.conditions);
            Box::new(self.matcher.ignoring_case(conditions))
        })
    }

    /// Returns the number of leading bits of an IPv6 address that count as one client.
    pub fn ipv6_prefix(&self) -> u8 {
        self.ipv6_prefix
    }
}
