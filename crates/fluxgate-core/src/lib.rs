//! Exact rate limiting.
//!
//! ```
//! use fluxgate_core::{KeyedLimiter, Quota};
//!
//! let limiter = KeyedLimiter::new(Quota::per_second(10).burst(50));
//! match limiter.check("ann") {
//!     Ok(permit) => println!("go on, {} left", permit.remaining),
//!     Err(denied) => println!("{denied}"), // the limit is exceeded; retry after 100ms
//! }
//! ```
//!
//! Decisions are exact: no fraction is lost, nothing is rounded in between, and a request
//! is charged to every limit that applies, or to none. The core uses no floating point and
//! does no I/O. Time comes from the store, which gets it from a [`Clock`] or from a server.
//!
//! | to limit | use |
//! |---|---|
//! | each key by itself, in this process | [`KeyedLimiter`] |
//! | all calls together, in this process | [`DirectLimiter`] |
//! | each key by itself, over all processes | [`SharedKeyedLimiter`] on the store of `fluxgate-redis` |
//! | requests, by several rules | [`Limiter`] with [`Rule`]s in Rust or YAML |
//! | HTTP requests | the layer of `fluxgate-tower` |
//!
//! Rules define how much each client may do:
//!
//! ```
//! use fluxgate_core::{Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let api = RuleSet::builder("api")
//!     .rule(Rule::new("per-user").per_user().band(Quota::per_second(2)))
//!     .rule(Rule::new("all").global().band(Quota::per_minute(10_000)))
//!     .build()?;
//! let limiter = Limiter::new(api, MemoryStore::default());
//! let api_limits = limiter.rule_set("api")?;
//!
//! let ann = RequestContext::builder().user("ann").path("/api/x").build();
//! assert!(api_limits.check_sync(&ann).allowed());
//! assert!(api_limits.check_sync(&ann).allowed());
//! let third = api_limits.check_sync(&ann);
//! assert!(!third.allowed());
//! assert_eq!(third.violated().next().unwrap().to_string(), "per-user/b0");
//! # Ok(())
//! # }
//! ```
//!
//! The [`guide`] has more.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `fast-clock` | yes | a [`SystemClock`] that reads the processor's cycle counter, in half the time |
//! | `time-zones` | yes | calendar windows in other time zones than UTC |
//! | `tracing` | yes | a log line for each missing rule set, and `TracingObserver`, for the crate `tracing` |
//! | `yaml` | yes | rule files: `RuleSets::from_yaml` |
//! | `tokio` | | waiting: `until_ready` and `Reservation::wait`; `Limiter::watch_file` |
//! | `metrics` | | `MetricsObserver`, for the crate `metrics` |
//! | `serde` | | `Serialize` of decisions, `Serialize` and `Deserialize` of rules |
//! | `conformance` | | the suite that every [`Store`] must pass |
//!
//! Features are additive. Without the default ones, the crate has 17 crates in its tree, including
//! itself. It needs Rust 1.93.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]

mod ad_hoc;
pub mod algorithm;
mod band;
mod calendar;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod context;
mod decision;
#[cfg(any(doc, doctest))]
pub mod guide;
pub mod hold;
#[cfg(feature = "json")]
pub mod json;
pub mod key;
mod keyed;
pub mod lease;
pub mod limit;
mod limiter;
mod matcher;
pub mod memory;
mod network;
mod observer;
mod percent;
mod plan;
mod quota;
pub mod random;
mod rate;
#[cfg(feature = "tokio")]
pub mod regular_file;
#[cfg(feature = "tokio")]
pub mod renewal;
mod request_path;
mod reservation;
pub mod rules;
#[cfg(feature = "serde")]
mod serde_impls;
mod shared_keyed;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod sip;
pub mod store;
pub mod task;
pub mod text;
pub mod time;
#[cfg(feature = "yaml")]
pub mod yaml;

pub use ad_hoc::{AdHocCheck, AdHocDecision, AdHocKey};
pub use band::Band;
pub use calendar::{Calendar, CalendarUnit, TimeZone, UnknownTimeZone};
pub use clock::{Clock, ManualClock, SystemClock};
pub use context::{RequestContext, RequestContextBuilder, RequestFields};
pub use decision::{
    BandLevel, BandUse, Charge, Decision, Outcome, RuleOutcome, Violation, WaitRefusal,
};
pub use hold::{HoldId, ParseHoldIdError, Settled, Settlement};
pub use key::{IdentityError, IdentityRef, KeyPart, KeyPartError, OnMissingKey, StoredIdentity};
pub use keyed::{Denied, DirectLimiter, KeyedLimiter, Permit};
pub use lease::Lease;
pub use limit::{Algorithm, Limit, LimitBuilder, LimitError, LimitField};
#[cfg(all(feature = "tokio", feature = "yaml"))]
pub use limiter::RuleFileError;
#[cfg(feature = "tokio")]
pub use limiter::RuleWatch;
pub use limiter::{
    BandExplanation, BandState, BandTarget, CountingRule, Explanation, GroupPlace, Hold, Limiter,
    LimiterBuilder, LimiterError, PendingDecision, RuleExplanation, RuleSetLimiter, RuleVerdict,
    UnknownRuleSet,
};
pub use matcher::{PatternError, ValueMatch};
pub use memory::MemoryStore;
#[cfg(feature = "metrics")]
pub use observer::MetricsObserver;
pub use observer::Observer;
#[cfg(feature = "tracing")]
pub use observer::TracingObserver;
pub use percent::{Percent, PercentError};
pub use quota::Quota;
pub use reservation::Reservation;
pub use rules::{
    ActiveRule, Cost, FieldChange, InvalidRules, OnError, OnMissingRuleSet, Rollout, RolloutError,
    Rule, RuleAction, RuleChange, RuleChangeKind, RuleFault, RuleMode, RuleSet, RuleSetBuilder,
    RuleSets, RuleWarning, Tokens,
};
pub use shared_keyed::SharedKeyedLimiter;
pub use store::{DynStore, LocalStore, Store, StoreError};
pub use time::Timestamp;
#[cfg(feature = "yaml")]
pub use {
    rules::RulesError,
    yaml::{Fault, Position},
};

/// Paths of HTTP requests, and patterns that match them.
pub mod path {
    pub use crate::matcher::{PathSet, Pattern, PatternError};
    pub use crate::request_path::{PathError, RequestPath};
}

/// Compiles and runs the code of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
