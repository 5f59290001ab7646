//! Finding the primary by asking sentinels.

use std::sync::atomic::{AtomicUsize, Ordering};

use fluxgate_core::{Reason, StoreError};
use redis::Value;
use redis::aio::MultiplexedConnection;

use crate::endpoint::{Endpoint, unexpected};
use crate::error::{Address, error, store_error};

/// Those who know where the primary is.
#[derive(Debug)]
pub(crate) struct Sentinels {
    sentinels: Vec<Endpoint>,
    /// How to log in at the primary; its address comes from the sentinels.
    server: Endpoint,
    master: String,
    /// Who answered last, and is asked first.
    first: AtomicUsize,
}

impl Sentinels {
    pub(crate) fn new(sentinels: Vec<Endpoint>, server: Endpoint, master: String) -> Self {
        Self {
            sentinels,
            server,
            master,
            first: AtomicUsize::new(0),
        }
    }

    pub(crate) fn name(&self) -> String {
        format!("the primary of {}", self.master)
    }

    /// What a sentinel calls the primary, if it says so itself, with a
    /// connection to it: a sentinel may not have heard of a failover yet.
    pub(crate) async fn primary(&self) -> Result<(Endpoint, MultiplexedConnection), StoreError> {
        let first = self.first.load(Ordering::Relaxed);
        let mut last = error(Reason::RedisError, "there are no sentinels");
        for step in 0..self.sentinels.len() {
            let index = (first + step) % self.sentinels.len();
            // Should it keep us until we are out of time, another is first then.
            self.first.store(index + 1, Ordering::Relaxed);
            match self.ask(&self.sentinels[index]).await {
                Ok(primary) => {
                    self.first.store(index, Ordering::Relaxed);
                    return Ok(primary);
                }
                Err(cause) => last = cause,
            }
        }
        Err(last)
    }

    async fn ask(
        &self,
        sentinel: &Endpoint,
    ) -> Result<(Endpoint, MultiplexedConnection), StoreError> {
        let mut connection = sentinel.connect().await?;
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master);
        let address = connection.send_packed_command(&question).await;
        let address = address.and_then(Value::extract_error);
        let address = match address.map_err(|cause| store_error(&cause))? {
            Value::Nil => {
                let message = format!(
                    "the sentinel at {} knows no primary named {:?}",
                    sentinel.name(),
                    self.master
                );
                return Err(error(Reason::RedisError, &message));
            }
            address => address,
        };
        let address: (String, u16) = redis::from_redis_value(address)
            .map_err(|_| unexpected(&format!("the sentinel at {}", sentinel.name())))?;
        self.connect_if_primary(address).await
    }

    async fn connect_if_primary(
        &self,
        address: Address,
    ) -> Result<(Endpoint, MultiplexedConnection), StoreError> {
        let server = self.server.at(address);
        let mut connection = server.connect().await?;
        let role = connection.send_packed_command(&redis::cmd("ROLE")).await;
        let role = role.and_then(Value::extract_error);
        let role = role.map_err(|cause| store_error(&cause))?;
        match role {
            Value::Array(role) if role.first().is_some_and(is_master) => Ok((server, connection)),
            _ => {
                let message = format!("{} is not the primary any more", server.name());
                Err(error(Reason::Readonly, &message))
            }
        }
    }
}

fn is_master(role: &Value) -> bool {
    match role {
        Value::BulkString(role) => role == b"master",
        Value::SimpleString(role) => role == "master",
        _ => false,
    }
}
