//! A band: one limit of a rule.

use std::sync::Arc;
use std::time::Duration;

use crate::lease::BandLease;
use crate::limit::{Algorithm, FracMicros, Limit};
use crate::quota::Quota;
use crate::sip::public_hash;

/// One limit of a rule, with an id.
///
/// A [`Quota`] becomes a band that is named by its position in the rule: `b0`, `b1` and so
/// on. The counters of a band belong to its id, so an id of its own lets it keep them when
/// another band is added before it.
///
/// ```
/// use fluxgate_core::{Band, Quota, Rule};
///
/// let rule = Rule::new("per-user")
///     .per_user()
///     .band(Band::new("burst", Quota::per_second(10)))
///     .band(Band::new("daily", Quota::per_day(5_000)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Band {
    id: Box<str>,
    tag: u64,
    limit: Limit,
    /// Whether its units are charged even if the request is denied.
    charges_always: bool,
    /// Shared by clones, which makes comparing it cheap.
    lease: Option<Arc<BandLease>>,
}

impl Band {
    /// Reported in place of a band if a rule denied because a part of its key is
    /// missing. No band has this id.
    pub const MISSING_KEY: &'static str = "missing_key";

    /// The id in place of a band's if a rule denies what it matches.
    pub const DENY: &'static str = "deny";

    /// Creates a band with this id in its rule.
    pub fn new(id: impl Into<Box<str>>, limit: impl Into<Limit>) -> Self {
        let (id, limit) = (id.into(), limit.into());
        Self {
            tag: tag(&id, &limit),
            id,
            limit,
            charges_always: false,
            lease: None,
        }
    }

    /// Charges its units even if the request is denied.
    pub fn charging_always(self) -> Self {
        Self {
            charges_always: true,
            ..self
        }
    }

    /// Returns the band with another limit, and without a lease.
    pub(crate) fn with_limit(&self, limit: Limit) -> Self {
        Self {
            charges_always: self.charges_always,
            ..Self::new(&*self.id, limit)
        }
    }

    /// Returns whether its units are charged even if the request is denied.
    #[inline]
    pub fn charges_always(&self) -> bool {
        self.charges_always
    }

    /// Lets instances take units of this band in advance.
    pub(crate) fn set_lease(&mut self, lease: BandLease) {
        self.lease = Some(Arc::new(lease));
    }

    /// Returns its id in its rule.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.limit.algorithm()
    }

    /// Returns the units that fit.
    pub fn capacity(&self) -> u64 {
        self.limit.capacity()
    }

    /// Returns the window, or the usual length of a calendar window: 30 days for a month,
    /// 365 for a year.
    pub fn window(&self) -> Duration {
        self.limit.window().into()
    }

    /// Returns its limit.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Returns the time in which a whole quota returns: the window, or for a bucket the time to
    /// fill from empty.
    pub fn quota_span(&self) -> FracMicros {
        if self.algorithm().is_bucket() {
            return self.limit.rate().fill();
        }
        FracMicros {
            whole: self.limit.window().get(),
            part: 0,
        }
    }

    /// Returns whether [`Rule::notify`](crate::Rule::notify) reports its use: a whole quota takes
    /// a minute or more to return. Shorter bands would be reported all the time, and slots do not
    /// return with time.
    pub fn notifies(&self) -> bool {
        const LEAST: u64 = 60_000_000;
        self.algorithm() != Algorithm::Concurrency && self.quota_span().ceil() >= LEAST
    }

    /// Returns its lease, if instances may take units of it in advance.
    pub fn lease(&self) -> Option<&BandLease> {
        self.lease.as_deref()
    }

    /// Returns whether another band is leased like this one.
    pub fn has_same_lease(&self, other: &Band) -> bool {
        self.lease == other.lease
    }

    /// Returns the limit that a shared store counts by: that of its lease, or its own.
    pub fn shared_limit(&self) -> &Limit {
        self.lease().map_or(&self.limit, BandLease::shared)
    }

    /// Returns a hash that keeps the counters of one subject apart.
    pub fn tag(&self) -> u64 {
        self.tag
    }
}

impl From<Quota> for Band {
    fn from(quota: Quota) -> Self {
        Self::new("", quota)
    }
}

impl From<Limit> for Band {
    fn from(limit: Limit) -> Self {
        Self::new("", limit)
    }
}

/// The bucket of a band is one counter, whatever its numbers. Counts of another
/// algorithm or window are another counter: instances that still use the old rule
/// continue with theirs. Slots are one counter, however long they are held. A lease does not
/// matter: a rule keeps its counters when it gets or loses one.
fn tag(id: &str, limit: &Limit) -> u64 {
    let mut name = id.as_bytes().to_vec();
    if !limit.algorithm().is_bucket() {
        // No id has such a byte.
        name.push(0xf0 + limit.algorithm() as u8);
        if limit.algorithm() != Algorithm::Concurrency {
            name.extend_from_slice(&limit.window().get().to_le_bytes());
        }
        if let Some(calendar) = limit.windows() {
            name.extend_from_slice(calendar.unit().name().as_bytes());
            name.extend_from_slice(calendar.time_zone().name().as_bytes());
        }
    }
    public_hash(&name) as u64
}
