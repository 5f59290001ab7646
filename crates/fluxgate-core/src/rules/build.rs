//! From rules as they are written to rules that decisions can use.

mod conditions;
mod rule;

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};

use super::active_rule::ActiveRule;
use super::cost::Cost;
use super::fault::{FaultCollector, InvalidRules};
use super::names::{MAX_NAME, is_set_name};
use super::rule::{List, OnError, Rule};
use super::set::{RuleOptions, RuleSet};
use crate::key::KeyPart;
use crate::matcher::{ListIndex, Matcher};
use conditions::{ListUses, check_lists};
use rule::RuleChecker;

impl RuleSet {
    /// Starts a rule set.
    ///
    /// ```
    /// use fluxgate_core::{Limiter, MemoryStore, Quota, Rule, RuleSet};
    ///
    /// # fn main() -> Result<(), fluxgate_core::InvalidRules> {
    /// let api = RuleSet::builder("api")
    ///     .rule(
    ///         Rule::new("per-user")
    ///             .per_user()
    ///             .band(Quota::per_second(10))
    ///             .band(Quota::per_minute(100)),
    ///     )
    ///     .build()?;
    /// let limiter = Limiter::new(api, MemoryStore::default());
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(name: impl Into<Box<str>>) -> RuleSetBuilder {
        RuleSetBuilder {
            name: name.into(),
            on_error: OnError::default(),
            lists: Vec::new(),
            rules: Vec::new(),
            ipv6_prefix: RuleOptions::default().ipv6_prefix,
            first_number: None,
        }
    }
}

/// Builds a [`RuleSet`].
#[derive(Clone, Debug)]
pub struct RuleSetBuilder {
    pub(super) name: Box<str>,
    pub(super) on_error: OnError,
    pub(super) lists: Vec<List>,
    pub(super) rules: Vec<Rule>,
    pub(super) ipv6_prefix: u8,
    /// The number of its first rule, if its rules are only tried.
    pub(super) first_number: Option<usize>,
}

impl RuleSetBuilder {
    /// Sets the decision when the store fails; [`OnError::Local`] by default.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Adds a named list of up to 100,000 values, which the conditions of rules can refer to:
    /// texts, or addresses and networks for [`Rule::match_ip_in`]. The cost of a decision does
    /// not grow with the list.
    ///
    /// ```
    /// use fluxgate_core::{Limiter, MemoryStore, Outcome, RequestContext, Rule, RuleSet, ValueMatch};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let api = RuleSet::builder("api")
    ///     .list("blocked", ["user-13", "user-99"])
    ///     .rule(Rule::new("no-entry").match_user(ValueMatch::in_list("blocked")).deny())
    ///     .build()?;
    /// let limiter = Limiter::new(api, MemoryStore::default());
    /// let api_limits = limiter.rule_set("api")?;
    /// let blocked = RequestContext::builder().user("user-13").build();
    /// assert_eq!(api_limits.check_sync(&blocked).outcome(), Outcome::Forbidden);
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(
        mut self,
        name: impl Into<Box<str>>,
        values: impl IntoIterator<Item = impl Into<Box<str>>>,
    ) -> Self {
        let values = values.into_iter().map(Into::into);
        self.lists.push(List::new(name, values.collect()));
        self
    }

