//! The filter, and what it is made of.

mod judge;
mod lookalikes;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fluxgate_core::PathSet;
use ipnet::IpNet;

use crate::client_ip::{ClientIpSource, TrustedProxies};
use crate::context::Identity;
use crate::headers::HeaderFamilies;
use crate::problem::FailedClosedStatus;
use crate::wait::Waits;
pub use judge::{Customize, FilterOutcome, PendingEvaluation};
pub(crate) use judge::{Next, Undecided, Waiter, must_wait};

const DEFAULT_MAX_WAITS: usize = 100;

/// How requests are counted and answered, and the places of those who wait.
/// A clone shares these places, until it is given others.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The rules it asks. None: everything passes.
    rule_set: Option<Box<str>>,
    /// Whether it has been said that there is none.
    told_of_none: Arc<AtomicBool>,
    /// The paths it is for; all that begin with `/` where none are given.
    include: Option<Arc<PathSet>>,
    /// The paths it leaves alone all the same.
    exclude: Arc<PathSet>,
    identity: Identity,
    trusted_proxies: TrustedProxies,
    /// Whether the peer is trusted, whoever it is.
    trusts_peer: bool,
    client_ip: ClientIpSource,
    headers: HeaderFamilies,
    failed_closed: FailedClosedStatus,
    waits: Arc<Waits>,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            rule_set: None,
            told_of_none: Arc::default(),
            include: None,
            exclude: Arc::default(),
            identity: Identity::default(),
            trusted_proxies: TrustedProxies::default(),
            trusts_peer: false,
            client_ip: ClientIpSource::default(),
            headers: HeaderFamilies::default(),
            failed_closed: FailedClosedStatus::default(),
            waits: Arc::new(Waits::new(DEFAULT_MAX_WAITS)),
        }
    }
}

impl Filter {
    /// Asks this rule set.
    pub fn rule_set(mut self, name: impl Into<Box<str>>) -> Self {
        self.rule_set = Some(name.into());
        self
    }

    /// Is for these paths only.
    pub fn include(mut self, paths: impl Into<Arc<PathSet>>) -> Self {
        self.include = Some(paths.into());
        self
    }

    /// Leaves these paths alone.
    pub fn exclude(mut self, paths: impl Into<Arc<PathSet>>) -> Self {
        self.exclude = paths.into();
        self
    }

    /// Reads who a request is from in these headers.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = identity;
        self
    }

    /// Takes the word of proxies in these networks about the client's address.
    pub fn trusted_proxies(mut self, networks: impl IntoIterator<Item = IpNet>) -> Self {
        self.trusted_proxies = TrustedProxies::new(networks);
        self
    }

    /// Takes the word of the peer, too, whoever it is: it is a proxy that asks on
    /// behalf of its client. What it does not say is not known.
    pub fn trust_peer(mut self) -> Self {
        self.trusts_peer = true;
        self
    }

    /// Where proxies say whom they forward for.
    pub fn client_ip(mut self, source: ClientIpSource) -> Self {
        self.client_ip = source;
        self
    }

    /// What responses tell.
    pub fn headers(mut self, families: HeaderFamilies) -> Self {
        self.headers = families;
        self
    }

    /// Sets the status of refusals that failed closed; 503 by default.
    pub fn failed_closed_status(mut self, status: FailedClosedStatus) -> Self {
        self.failed_closed = status;
        self
    }

    /// How many may wait at a time in this process; 100 if nothing is said.
    pub fn max_concurrent_waits(mut self, most: usize) -> Self {
        self.waits = Arc::new(Waits::new(most));
        self
    }

    /// The rule set that it asks, if any.
    pub fn rule_set_name(&self) -> Option<&str> {
        self.rule_set.as_deref()
    }

    /// What responses tell.
    pub fn families(&self) -> HeaderFamilies {
        self.headers
    }

    /// Returns the status of refusals that failed closed.
    pub fn failed_closed(&self) -> FailedClosedStatus {
        self.failed_closed
    }

    /// How many wait now.
    pub fn waiting(&self) -> usize {
        self.waits.taken()
    }
}
