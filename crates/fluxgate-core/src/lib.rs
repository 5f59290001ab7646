//! Exact rate limiting.
//!
//! ```
//! use fluxgate_core::{KeyedLimiter, Quota};
//!
//! let limiter = KeyedLimiter::new(Quota::per_second(10).burst(50));
//! match limiter.check("ann") {
//!     Ok(permit) => println!("go on, {} left", permit.remaining),
//!     Err(denied) => println!("retry after {:?}", denied.retry_after),
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
//! # fn main() -> Result<(), fluxgate_core::InvalidRules> {
//! let api = RuleSet::builder("api")
//!     .rule(Rule::new("per-user").per_user().band(Quota::per_second(2)))
//!     .rule(Rule::new("all").global().band(Quota::per_minute(10_000)))
//!     .build()?;
//! let limiter = Limiter::new(api, MemoryStore::default());
//!
//! let ann = RequestContext::builder().user("ann").path("/api/x").build();
//! assert!(limiter.check_sync("api", &ann).allowed());
//! assert!(limiter.check_sync("api", &ann).allowed());
//! let third = limiter.check_sync("api", &ann);
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
//! Features only add. Without the default ones, the crate has 15 crates in its tree,
//! including itself. It needs Rust 1.93.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]

mod ad_hoc;
mod algorithm;
mod background;
mod band;
mod calendar;
mod civil_time;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod context;
mod credentials;
mod decision;
mod fingerprint;
#[cfg(any(doc, doctest))]
pub mod guide;
mod hold;
#[cfg(feature = "json")]
mod json;
#[cfg(feature = "tokio")]
mod kept_holds;
mod key;
mod keyed;
mod lease;
mod limit;
mod limiter;
mod lossless;
mod matcher;
mod memory;
mod network;
mod observer;
mod percent;
mod plan;
mod printable;
mod quota;
mod rate;
#[cfg(feature = "tokio")]
mod regular_file;
mod request_path;
mod reservation;
mod rules;
#[cfg(feature = "serde")]
mod serde_impls;
mod sha256_hex;
mod shared_keyed;
mod sip;
pub mod store;
mod time;
#[cfg(feature = "yaml")]
mod yaml;

pub use band::Band;
pub use calendar::{Calendar, CalendarUnit, TimeZone, UnknownTimeZone};
pub use clock::{Clock, ManualClock, SystemClock};
pub use context::{RequestContext, RequestContextBuilder};
pub use decision::{Decision, Outcome, Violation, WaitRefusal};
pub use hold::{HoldId, ParseHoldIdError, Settled, Settlement};
pub use key::{IdentityError, KeyPart, KeyPartError, OnMissingKey};
pub use keyed::{Denied, DirectLimiter, KeyedLimiter, Permit};
pub use lease::Lease;
pub use limit::{Algorithm, Limit, LimitBuilder, LimitError, LimitField};
#[cfg(all(feature = "tokio", feature = "yaml"))]
pub use limiter::RuleFileError;
#[cfg(feature = "tokio")]
pub use limiter::RuleWatch;
pub use limiter::{
    BandExplanation, BandState, Explanation, GroupPlace, Hold, Limiter, LimiterBuilder,
    LimiterError, RuleExplanation,
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

/// The parts that the other crates of FluxGate are built from. They may change in any
/// release.
#[doc(hidden)]
pub mod internals {
    pub use crate::ad_hoc::{AdHocDecision, AdHocKey};
    pub mod algorithm {
        pub use crate::algorithm::*;
    }
    pub mod civil_time {
        pub use crate::civil_time::*;
    }
    #[cfg(feature = "tokio")]
    pub use crate::background::poll_once_or_spawn;
    pub use crate::background::ready;
    pub use crate::context::RequestFields;
    pub use crate::decision::{BandLevel, Charge};
    #[cfg(feature = "json")]
    pub mod json {
        pub use crate::json::*;
    }
    pub use crate::credentials::{AUTHORIZATION, counted_credentials};
    pub use crate::fingerprint::Fingerprinter;
    pub use crate::hold::{DEFAULT_HOLD, MAX_HOLD, MIN_HOLD};
    #[cfg(feature = "tokio")]
    pub use crate::kept_holds::{HoldKeeper, KeptHold, KeptHolds};
    pub use crate::key::{IdentityPart, RuleNumber, SubjectBytes, SubjectParts, describe_identity};
    pub use crate::lease::BandLease;
    pub mod limit {
        pub use crate::limit::*;
    }
    pub use crate::limiter::PendingDecision;
    pub use crate::limiter::virtual_time::RuleVerdict;
    pub use crate::lossless::lossless_text;
    pub use crate::matcher::{PathSet, Pattern};
    pub use crate::memory::{DEFAULT_MAX_KEYS, DEFAULT_MAX_LOG_EVENTS, Retention};
    pub mod printable {
        pub use crate::printable::*;
    }
    #[cfg(feature = "tokio")]
    pub mod regular_file {
        pub use crate::regular_file::*;
    }
    pub use crate::request_path::{PathError, RequestPath};
    #[cfg(feature = "yaml")]
    pub use crate::rules::values;
    pub use crate::rules::{ActiveRuleSet, RequestSource, RuleOptions};
    pub use crate::sha256_hex::parse_sha256;
    #[cfg(feature = "yaml")]
    pub mod yaml {
        pub use crate::yaml::*;
    }
}

/// Compiles and runs the code of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