    /// Adds a rule.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Sets how many leading bits of an IPv6 address count as one client; 64 by default.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits;
        self
    }

    /// Checks all rules and builds the set. Returns all faults if there are any.
    pub fn build(self) -> Result<RuleSet, InvalidRules> {
        let mut faults = FaultCollector::new(&self.name);
        if self.rules.is_empty() {
            faults.add_in("rules", format!("rule set `{}` has no `rules`", self.name));
        }
        if !(1..=128).contains(&self.ipv6_prefix) {
            let given = self.ipv6_prefix;
            let message =
                format!("`ipv6_prefix` must be a whole number from 1 to 128, not {given}");
            faults.add_in("ipv6_prefix", message);
        }
        if !is_set_name(&self.name) {
            faults.add(format!(
                "a rule set's name must have 1 to {MAX_NAME} bytes and no control character"
            ));
        }
        check_lists(&self.lists, &mut faults);
        let (enabled, lists) = self.check_rules(&mut faults);
        let faults = faults.into_faults();
        if !faults.is_empty() {
            return Err(InvalidRules(faults));
        }
        Ok(self.into_set(enabled, lists))
    }

    /// Returns the enabled rules, in the order of the set, and the lists that they use.
    fn check_rules(&self, faults: &mut FaultCollector<'_>) -> (Vec<ActiveRule>, ListIndex) {
        let mut lists = ListUses::new(&self.lists);
        let mut ids = HashSet::new();
        let mut enabled = Vec::new();
        let groups = group_names(&self.rules);
        for (index, rule) in self.rules.iter().enumerate() {
            let checked = faults.item("rules", index, |faults| {
                let set = &self.name;
                if let Some(id) = &rule.id
                    && !ids.insert(&**id)
                {
                    let message = format!("rule set `{set}` already has a rule `{id}`");
                    faults.add_in("id", message);
                }
                let checker = RuleChecker {
                    set,
                    rule,
                    ipv6_prefix: self.ipv6_prefix,
                    groups: &groups,
                    faults,
                };
                checker.check(&mut lists, self.first_number.map(|first| first + index))
            });
            enabled.extend(checked.filter(|_| rule.enabled));
        }
        faults.extend(lists.faults);
        (enabled, lists.index)
    }

    fn into_set(self, mut rules: Vec<ActiveRule>, lists: ListIndex) -> RuleSet {
        // Stable: rules of one priority stay in the order of the set.
        rules.sort_by_key(|rule| rule.priority);
        let reads_call = |rule: &&ActiveRule| rule.reads_call();
        let groups_of_calls: HashSet<_> = rules
            .iter()
            .filter(reads_call)
            .filter_map(|it| it.group)
            .collect();
        for rule in &mut rules {
            let is_in = |group: &u32| groups_of_calls.contains(group);
            rule.depends_on_call = rule.reads_call() || rule.group.as_ref().is_some_and(is_in);
        }
        let groups = group_names(&self.rules).into_iter();
        let groups = groups.map(Into::into).collect();
        RuleSet {
            name: self.name,
            on_error: self.on_error,
            header_names: header_names(&rules, false),
            checked_header_names: header_names(&rules, true),
            delays: rules.iter().any(ActiveRule::delays),
            counts_addresses: rules.iter().any(ActiveRule::counts_addresses),
            has_actions: rules.iter().any(|rule| rule.action.decides()),
            matcher: Matcher::new(rules.iter().map(|rule| &rule.conditions), Arc::new(lists)),
            lower_matcher: OnceLock::new(),
            rules,
            groups,
            ipv6_prefix: self.ipv6_prefix,
            written: self.rules,
            lists: self.lists,
            reporting: OnceLock::new(),
            is_reporting: false,
        }
    }
}

/// Returns the names of all groups, sorted, each once.
fn group_names(rules: &[Rule]) -> Vec<&str> {
    let names: BTreeSet<_> = rules
        .iter()
        .filter_map(|rule| rule.group.as_deref())
        .collect();
    names.into_iter().collect()
}

/// Returns the headers that conditions, keys and costs use, each once: all of them, or those whose
/// values they use.
fn header_names(rules: &[ActiveRule], only_values: bool) -> Box<[Box<str>]> {
    let matched = rules.iter().flat_map(|rule| rule.conditions.headers());
    let matched = matched.filter(|(_, compares)| *compares || !only_values);
    let matched = matched.map(|(name, _)| name);
    let in_keys = rules.iter().flat_map(ActiveRule::key);
    let in_keys = in_keys.filter_map(|part| match part {
        KeyPart::Header(name) => Some(name),
        _ => None,
    });
    let of_costs = rules.iter().filter_map(|rule| match &rule.cost {
        Cost::Header(name) => Some(name),
        _ => None,
    });
    let names: BTreeSet<_> = matched.chain(in_keys).chain(of_costs).cloned().collect();
    names.into_iter().collect()
}
