//! Leases: units that an instance takes in advance.

use std::time::Duration;

use crate::limit::{Algorithm, Limit};
use crate::percent::Percent;
use crate::time::Micros;

/// The shortest lease.
pub(crate) const MIN_LEASE: Micros = Micros::new(100_000);
/// The longest lease.
pub(crate) const MAX_LEASE: Micros = Micros::new(60_000_000);

/// The smallest share of a band.
const MIN_SHARE: Percent = Percent::new(1);
/// The largest share. If a store loses its state, it forgets the units that are out and grants
/// as many again. With at most half of the capacity out, that admits no more than the shared
/// part that is full again (`algorithm/grant.rs` has the argument).
const MAX_SHARE: Percent = Percent::new(50);

/// The fewest units that are worth a lease. With a single one, each request would still
/// call the store.
pub(crate) const MIN_LEASED_UNITS: u64 = 2;

/// How much of a rule's limits instances may take in advance, and for how long.
///
/// With a lease, an instance takes units for its busy keys from the shared store and then
/// decides by itself until they are spent or the lease ends. Together, all instances admit
/// no more than without. A store in memory ignores leases.
///
/// ```
/// use std::time::Duration;
///
/// use fluxgate_core::{Lease, Percent, Quota, Rule};
///
/// let rule = Rule::new("per-tenant")
///     .per_api_key()
///     .band(Quota::per_second(1_000))
///     .lease(Lease::new(Percent::new(20), Duration::from_secs(1)));
/// ```
///
/// Its values are checked when the [`RuleSet`](crate::RuleSet) is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    share: Percent,
    span: Duration,
}

impl Lease {
    /// Creates a lease of at most `share` of each band, for `span`. The share must be
    /// from 1% to 50%, the span a whole number of milliseconds from 100ms to 1m.
    pub const fn new(share: Percent, span: Duration) -> Self {
        Self { share, span }
    }

    /// Returns the share of a band's capacity that all leases together may hold.
    pub const fn share(&self) -> Percent {
        self.share
    }

    /// Returns how long a lease lasts at most: the field `for` of a rule file.
    pub const fn span(&self) -> Duration {
        self.span
    }
}

/// Returns whether so much of a band can be on lease.
pub(crate) fn is_share(share: Percent) -> bool {
    (MIN_SHARE..=MAX_SHARE).contains(&share)
}

/// The message about a share that is not one.
pub(crate) fn expected_share(given: &str) -> String {
    format!(
        "`share` must be from 1% to 50% with up to two decimals, such as 20% or 12.5%, not {given}"
    )
}

/// Returns whether a lease can last that long.
pub(crate) fn is_span(span: Duration) -> bool {
    let allowed = MIN_LEASE.as_duration()..=MAX_LEASE.as_duration();
    allowed.contains(&span) && span.subsec_nanos().is_multiple_of(1_000_000)
}

/// The message about a span that a lease cannot last.
pub(crate) fn expected_span(given: &str) -> String {
    format!(
        "`for` must be a whole number of milliseconds from 100ms to 1m, such as 500ms or 1s, \
         not {given}"
    )
}

/// The lease of one band, in units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandLease {
    most: u64,
    span: Micros,
    shared: Limit,
}

impl BandLease {
    /// Returns the lease of a band with this limit; `None` if its units cannot be leased.
    ///
    /// They can in a bucket or a fixed window whose requests neither wait nor are shaped,
    /// and if the share is at least two units.
    pub fn new(lease: &Lease, limit: &Limit) -> Option<Self> {
        let rate = limit.rate();
        let most = lease.share.of(limit.capacity());
        if rate.max_wait().is_some() || rate.shape() || most < MIN_LEASED_UNITS {
            return None;
        }
        let shared = match limit.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let mut builder = limit.to_builder();
                builder.capacity = limit.capacity() - most;
                // They would follow the capacity and the window otherwise.
                let builder = builder.refill(rate.refill());
                builder.period(rate.period().as_duration()).build().ok()?
            }
            Algorithm::FixedWindow => *limit,
            Algorithm::SlidingLog | Algorithm::SlidingWindow | Algorithm::Concurrency => {
                return None;
            }
        };
        Some(Self {
            most,
            span: Micros::from_duration(lease.span),
            shared,
        })
    }

    /// Returns L: the units that all leases of one key together hold at most.
    pub const fn most(&self) -> u64 {
        self.most
    }

    /// Returns how long a lease lasts at most.
    pub const fn span(&self) -> Micros {
        self.span
    }

    /// Returns the limit that the shared store counts by.
    ///
    /// A bucket refills while units are out on lease, so it has the capacity C − L, with the
    /// same refill: with the L units on lease it never holds more than C. A fixed window
    /// does not refill, and a lease ends with its window: it keeps its capacity.
    pub const fn shared(&self) -> &Limit {
        &self.shared
    }
}
