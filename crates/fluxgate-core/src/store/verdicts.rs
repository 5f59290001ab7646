//! The verdicts on a list of checks.

use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;

use crate::algorithm::Verdict;

/// Verdicts, in the order of their checks. Derefs to a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts(SmallVec<[Verdict; 4]>);

impl Verdicts {
    /// Creates an empty list.
    #[inline]
    pub const fn new() -> Self {
        Self(SmallVec::new_const())
    }

    /// Appends a verdict.
    #[inline]
    pub fn push(&mut self, verdict: Verdict) {
        self.0.push(verdict);
    }

    /// Removes all verdicts.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Deref for Verdicts {
    type Target = [Verdict];

    #[inline]
    fn deref(&self) -> &[Verdict] {
        &self.0
    }
}

impl DerefMut for Verdicts {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Verdict] {
        &mut self.0
    }
}

impl FromIterator<Verdict> for Verdicts {
    fn from_iter<I: IntoIterator<Item = Verdict>>(verdicts: I) -> Self {
        Self(verdicts.into_iter().collect())
    }
}

impl Extend<Verdict> for Verdicts {
    fn extend<I: IntoIterator<Item = Verdict>>(&mut self, verdicts: I) {
        self.0.extend(verdicts);
    }
}

impl<'v> IntoIterator for &'v Verdicts {
    type Item = &'v Verdict;
    type IntoIter = std::slice::Iter<'v, Verdict>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
