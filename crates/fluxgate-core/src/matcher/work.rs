//! What matching costs, counted in tests.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// So many steps were taken. Counted in tests only.
#[inline(always)]
pub(super) fn steps(count: usize) {
    #[cfg(test)]
    STEPS.set(STEPS.get() + count);
    #[cfg(not(test))]
    let _ = count;
}

/// The steps that `work` takes.
#[cfg(test)]
pub(super) fn steps_of(work: impl FnOnce()) -> usize {
    STEPS.set(0);
    work();
    STEPS.get()
}
