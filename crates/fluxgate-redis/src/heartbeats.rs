//! Heartbeats of the instances that share a store.
//!
//! The hash `<prefix>:1:{rules}:instances` has, under the id of each instance, the server's time
//! and a text. A heartbeat removes instances that have not written for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::StoreError;
use redis::{Cmd, FromRedisValue};

use crate::servers::Servers;

/// An instance without a heartbeat for this time is removed.
const GONE_AFTER: Duration = Duration::from_secs(30);
const BEAT_SCRIPT: &str = include_str!("lua/heartbeat.lua");

/// The heartbeats of the instances that share a store.
#[derive(Clone, Debug)]
pub struct Heartbeats {
    servers: Arc<Servers>,
    key: String,
}

/// A heartbeat of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The id of the instance.
    pub id: String,
    /// How long ago it was written.
    pub age: Duration,
    /// What the instance wrote about itself.
    pub text: String,
}

impl Heartbeats {
    pub(crate) fn new(servers: Arc<Servers>, prefix: &str) -> Self {
        Self {
            servers,
            key: format!("{prefix}:1:{{rules}}:instances"),
        }
    }

    /// Writes a heartbeat of an instance. Returns the last heartbeat of each instance, by id.
    pub async fn beat(&self, id: &str, text: &str) -> Result<Vec<Heartbeat>, StoreError> {
        let mut beat = redis::cmd("EVAL");
        beat.arg(BEAT_SCRIPT).arg(1).arg(&self.key);
        beat.arg(id).arg(text).arg(GONE_AFTER.as_millis() as u64);
        let (now, all): (u64, BTreeMap<String, String>) = self.run(&beat).await?;
        let beats = all.into_iter().filter_map(|(id, beat)| {
            let (at, text) = beat.split_once(' ')?;
            Some(Heartbeat {
                id,
                age: Duration::from_millis(now.saturating_sub(at.parse().ok()?)),
                text: text.to_owned(),
            })
        });
        Ok(beats.collect())
    }

    /// Returns the ids of the instances, also of those that have gone lately.
    pub async fn ids(&self) -> Result<Vec<String>, StoreError> {
        self.run(&Cmd::hkeys(&self.key)).await
    }

    /// Removes an instance that ends.
    pub async fn leave(&self, id: &str) -> Result<(), StoreError> {
        self.run::<u64>(&Cmd::hdel(&self.key, id)).await.map(drop)
    }

    async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        self.servers
            .command(command, &self.key, "a heartbeat")
            .await
    }
}
