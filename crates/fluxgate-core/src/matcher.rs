//! Finds the rules that match a request, for all rules in one pass.
//!
//! Rules are grouped by what they require of method, headers, attributes, user, key and address:
//! first by the parts of the request, then, in a hash table, by their values. Each group
//! has one trie of its plain path patterns; if there are many with wildcards, they are
//! found by their literal fragments. The values of lists are in hash tables of their own, from
//! each value to the lists that contain it, and rules are grouped by these lists. So the cost
//! depends on the request and on the rules that match, not on the number of rules or values.

mod conditions;
mod facts;
mod group;
mod index;
mod lists;
mod path_trie;
mod pattern;
mod pattern_set;
mod requirements;
mod small_map;
mod steps;
mod verify;

use std::sync::Arc;

use foldhash::HashMap;

use crate::context::RequestContext;
use crate::network::NetworkIndex;
pub use conditions::ValueMatch;
pub(crate) use conditions::{Conditions, FailedCondition, ValueCondition, Values};
use facts::RequestFacts;
pub(crate) use group::Matches;
use group::{Group, LateTests, Signature};
pub(crate) use lists::{Field, ListIndex, ListNumber};
pub use pattern::{Pattern, PatternError};
pub use pattern_set::PathSet;
use requirements::{Networks, Part, Requirements};

/// All conditions of a rule set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matcher {
    /// The rules that require no value of a part, or of the path only.
    plain: Group,
    /// The others, by the part of the request that the fewest rules require.
    parts: Vec<(Part, Vec<Signature>)>,
    /// The index of each part in `parts`, for when they are too many to scan.
    indices: HashMap<Part, usize>,
    /// Those of the parts that a request does not have as a field.
    unnamed: Vec<usize>,
    /// The networks of all rules.
    networks: NetworkIndex,
    /// The lists that the rules use; they may be long.
    lists: Arc<ListIndex>,
    late: LateTests,
}

impl Matcher {
    /// Builds the matcher of rules with these conditions, in the order of evaluation.
    pub(crate) fn new<'c>(
        conditions: impl Iterator<Item = &'c Conditions> + Clone,
        lists: Arc<ListIndex>,
    ) -> Self {
        let networks = conditions.clone().filter_map(|it| it.ips.as_ref());
        let networks = NetworkIndex::new(networks.flatten().copied());
        let required: Vec<_> = conditions
            .clone()
            .map(|conditions| Requirements::of(conditions, &networks))
            .collect();
        let mut uses: HashMap<Part, usize> = HashMap::default();
        for part in required.iter().flat_map(Requirements::parts) {
            *uses.entry(part.clone()).or_default() += 1;
        }
        let mut matcher = Self {
            networks,
            lists,
            ..Self::default()
        };
        for (rule, (conditions, mut required)) in conditions.zip(required).enumerate() {
            let (rule, paths) = (rule as u32, conditions.paths.as_deref());
            required.sort_by_uses(&uses);
            match required.parts().next() {
                Some(first) => {
                    let signatures = matcher.signatures_of(first);
                    Signature::insert(signatures, &required, rule, paths);
                }
                None => matcher.plain.insert(rule, paths, &required.tests),
            }
        }
        let mut late = LateTests::default();
        matcher.plain.finish(&mut late);
        let signatures = matcher.parts.iter_mut().flat_map(|(_, known)| known);
        signatures.for_each(|signature| signature.finish(&mut late));
        matcher.late = late;
        matcher
    }

    /// Builds the matcher for paths that ignore case, from the conditions of this one.
    pub(crate) fn ignoring_case<'c>(
        &self,
        conditions: impl Iterator<Item = &'c Conditions>,
    ) -> Self {
        let lower: Vec<_> = conditions
            .cloned()
            .map(|mut conditions| {
                for pattern in conditions.paths.iter_mut().flatten() {
                    *pattern = pattern.to_ascii_lowercase();
                }
                conditions
            })
            .collect();
        Self::new(lower.iter(), Arc::clone(&self.lists))
    }

    fn signatures_of(&mut self, part: &Part) -> &mut Vec<Signature> {
        let index = *self.indices.entry(part.clone()).or_insert_with(|| {
            self.parts.push((part.clone(), Vec::new()));
            if !part.is_named() {
                self.unnamed.push(self.parts.len() - 1);
            }
            self.parts.len() - 1
        });
        &mut self.parts[index].1
    }

    /// Adds the rules whose conditions hold, except for `not_path`.
    pub(crate) fn find(&self, context: &RequestContext<'_>, matches: &mut Matches) {
        let facts = &RequestFacts::new(context, &self.lists);
        self.plain.collect(facts, matches);
        if !self.parts.is_empty() {
            self.find_by_parts(facts, matches);
        }
        if matches.len() > 1 {
            // A rule may match by several of its patterns, or in both forms of the path.
            matches.sort_unstable();
            matches.dedup();
        }
        if !self.late.is_empty() {
            let passes = |rule: &mut u32| match self.late.get(rule) {
                Some(tests) => tests.iter().all(|test| test.passes(facts)),
                None => true,
            };
            matches.retain(passes);
        }
    }

    /// Returns the first condition that does not hold for a request.
    pub(crate) fn first_failed(
        &self,
        conditions: &Conditions,
        context: &RequestContext<'_>,
    ) -> Option<FailedCondition> {
        conditions.first_failed(&RequestFacts::new(context, &self.lists))
    }

    fn find_by_parts(&self, facts: &RequestFacts<'_, '_>, matches: &mut Matches) {
        let context = facts.context;
        let ip = context.ip.filter(|_| !self.networks.is_empty());
        let networks: Networks = ip
            .map(|ip| self.networks.containing(ip))
            .into_iter()
            .flatten()
            .map(u32::to_le_bytes)
            .collect();
        let mut find_by = |index: usize| {
            let (part, signatures) = &self.parts[index];
            part.for_each_value(facts, &networks, |value| {
                for signature in signatures {
                    signature.find(value, facts, &networks, matches);
                }
            });
        };
        let in_request = 3 * (context.headers.len() + context.attributes.len());
        if self.parts.len() <= in_request + self.unnamed.len() {
            return (0..self.parts.len()).for_each(find_by);
        }
        // There are many more parts than the request has.
        self.unnamed.iter().copied().for_each(&mut find_by);
        for field in fields_of(context) {
            let parts = [Part::Value, Part::Present, Part::Lists];
            for part in parts.map(|part| part(field.clone())) {
                if let Some(index) = self.indices.get(&part) {
                    find_by(*index);
                }
            }
        }
    }
}

/// Returns the headers and the attributes of a request. A name may come twice.
fn fields_of(context: &RequestContext<'_>) -> impl Iterator<Item = Field> {
    let headers = context
        .headers
        .iter()
        .map(|(name, _)| Field::Header(name.to_ascii_lowercase().into()));
    let attributes = context.attributes.iter().filter_map(|(name, _)| {
        // No rule has a name that is not text.
        Some(Field::Attribute(str::from_utf8(name).ok()?.into()))
    });
    headers.chain(attributes)
}
