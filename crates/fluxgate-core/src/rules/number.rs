//! A number for each rule of the process.

use std::sync::{LazyLock, Mutex, PoisonError};

use hashbrown::HashMap;

/// Stands for a rule, by its set and id, for as long as the process runs.
///
/// A store that keeps no identities can still tell by it which of its entries
/// belong to a rule. It is a number and not a hash so that two rules can never
/// be taken for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleNumber(u32);

impl RuleNumber {
    /// How many bits the numbers have.
    pub const BITS: u32 = 20;

    /// For limits that belong to no rule.
    pub const NONE: Self = Self(0);

    /// The number itself.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number of the rule that `key` stands for, or `None` once a process
    /// has seen a million of them.
    pub(super) fn of(key: &[u8]) -> Option<Self> {
        static NUMBERS: LazyLock<Mutex<HashMap<Box<[u8]>, u32>>> = LazyLock::new(Default::default);
        let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = numbers.get(key) {
            return Some(Self(*number));
        }
        let next = u32::try_from(numbers.len()).ok()? + 1;
        if next >> Self::BITS > 0 {
            return None;
        }
        numbers.insert(key.into(), next);
        Some(Self(next))
    }
}
