//! Bounds the number of waiting requests, in all processes together.
//!
//! A sorted set has one member for each waiting request. Its score is the time at which the
//! permit expires, so a process that crashes blocks the others only briefly.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use fluxgate_core::{StoreError, random};
use redis::{Cmd, Value};

use crate::codec::{Call, PermitRequest};
use crate::error::unexpected;
use crate::keys::VERSION;
use crate::node::Operation;
use crate::script::Script;
use crate::servers::Servers;

static TAKE_PERMIT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("lua/take_permit.lua")));

/// Identifies a permit: the process, and the permit within it.
type PermitId = [u8; 16];

/// The permits to wait of a deployment.
#[derive(Debug)]
pub(crate) struct WaitPermits {
    servers: Arc<Servers>,
    key: Vec<u8>,
    max: u32,
    process: u64,
    count: AtomicU64,
}

impl WaitPermits {
    pub(crate) fn new(servers: Arc<Servers>, prefix: &str, max: u32) -> Self {
        Self {
            servers,
            key: format!("{prefix}:{VERSION}:waits").into_bytes(),
            max,
            process: random::word(),
            count: AtomicU64::new(0),
        }
    }

    /// Returns a permit that the caller is about to take. It is released on drop, even if the
    /// reply that grants it is lost.
    pub(crate) fn new_permit(self: &Arc<Self>) -> AcquiredPermit {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let mut id = PermitId::default();
        id[..8].copy_from_slice(&self.process.to_le_bytes());
        id[8..].copy_from_slice(&number.to_le_bytes());
        let waits = Some(Arc::clone(self));
        AcquiredPermit { waits, id }
    }

    /// Returns the request to take a permit together with a decision.
    pub(crate) fn request_for<'a>(&'a self, permit: &'a AcquiredPermit) -> PermitRequest<'a> {
        PermitRequest {
            key: &self.key,
            max: self.max,
            id: &permit.id,
        }
    }

    /// Takes a permit for a wait of at most `longest`; `None` if all are taken.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        longest: Duration,
    ) -> Result<Option<AcquiredPermit>, StoreError> {
        let permit = self.new_permit();
        // It outlives the wait, so that it does not expire while in use.
        let millis = longest.as_millis() + 1000;
        let argument = [format!("{} {millis} ", self.max).as_bytes(), &permit.id].concat();
        let call = Call::on_key(&self.key, argument);
        let operation = Operation::Script(&TAKE_PERMIT, &call);
        let deadline = self.servers.deadline();
        match self.servers.perform(operation, &self.key, deadline).await? {
            Value::Int(1) => Ok(Some(permit)),
            Value::Int(0) => {
                permit.disarm();
                Ok(None)
            }
            _ => Err(unexpected("the script for permits")),
        }
    }

    async fn release(&self, id: &PermitId) {
        let remove = Cmd::zrem(&self.key, id);
        let operation = Operation::Command(&remove);
        let deadline = self.servers.deadline();
        // If it fails, the permit expires by itself.
        let _ = self.servers.perform(operation, &self.key, deadline).await;
    }
}

/// A permit to wait; released on drop.
#[derive(Debug)]
pub(crate) struct AcquiredPermit {
    waits: Option<Arc<WaitPermits>>,
    id: PermitId,
}

impl AcquiredPermit {
    /// Drops the permit without releasing it: it was not granted.
    pub(crate) fn disarm(mut self) {
        self.waits = None;
    }
}

impl Drop for AcquiredPermit {
    fn drop(&mut self) {
        let Some(waits) = self.waits.take() else {
            return;
        };
        let id = self.id;
        // Without a runtime the permit expires by itself.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { waits.release(&id).await });
        }
    }
}
