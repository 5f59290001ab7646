//! A simulated Redis server: data, expiry, scripts, errors.
//!
//! It has the commands that `fluxgate-redis` sends for decisions, holds, leases and stored rules,
//! with the semantics of Redis 7 as its documentation describes them. The scripts are the real
//! ones, run by Lua 5.1.

mod commands;
mod keyspace;
mod pack;
mod reply;
mod script;
mod server;
mod sorted_set;

pub(crate) use reply::{Reply, parse_command};
pub(crate) use script::Interpreter;
pub use script::ScriptPatch;
pub(crate) use server::{Condition, HashSlotMap, Role, Server, Session, Surroundings, hash_slot};
