//! Which instances share a store: each writes that it is alive.
//!
//! The hash `<prefix>:1:{rules}:instances` has the server's time and a text of each instance
//! under its id. An instance that has not written for a while is removed by the next that does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::StoreError;
use redis::{Cmd, FromRedisValue};

use crate::servers::Servers;

/// After this time without a heartbeat, an instance is gone.
const GONE: Duration = Duration::from_secs(30);
const BEAT: &str = include_str!("lua/heartbeat.lua");

/// The instances that use a store.
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

    /// Writes that an instance is alive. Returns the last heartbeat of each instance, by id.
    pub async fn beat(&self, id: &str, text: &str) -> Result<Vec<Heartbeat>, StoreError> {
        let mut beat = redis::cmd("EVAL");
        beat.arg(BEAT).arg(1).arg(&self.key);
        beat.arg(id).arg(text).arg(GONE.as_millis() as u64);
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

    /// Writes that an instance ends.
    pub async fn leave(&self, id: &str) -> Result<(), StoreError> {
        self.run::<u64>(&Cmd::hdel(&self.key, id)).await.map(drop)
    }

    async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        self.servers
            .command(command, &self.key, "a heartbeat")
            .await
    }
}
