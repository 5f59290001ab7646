//! A rule set that many cores decide by at the same time.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;

use super::RuleSet;

/// How many sets a thread keeps at hand.
const MOST: usize = 8;

/// A rule set, held by those who decide by it and by what they decided.
///
/// Every decision holds its rule set. If all cores counted that in one place, they
/// would wait for each other there longer than deciding takes. So each thread has
/// a count of its own, and the one place is left alone.
#[derive(Clone, Debug)]
#[expect(
    clippy::redundant_allocation,
    reason = "the outer one is the thread's own count"
)]
pub struct ActiveRuleSet(Arc<Arc<RuleSet>>);

thread_local! {
    /// One of each name. A set that was replaced goes when its successor is first
    /// asked for.
    static AT_HAND: RefCell<SmallVec<[ActiveRuleSet; MOST]>> =
        const { RefCell::new(SmallVec::new_const()) };
}

impl ActiveRuleSet {
    /// This thread's hold of a rule set.
    pub(crate) fn hold(set: &Arc<RuleSet>) -> Self {
        let held = AT_HAND.try_with(|at_hand| {
            let at_hand = &mut *at_hand.borrow_mut();
            let found = at_hand.iter().find(|held| Arc::ptr_eq(&*held.0, set));
            if let Some(found) = found {
                return found.clone();
            }
            let new = Self::new(set);
            let before = at_hand.iter_mut().find(|held| held.name() == set.name());
            match before {
                Some(before) => *before = new.clone(),
                None => {
                    if at_hand.len() == MOST {
                        at_hand.remove(0);
                    }
                    at_hand.push(new.clone());
                }
            }
            new
        });
        // A thread that ends has nothing at hand any more.
        held.unwrap_or_else(|_| Self::new(set))
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
    fn a_thread_has_one_hold_and_lets_a_replaced_set_go() {
        let old = set("a", 1);
        let holds: Vec<_> = (0..3).map(|_| ActiveRuleSet::hold(&old)).collect();
        assert_eq!(Arc::strong_count(&old), 2, "the thread's one hold");
        drop(holds);
        let new = set("a", 2);
        assert_eq!(ActiveRuleSet::hold(&new).name(), "a");
        assert_eq!(Arc::strong_count(&old), 1, "it has gone");
        for name in 0..2 * MOST {
            let _ = ActiveRuleSet::hold(&set(&format!("b{name}"), 1));
        }
        assert_eq!(Arc::strong_count(&new), 1, "so many are kept and no more");
    }
}
