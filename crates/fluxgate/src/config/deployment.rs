//! Warns of rules that never match the requests of the config's filters, or that exceed the
//! bounds of its store.

use fluxgate_core::key::{MCP_METHOD, MCP_NAME};
use fluxgate_core::rules::RequestSource;
use fluxgate_core::yaml::{Fault, Faults, Node};
use fluxgate_core::{OnMissingRuleSet, RuleSet, RuleSets, RuleWarning};

use super::checked::Config;
use super::filters::Filter;
use super::store::Store;

/// The parts of the config that warnings about rules depend on.
#[derive(Clone, Debug, Default)]
pub struct Deployment {
    filters: Vec<FilterRequests>,
    /// The maximum number of events of all sliding logs, if the store is in memory.
    max_log_events: Option<u64>,
}

/// The requests that a filter passes to its rules.
#[derive(Clone, Debug)]
struct FilterRequests {
    name: String,
    rule_set: String,
    /// Where the config names the rule set, such as `fluxgate.yaml:3:25`; `None` if unknown.
    location: Option<String>,
    include: Vec<String>,
    attributes: Vec<String>,
}

impl FilterRequests {
    /// Returns `None` for a filter without a rule set.
    fn of(filter: &Filter, config: &Config) -> Option<Self> {
        let attributes = filter.sources.attributes().map(|(name, _)| name);
        let calls = [MCP_METHOD, MCP_NAME].into_iter();
        let of_calls = calls.filter(|_| config.gateway.reads_calls_for(&filter.name));
        Some(Self {
            name: filter.name.clone(),
            rule_set: filter.rule_set.clone()?,
            location: None,
            include: filter.include.patterns().to_vec(),
            attributes: attributes.chain(of_calls).map(str::to_owned).collect(),
        })
    }
}

impl Deployment {
    /// Returns the parts of a config that warnings about rules depend on.
    pub fn of(config: &Config) -> Self {
        let filters = { config.filters.iter() }.filter_map(|it| FilterRequests::of(it, config));
        let max_log_events = match &config.store {
            Store::Memory { max_log_events, .. } => u64::try_from(max_log_events.get()).ok(),
            Store::Redis(_) => None,
        };
        Self {
            filters: filters.collect(),
            max_log_events,
        }
    }

    /// Returns the same with the places of its parts in the file. `locate` returns the place of
    /// a field, such as `filters.main.rule_set`.
    pub fn located(config: &Config, locate: impl Fn(&str) -> Option<String>) -> Self {
        let mut deployment = Self::of(config);
        for filter in &mut deployment.filters {
            filter.location = locate(&format!("filters.{}.rule_set", filter.name));
        }
        deployment
    }

    /// Returns the warnings about rules that were read from the mapping `rule_sets`, in the
    /// order of the text.
    pub fn warnings(&self, rules: &RuleSets, rule_sets: &Node) -> Vec<Fault> {
        let mut warnings = Faults::default();
        for warning in rules.iter().flat_map(|set| self.warnings_of(set)) {
            warnings.add(warning.position_in(rule_sets), warning.message());
        }
        warnings.into_sorted()
    }

    /// Returns warnings about filters whose rule set is not among these, which are all:
    /// `fluxgate.yaml:3:25: warning: …`. `source` names the rules where the config is unknown.
    pub fn missing_rule_sets(&self, rules: &RuleSets, source: &str) -> Vec<String> {
        let filters = self.filters.iter();
        let missing = filters.filter(|filter| rules.get(&filter.rule_set).is_none());
        let effect = match rules.on_missing() {
            OnMissingRuleSet::Allow => "not limited",
            OnMissingRuleSet::Deny => "denied",
        };
        let warnings = missing.map(|filter| {
            let FilterRequests { name, rule_set, .. } = filter;
            let place = filter.location.as_deref().unwrap_or(source);
            let known = match rules.nearest_name(rule_set) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => known_sets(rules),
            };
            format!(
                "{place}: warning: filter `{name}`: there is no rule set `{rule_set}` ({known}); its \
                 requests are {effect}"
            )
        });
        warnings.collect()
    }

    fn warnings_of(&self, set: &RuleSet) -> Vec<RuleWarning> {
        let mut warnings = set.warnings();
        if let Some(max) = self.max_log_events {
            warnings.extend(set.warnings_for_log_events(max));
        }
        let filters = self.filters.iter();
        for filter in filters.filter(|filter| filter.rule_set == set.name()) {
            warnings.extend(set.warnings_for(&RequestSource {
                name: &format!("filter `{}`", filter.name),
                attributes: &filter.attributes,
                include: &filter.include,
            }));
        }
        warnings
    }
}

/// Returns the names of the rule sets, for a warning.
fn known_sets(rules: &RuleSets) -> String {
    const MAX_NAMES: usize = 5;
    let mut names: Vec<_> = rules.iter().map(|set| set.name()).collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    match (&names[..], more) {
        ([], _) => "there are none".into(),
        ([name], 0) => format!("there is: {name}"),
        (names, 0) => format!("there are: {}", names.join(", ")),
        (names, more) => format!("there are: {} and {more} more", names.join(", ")),
    }
}
