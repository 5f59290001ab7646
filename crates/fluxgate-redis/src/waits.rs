//! A bound on those who wait, in all processes together.
//!
//! A sorted set holds one member for each, with the time at which its place
//! frees itself: a process that dies keeps nobody out for long.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fluxgate_core::StoreError;
use redis::{Cmd, Value};

use crate::codec::{Call, PlaceWanted};
use crate::endpoint::unexpected;
use crate::key_name::VERSION;
use crate::node::Work;
use crate::script::Script;
use crate::store::RedisStore;

static ENTER: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/enter_wait.lua")));

/// The name of a place.
pub(crate) type PlaceId = [u8; 16];

/// What the places of a deployment have in common.
#[derive(Debug)]
pub(crate) struct Waits {
    key: Vec<u8>,
    most: u32,
    process: u64,
    count: AtomicU64,
}

impl Waits {
    pub(crate) fn new(prefix: &str, most: u32) -> Self {
        Self {
            key: format!("{prefix}:{VERSION}:waits").into_bytes(),
            most,
            process: RandomState::new().hash_one(0),
            count: AtomicU64::new(0),
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The name of a new place: of the process, and of the place in it.
    pub(crate) fn next_id(&self) -> PlaceId {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let mut id = PlaceId::default();
        id[..8].copy_from_slice(&self.process.to_le_bytes());
        id[8..].copy_from_slice(&number.to_le_bytes());
        id
    }

    /// A place of this name, to be taken with a decision.
    pub(crate) fn wanted<'a>(&'a self, id: &'a PlaceId) -> PlaceWanted<'a> {
        PlaceWanted {
            key: &self.key,
            most: self.most,
            id,
        }
    }

    /// Takes a place; says whether there was one.
    pub(crate) async fn enter(
        &self,
        id: &PlaceId,
        longest: Duration,
        perform: impl AsyncFnOnce(&Work<'_>, &[u8]) -> Result<Value, StoreError>,
    ) -> Result<bool, StoreError> {
        // A place outlives the wait a little, so that nobody's frees itself
        // while it is still waited in.
        let millis = longest.as_millis() + 1000;
        let call = Call {
            keys: vec![&self.key],
            argument: [format!("{} {millis} ", self.most).as_bytes(), id].concat(),
            now: None,
        };
        match perform(&Work::Script(&ENTER, &call), &self.key).await? {
            Value::Int(entered @ (0 | 1)) => Ok(entered == 1),
            _ => Err(unexpected("the script of the waiters")),
        }
    }

    /// The command that gives a place back.
    pub(crate) fn leave(&self, id: &PlaceId) -> Cmd {
        let mut leave = redis::cmd("ZREM");
        leave.arg(&self.key).arg(id);
        leave
    }
}

/// A place among those who wait; given back when it is dropped.
#[derive(Debug)]
pub struct WaitPlace(Option<(RedisStore, PlaceId)>);

impl WaitPlace {
    pub(crate) fn new(store: RedisStore, id: PlaceId) -> Self {
        Self(Some((store, id)))
    }

    pub(crate) const fn unbounded() -> Self {
        Self(None)
    }

    /// There was none after all.
    pub(crate) fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for WaitPlace {
    fn drop(&mut self) {
        let Some((store, id)) = self.0.take() else {
            return;
        };
        // Without a runtime it frees itself when its time is over.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { store.end_wait(&id).await });
        }
    }
}
