//! Real servers for tests, and a TCP proxy that injects faults.
//!
//! The kit uses threads and blocking calls, so it works with any runtime. Failures are those
//! of the test machine, so most functions panic instead of returning an error.
//!
//! Servers listen on loopback only, persist nothing, run in a directory of their own, and
//! are killed when dropped. Where `setpriv` (util-linux) is installed, the kernel kills them
//! too if the test process dies first.
//!
//! ```
//! use fluxgate_testkit::{FaultProxy, Mode, RedisServer};
//!
//! let server = RedisServer::start();
//! let mut cli = server.cli();
//! cli.command(&["SET", "greeting", "hello"]).expect_ok();
//! assert_eq!(cli.command(&["GET", "greeting"]).text(), "hello");
//!
//! let proxy = FaultProxy::start(server.addr());
//! proxy.set_mode(Mode::BlackHole);
//! let url = proxy.url("redis"); // for the client under test
//! # assert!(url.starts_with("redis://127.0.0.1:"));
//! ```
#![deny(missing_docs)]

mod cli;
mod clock;
mod cluster;
mod dir;
pub mod fuzz;
mod hash_slot;
mod http;
mod lease_trace;
mod model_server;
pub mod ports;
mod program;
mod proxy;
mod raw_upstream;
pub mod readings;
mod sentinel;
mod server;
mod tls;
pub mod tokens;
mod wait;
mod wire;

pub use cli::{Cli, Reply};
pub use clock::{Skew, SleepyClock};
pub use cluster::{HashSlotMove, RedisCluster};
pub use hash_slot::{HASH_SLOTS, hash_slot_of};
pub use http::{Answer, Http, RawClient};
pub use lease_trace::{LeaseRecorder, LeaseTraces, ReplayedLeases};
pub use model_server::ModelServer;
pub use program::Program;
pub use proxy::{FaultProxy, Mode, ReplyFault};
pub use raw_upstream::{RawConnection, RawUpstream, Received};
pub use sentinel::Sentinels;
pub use server::{RedisServer, RedisServerBuilder, valkey};
pub use tls::{Certificates, ClientAuth};
pub use wait::{Stopwatch, WAIT_TIMEOUT, now, timed, wait_for, wait_until};
pub use wire::{Ambiguous, Headers, Read, WireAnswer, WireRequest};
