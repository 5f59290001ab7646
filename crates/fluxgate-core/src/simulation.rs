//! The clocks and random numbers of a simulated process.
//!
//! A simulator runs several processes on one thread. It sets the environment of a process
//! before it runs it; on other threads the clocks and random numbers are those of the system.

use std::cell::Cell;

/// What a simulated process reads of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The wall clock, in microseconds since the epoch.
    pub wall: u64,
    /// A clock that never steps and runs while the machine sleeps, in microseconds.
    pub boot: u64,
    /// The state of the random numbers. Equal states give equal numbers.
    pub random: u64,
}

thread_local! {
    static CURRENT: Cell<Option<Environment>> = const { Cell::new(None) };
}

/// Sets the environment of this thread; returns the one before, with its random numbers as far as
/// they were drawn.
pub fn replace(environment: Option<Environment>) -> Option<Environment> {
    CURRENT.replace(environment)
}

/// Returns the environment of this thread, if it simulates a process.
pub fn current() -> Option<Environment> {
    CURRENT.get()
}

/// Draws a random number (SplitMix64), if this thread simulates a process.
pub(crate) fn next_word() -> Option<u64> {
    let mut environment = CURRENT.get()?;
    environment.random = environment.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    CURRENT.set(Some(environment));
    let mut mixed = environment.random;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Some(mixed ^ (mixed >> 31))
}
