//! Exact rate limiting.
//!
//! Rules define how much each client may do, and a [`Limiter`] decides by them. Decisions
//! are exact: no fraction is lost, nothing is rounded in between, and a request is charged
//! to every band of every rule that applies, or to none.
//!
//! ```
//! use fluxgate_core::{Limiter, MemoryStore, RequestContext, RuleSets};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rules = "
//! rule_sets:
//!   api-limits:
//!     rules:
//!       - id: per-user
//!         scope: per_user
//!         bands: [ { capacity: 2, window: 1m } ]
//! ";
//! let limiter = Limiter::new(RuleSets::from_yaml(rules)?, MemoryStore::default());
//! let context = RequestContext::builder().user("u1").path("/api/x").build();
//! # fluxgate_core::ready(async {
//! assert!(limiter.check("api-limits", &context).await?.allowed());
//! assert!(limiter.check("api-limits", &context).await?.allowed());
//! let third = limiter.check("api-limits", &context).await?;
//! assert!(!third.allowed());
//! assert_eq!(third.violated().next().unwrap().to_string(), "per-user/b0");
//! # Ok::<_, fluxgate_core::LimiterError>(())
//! # })?;
//! # Ok(())
//! # }
//! ```
//!
//! The core does no I/O and uses no floating point. Time comes from the store, which gets
//! it from a [`Clock`] or from a server.
#![deny(missing_docs)]

mod ad_hoc;
pub mod algorithm;
mod band;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod context;
mod decision;
mod fingerprint;
#[cfg(feature = "json")]
pub mod json;
mod key;
mod keyed;
pub mod limit;
mod limiter;
mod lossless;
mod matcher;
pub mod memory;
mod plan;
mod quota;
mod rate;
mod request_path;
mod rules;
mod sip;
mod store;
mod time;
#[cfg(feature = "yaml")]
pub mod yaml;

pub use ad_hoc::{AdHocDecision, AdHocKey};
pub use algorithm::{Charged, Mode, Verdict};
pub use band::Band;
pub use clock::{Clock, ManualClock, SystemClock};
pub use context::{RequestContext, RequestContextBuilder, RequestFields};
pub use decision::{Charge, Decision, Outcome, Violation};
pub use key::{
    IdentityError, IdentityPart, KeyPart, KeyPartError, OnMissingKey, RuleNumber, Subject,
    SubjectParts, describe_identity,
};
pub use keyed::{Denied, DirectLimiter, KeyedLimiter, Permit, Reservation};
pub use limit::{Algorithm, Limit, LimitError};
pub use limiter::virtual_time::RuleVerdict;
pub use limiter::{BandState, Limiter, LimiterError, Observer, PendingDecision};
pub use lossless::lossless_text;
pub use matcher::{PathSet, Pattern, PatternError};
pub use memory::MemoryStore;
pub use quota::Quota;
pub use request_path::{PathError, RequestPath};
pub use rules::{
    ActiveRule, ActiveRuleSet, Cost, InvalidRules, OnError, OnMissingRuleSet, Rule, RuleFault,
    RuleMode, RuleOptions, RuleSet, RuleSetBuilder, RuleSets,
};
#[cfg(feature = "yaml")]
pub use rules::{RulesError, values};
pub use store::{Check, Checks, Group, Reason, Store, StoreError, Verdicts, WaitPermit};
pub use time::{Micros, Retry, Timestamp};

/// Returns the output of a future that is ready, as every future of the [`MemoryStore`]
/// is.
///
/// # Panics
/// If it is not ready.
pub fn ready<F: Future>(future: F) -> F::Output {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("the future is not ready"),
    }
}
