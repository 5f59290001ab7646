//! A rule set that many threads use at the same time.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;

use super::set::RuleSet;

/// How many sets a thread caches.
const MAX_CACHED: usize = 8;

/// A rule set that is active, or was when the request came.
///
/// Every decision holds its rule set. If all cores updated one reference count, that
/// would take longer than the decision itself. So each thread has an `Arc` of its own
/// around the shared one.
#[derive(Clone, Debug)]
#[expect(
    clippy::redundant_allocation,
    reason = "the outer count belongs to one thread"
)]
pub struct ActiveRuleSet(Arc<Arc<RuleSet>>);

thread_local! {
    /// One set of each name. A replaced set is dropped when its successor is first used.
    static CACHE: RefCell<SmallVec<[ActiveRuleSet; MAX_CACHED]>> =
        const { RefCell::new(SmallVec::new_const()) };
}

impl ActiveRuleSet {
    /// Returns this thread's reference to a rule set.
    pub(crate) fn of(set: &Arc<RuleSet>) -> Self {
        let cached = CACHE.try_with(|cache| {
            let cache = &mut *cache.borrow_mut();
            if let Some(found) = cache.iter().find(|cached| Arc::ptr_eq(&*cached.0, set)) {
                return found.clone();
            }
            let new = Self::new(set);
            let replaced = cache.iter_mut().find(|cached| cached.name() == set.name());
            match replaced {
                Some(replaced) => *replaced = new.clone(),
                None => {
                    if cache.len() == MAX_CACHED {
                        cache.remove(0);
                    }
                    cache.push(new.clone());
                }
            }
            new
        });
        // A thread that is ending has no cache any more.
        cached.unwrap_or_else(|_| Self::new(set))
    }

    /// Returns the same rules for costs that are reported. They are not cached, in whose place
    /// they would drop those of requests.
    pub(crate) fn reporting(&self) -> Self {
        Self::new(RuleSet::reporting(self))
    }

    fn new(set: &Arc<RuleSet>) -> Self {
        Self(Arc::new(Arc::clone(set)))
    }
}

impl Deref for ActiveRuleSet {
    type Target = RuleSet;

    fn deref(&self) -> &RuleSet {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::RuleSets;

    fn set(name: &str, capacity: u64) -> Arc<RuleSet> {
        let yaml = format!(
            "rule_sets: {{ {name}: {{ rules: [ {{ id: r, scope: global, \
             bands: [ {{ capacity: {capacity}, window: 1s }} ] }} ] }} }}"
        );
        let sets = RuleSets::from_yaml(&yaml).unwrap();
        Arc::clone(sets.get(name).unwrap())
    }

    #[test]
    fn a_thread_holds_one_reference_and_drops_replaced_sets() {
        let old = set("a", 1);
        let held: Vec<_> = (0..3).map(|_| ActiveRuleSet::of(&old)).collect();
        assert_eq!(Arc::strong_count(&old), 2, "the thread's one reference");
        drop(held);
        let new = set("a", 2);
        assert_eq!(ActiveRuleSet::of(&new).name(), "a");
        assert_eq!(Arc::strong_count(&old), 1, "it is dropped");
        for name in 0..2 * MAX_CACHED {
            let _ = ActiveRuleSet::of(&set(&format!("b{name}"), 1));
        }
        assert_eq!(Arc::strong_count(&new), 1, "the cache is bounded");
    }
}
