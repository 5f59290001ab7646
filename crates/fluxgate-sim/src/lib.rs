//! Deterministic simulation of FluxGate on virtual time.
//!
//! Time passes from event to event, so a run takes only as long as its decisions, and every
//! random choice comes from a seed.
//!
//! [`fleet`] simulates many instances with leases, fast: only the state machine of leases is
//! real. The feature `world` simulates the whole store. There the instances are the real
//! `Limiter` and `RedisStore` with their tasks, timers and connections, the client library
//! included; the servers run the real scripts in Lua 5.1. Simulated are the clocks, the network,
//! the random numbers, and Redis around the scripts.
//!
//! # A run
//!
//! A **plan** (`plan.rs`) says what happens when: the rules, the servers, the latency, and a list
//! of steps, which are requests and faults. `Plan::from_seed` draws one; a plan is also JSON, with
//! a line for each step. The **world** (`world.rs`) runs it: one queue of events, in the order of
//! their time. Three judges look at the run:
//!
//! | judge | knows | finds |
//! |---|---|---|
//! | `ledger.rs` | the rules, and what clients were allowed | more than a limit, in any interval; too many slots or waiting requests |
//! | `reference.rs` | all answers, until one is lost | any answer that the algorithms in Rust would not give, so also units that are lost |
//! | `world/faults.rs` | which server decides | an instance that stays with an old primary |
//!
//! A test that fails prints the seed, the plan without the steps that it does not need, and the
//! trace of the small plan. Save the plan in `plans`: a test runs all files there.
//!
//! | to | run |
//! |---|---|
//! | try fresh seeds for 10 minutes | `FLUXGATE_LONG=1 cargo test -p fluxgate-sim --all-features fresh_seeds` |
//! | repeat a seed | the same with `FLUXGATE_SEED=N` instead |
//! | find the planted bugs, with a table | the filter `every_planted_bug` |
//!
//! # Add a fault
//!
//! 1. `plan.rs`: a variant of `Step`, with all its numbers, so that the plan alone says what
//!    happens.
//! 2. `world/faults.rs`: what it does, in `World::fault`. Change the state of servers
//!    (`World::servers`), instances or connections, and `schedule` an `Event` for its end. Draw
//!    random numbers from `World::random` only.
//! 3. If clients may be allowed more because of it, tell the ledger how much
//!    (`Ledger::give_back`). If the answers of servers are no longer those of one history, end it
//!    (`History::end`).
//! 4. `plan/draw.rs`: draw it in `Draw::faults`, or for one theme in `Draw::themed_faults`.
//! 5. `tests/world/bugs.rs`: plant a bug that only this fault shows.
//!
//! # Add an invariant
//!
//! 1. Decide what a client or an operator sees of it. What happened is known in
//!    `World::complete` (`world/steps.rs`): an operation, its answer, and when the server decided
//!    it.
//! 2. Record it in the ledger, or in a judge of its own that `World::finish` calls. A judge sees
//!    everything at the end of a run and returns the first `Violation`; one that needs the state
//!    of the moment sets `Report::violation` at once, like `World::check_primary`.
//! 3. Leave room for what is not known: a request whose reply was lost may have been charged.
//! 4. `tests/world/bugs.rs`: plant a bug that breaks it.

mod clock;
#[cfg(feature = "world")]
pub mod explore;
pub mod fleet;
#[cfg(feature = "world")]
mod ledger;
#[cfg(feature = "world")]
mod minimise;
#[cfg(feature = "world")]
mod network;
mod oracle;
#[cfg(feature = "world")]
pub mod plan;
mod random;
#[cfg(feature = "world")]
mod redis;
#[cfg(feature = "world")]
mod reference;
#[cfg(feature = "world")]
mod trace;
#[cfg(feature = "world")]
mod world;
