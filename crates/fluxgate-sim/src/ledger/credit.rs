//! What was given back, and may be used again.

use std::collections::BTreeMap;

use super::figures::CounterInfo;
use super::usage::Family;

/// What an operator or a fault gave back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Return {
    /// Units of one user.
    Units(u8, u64),
    /// Units of one user that a hold was charged and did not use. Only buckets return them.
    Settled(u8, u64),
    /// All that one user has used.
    User(u8),
    /// All that anyone has used: the server lost it.
    All,
    /// All that anyone has used, and what another server decides for this time.
    Overlap(u64),
}

/// The user of a rule that counts all users together.
pub(super) const EVERYONE: u8 = u8::MAX;

/// What one user was given back.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    units: u64,
    /// Units that only buckets return.
    settled: u64,
    quotas: u64,
}

/// What was given back so far, and what was used of it.
///
/// The measure is time for buckets, in parts of a microsecond, and units for others; those of a
/// sliding window times its width. Slots are not used up: they end.
#[derive(Debug, Default)]
pub(super) struct Credit {
    /// Of each user, and of all together.
    users: BTreeMap<u8, Given>,
    /// Whole quotas of everyone.
    quotas: u64,
    /// Times in which two servers decided.
    overlaps: Vec<u64>,
    used: BTreeMap<u8, i128>,
}

impl Credit {
    pub(super) fn add(&mut self, what: Return) {
        let (user, given) = match what {
            Return::Units(user, units) => (
                user,
                Given {
                    units,
                    ..Given::default()
                },
            ),
            Return::Settled(user, settled) => (
                user,
                Given {
                    settled,
                    ..Given::default()
                },
            ),
            Return::User(user) => (
                user,
                Given {
                    quotas: 1,
                    ..Given::default()
                },
            ),
            Return::All => {
                self.quotas += 1;
                return;
            }
            Return::Overlap(span) => {
                self.quotas += 1;
                self.overlaps.push(span);
                return;
            }
        };
        for user in [user, EVERYONE] {
            let sum = self.users.entry(user).or_default();
            sum.units += given.units;
            sum.settled += given.settled;
            sum.quotas += given.quotas;
        }
    }

    /// Uses some of what was given back. Returns what is missing, or a number that is not positive.
    pub(super) fn use_up(&mut self, user: u8, amount: i128, info: &CounterInfo) -> i128 {
        let given = self.given(user, info);
        let used = self.used.entry(user).or_default();
        *used = match info.family {
            Family::Slots => amount,
            _ => *used + amount,
        };
        *used - given
    }

    fn given(&self, user: u8, info: &CounterInfo) -> i128 {
        let given = self.users.get(&user).copied().unwrap_or_default();
        let units = i128::from(given.units);
        let quotas = i128::from(self.quotas + given.quotas);
        let largest = i128::from(info.largest);
        // Two servers decide for a time.
        let windows_in = |width: u64| {
            let windows = self.overlaps.iter().map(|span| span / width + 2);
            largest * i128::from(windows.sum::<u64>())
        };
        match info.family {
            // Another version may have given them back, with longer units. Of what a server loses,
            // at most a quota was used, and what waits beside it still goes on.
            Family::Bucket => {
                let refilled = |span: &u64| i128::from(*span) * info.parts + info.longest;
                let overlaps: i128 = self.overlaps.iter().map(refilled).sum();
                let units = units + i128::from(given.settled);
                units * info.longest + quotas * info.furthest + overlaps
            }
            Family::FixedWindow(width) | Family::SlidingLog(width) => {
                units + quotas * largest + windows_in(width)
            }
            Family::SlidingWindow(width) => {
                (units + quotas * largest + windows_in(width)) * i128::from(width)
            }
            // A refund returns none.
            Family::Slots => quotas * largest,
        }
    }
}
