//! How to limit with this crate, from the first limit to rules that change at run time.
//!
//! 1. [The first limit](#the-first-limit)
//! 2. [Quotas and algorithms](#quotas-and-algorithms)
//! 3. [Several limits at once](#several-limits-at-once)
//! 4. [Tiers](#tiers)
//! 5. [Waiting](#waiting)
//! 6. [Refunds and resets](#refunds-and-resets)
//! 7. [Tests with a fake clock](#tests-with-a-fake-clock)
//! 8. [Limits over several processes](#limits-over-several-processes)
//! 9. [Observing decisions](#observing-decisions)
//! 10. [Rules that change at run time](#rules-that-change-at-run-time)
//!
//! # The first limit
//!
//! A [`KeyedLimiter`] limits each key by itself:
//!
//! ```
//! use fluxgate_core::{KeyedLimiter, Quota};
//!
//! fn main() {
//!     let limiter = KeyedLimiter::new(Quota::per_minute(2));
//!     for _ in 0..3 {
//!         println!("{:?}", limiter.check("ann"));
//!     }
//! }
//! ```
//!
//! The first two calls return a [`Permit`] with the units that are left. The third returns
//! [`Denied`] with the time after which it would pass. A key is anything that implements
//! [`Hash`]: a string, an address, a tuple of both. [`KeyedLimiter::check_n`] takes several
//! units, for calls that do not all cost the same.
//!
//! A [`DirectLimiter`] has no keys and limits all calls together. Both are cheap to clone, and
//! clones share their state, so give each task a clone.
//!
//! # Quotas and algorithms
//!
//! A [`Quota`] is a number of units in a window. By default it is a token bucket: the units
//! can be taken at once and return at a steady rate.
//!
//! ```
//! use std::time::Duration;
//!
//! use fluxgate_core::{Algorithm, Quota};
//!
//! // Up to 10 at once; one returns every tenth of a second.
//! const API: Quota = Quota::per_second(10);
//! // The same rate, but up to 50 at once.
//! const BURSTY: Quota = Quota::per_second(10).burst(50);
//! // One every 20 minutes.
//! const PASSWORD_RESETS: Quota = Quota::per(1, Duration::from_secs(20 * 60));
//! // At most 1,000 in any 24 hours.
//! const EXPORTS: Quota = Quota::per_day(1_000).algorithm(Algorithm::SlidingLog);
//! ```
//!
//! A quota that makes no sense, such as one of zero units, is a compile-time error in a
//! `const`. For numbers that are read at run time, [`Quota::try_per`] and [`Limit::builder`]
//! return an error.
//!
//! | algorithm | choose it if |
//! |---|---|
//! | [`TokenBucket`](Algorithm::TokenBucket) | in doubt: bursts are fine, the average must hold |
//! | [`LeakyBucket`](Algorithm::LeakyBucket) | the callee needs a steady flow; with [`Quota::shaped`] calls are spaced out |
//! | [`FixedWindow`](Algorithm::FixedWindow) | quotas start afresh at the full hour or day, as in a billing period |
//! | [`SlidingLog`](Algorithm::SlidingLog) | no window of this length may ever see more; it stores every unit |
//! | [`SlidingWindow`](Algorithm::SlidingWindow) | a sliding log would take too much memory and an estimate is enough |
//!
//! Buckets can reserve units, so callers that wait are served in order. Windows and logs
//! cannot.
//!
//! # Several limits at once
//!
//! A limiter with several quotas takes a unit of each, or of none:
//!
//! ```
//! use fluxgate_core::{KeyedLimiter, Quota};
//!
//! let limiter = KeyedLimiter::new([Quota::per_second(2), Quota::per_day(1_000)]);
//! assert!(limiter.check("ann").is_ok());
//! assert!(limiter.check("ann").is_ok());
//! // The quota of the second is used up. That of the day is not charged.
//! assert!(limiter.check("ann").is_err());
//! ```
//!
//! To count one request by different keys, write a [`Rule`] for each key. A rule has one key
//! and one or more bands, which are quotas. A request is charged to every rule that matches
//! it, or to none:
//!
//! ```
//! use fluxgate_core::{Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let per_user = Rule::new("per-user")
//!     .per_user()
//!     .band(Quota::per_second(10))
//!     .band(Quota::per_hour(5_000));
//! let logins = Rule::new("logins")
//!     .match_method("POST")
//!     .match_path("/login")
//!     .per_ip()
//!     .band(Quota::per_minute(1));
//! let everyone = Rule::new("everyone").global().band(Quota::per_second(1_000));
//! let api = RuleSet::builder("api").rule(per_user).rule(logins).rule(everyone);
//! let limiter = Limiter::new(api.build()?, MemoryStore::default());
//! let api_limits = limiter.rule_set("api")?;
//!
//! let login = RequestContext::builder()
//!     .user("ann")
//!     .ip([192, 0, 2, 7])
//!     .method("POST")
//!     .path("/login")
//!     .build();
//! assert!(api_limits.check_sync(&login).allowed());
//! let second = api_limits.check_sync(&login);
//! assert!(!second.allowed());
//! assert_eq!(second.rule().map(|rule| rule.id()), Some("logins"));
//! # Ok(())
//! # }
//! ```
//!
//! [`Limiter::check_all`] decides several requests all or nothing.
//!
//! # Tiers
//!
//! Give each plan a rule that matches an attribute, put these rules into a group, and let the
//! last one match everybody else. Of a group only the first rule that matches applies. A rule
//! outside the group applies to all plans, on top of their own limits:
//!
//! ```
//! use fluxgate_core::{KeyPart, Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! fn tier(name: &str, quota: Quota) -> Rule {
//!     Rule::new(name)
//!         .group("plan")
//!         .key([KeyPart::Attribute("customer".into())])
//!         .band(quota)
//! }
//!
//! let api = RuleSet::builder("api")
//!     .rule(
//!         tier("pro", Quota::per_minute(5))
//!             .match_attribute("plan", ["pro", "team"])
//!             // One customer has bought more.
//!             .override_for(["acme"], [Quota::per_minute(50)]),
//!     )
//!     .rule(tier("others", Quota::per_minute(2)))
//!     .rule(Rule::new("all-plans").global().band(Quota::per_second(1_000)))
//!     .build()?;
//! let limiter = Limiter::new(api, MemoryStore::default());
//! let api_limits = limiter.rule_set("api")?;
//!
//! let limit_of = |customer: &str, plan: &str| {
//!     let context = RequestContext::builder()
//!         .attribute("customer", customer)
//!         .attribute("plan", plan)
//!         .build();
//!     api_limits.check_sync(&context).limit()
//! };
//! assert_eq!(limit_of("globex", "team"), Some(5));
//! assert_eq!(limit_of("acme", "pro"), Some(50));
//! assert_eq!(limit_of("initech", "unknown"), Some(2));
//! # Ok(())
//! # }
//! ```
//!
//! Take the plan from your own data or from a verified token, not from a header that the
//! client can choose.
//!
//! A new limit can start with a share of the customers: [`Rule::rollout`] enforces a rule for
//! some identities, and only reports what it would deny for the others.
//!
//! Instances that share a store can take units in advance and decide by themselves:
//! [`Rule::lease`](crate::Rule::lease).
//!
//! # Waiting
//!
//! With the feature `tokio`, `until_ready` waits for a unit and takes it. Callers of one key
//! are served in order:
//!
//! ```
//! use fluxgate_core::{KeyedLimiter, Quota};
//!
//! # async fn fetch(_: &str) {}
//! async fn crawl(limiter: KeyedLimiter, pages: &[(&str, &str)]) {
//!     for (host, page) in pages {
//!         limiter.until_ready(host).await;
//!         fetch(page).await;
//!     }
//! }
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
//! # let limiter = KeyedLimiter::new(Quota::per_second(100).burst(1));
//! # runtime.unwrap().block_on(crawl(limiter, &[("a", "/1"), ("a", "/2"), ("b", "/1")]));
//! ```
//!
//! Without a runtime, [`KeyedLimiter::reserve`] takes units ahead of time and returns the
//! wait. A [`Reservation`] that is dropped gives its units back:
//!
//! ```
//! use std::time::Duration;
//!
//! use fluxgate_core::{KeyedLimiter, Quota};
//!
//! let limiter = KeyedLimiter::new(Quota::per_second(100).burst(1));
//! for _ in 0..3 {
//!     match limiter.reserve("ann", Duration::from_millis(500)) {
//!         Ok(reservation) => std::thread::sleep(reservation.into_delay()),
//!         Err(denied) => println!("half a second is not enough: {denied}"),
//!     }
//! }
//! ```
//!
//! A rule says how long its requests may wait. [`Limiter::until_ready`] waits that long and
//! [`Limiter::reserve`] returns the wait. [`Limiter::check`] waits for nothing: the caller
//! must wait for [`Decision::delay`] itself.
//!
//! ```
//! use std::time::Duration;
//!
//! use fluxgate_core::{Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mails = Rule::new("mails")
//!     .global()
//!     .band(Quota::per_second(20).burst(1))
//!     .wait_up_to(Duration::from_secs(2));
//! let set = RuleSet::builder("outgoing").rule(mails).build()?;
//! let limiter = Limiter::new(set, MemoryStore::default());
//! let outgoing = limiter.rule_set("outgoing")?;
//!
//! for _ in 0..3 {
//!     match outgoing.until_ready(&RequestContext::default()).await {
//!         Ok(_) => println!("send"),
//!         Err(denied) => println!("too many are waiting: {:?}", denied.retry_after()),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Refunds and resets
//!
//! Refund units that were taken and not used, and reset a key to give it a full quota:
//!
//! ```
//! use fluxgate_core::{KeyedLimiter, Quota};
//!
//! let tokens = KeyedLimiter::new(Quota::per_day(1_000));
//! assert_eq!(tokens.check_n("ann", 600).unwrap().remaining, 400);
//! // The answer was shorter than expected.
//! assert_eq!(tokens.refund("ann", 250), 650);
//! assert!(tokens.reset("ann"));
//! assert_eq!(tokens.peek("ann").unwrap().remaining, 1_000);
//! ```
//!
//! A [`Limiter`] does the same for an identity, which has one value for each part of the
//! rule's key. [`Limiter::state`] shows its bands:
//!
//! ```
//! use fluxgate_core::{Limiter, MemoryStore, Quota, Rule, RuleSet};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let per_user = Rule::new("per-user").per_user().band(Quota::per_day(10));
//! let limiter = Limiter::new(
//!     RuleSet::builder("api").rule(per_user).build()?,
//!     MemoryStore::default(),
//! );
//! assert!(limiter.consume("api", "per-user", &["ann"], Some(7)).await?.allowed());
//! assert_eq!(limiter.refund("api", "per-user", &["ann"], 4).await?, 7);
//! assert_eq!(limiter.state("api", "per-user", &["ann"]).await?[0].remaining, 7);
//! limiter.reset("api", "per-user", &["ann"]).await?;
//! assert_eq!(limiter.state("api", "per-user", &["ann"]).await?[0].remaining, 10);
//! # Ok(())
//! # }
//! ```
//!
//! # Tests with a fake clock
//!
//! A [`ManualClock`] stands still until a test moves it. Each limiter takes one by
//! `with_clock`; for a [`Limiter`], use [`MemoryStore::with_clock`]:
//!
//! ```
//! use std::time::Duration;
//!
//! use fluxgate_core::{KeyedLimiter, ManualClock, Quota};
//!
//! let clock = ManualClock::default();
//! let limiter = KeyedLimiter::with_clock(Quota::per_minute(1), clock.clone());
//!
//! assert!(limiter.check("ann").is_ok());
//! let denied = limiter.check("ann").unwrap_err();
//! assert_eq!(denied.retry_after, Some(Duration::from_secs(60)));
//! clock.advance(Duration::from_secs(59));
//! assert!(limiter.check("ann").is_err());
//! clock.advance(Duration::from_secs(1));
//! assert!(limiter.check("ann").is_ok());
//! ```
//!
//! To let a program take either clock, make it generic: `KeyedLimiter<C>`,
//! `Limiter<MemoryStore<C>>` where `C: Clock`. [`DynStore`] hides the type of the store and
//! of its clock. `until_ready` sleeps by Tokio's clock, which a test can pause.
//!
//! # Limits over several processes
//!
//! The store of the crate `fluxgate-redis` keeps the same state in Redis or Valkey, so all
//! processes share their limits. A [`SharedKeyedLimiter`] limits keys there, and a [`Limiter`]
//! takes any store. Its calls are awaited:
//!
//! ```
//! use fluxgate_core::{DynStore, Limiter, MemoryStore, OnError, Quota, RequestContext};
//! use fluxgate_core::{Rule, RuleSet, SharedKeyedLimiter};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = match std::env::var("REDIS_URL") {
//!     // Ok(url) => DynStore::new(fluxgate_redis::RedisStore::connect(&url).await?),
//!     # Ok(_) => DynStore::new(MemoryStore::default()),
//!     Err(_) => DynStore::new(MemoryStore::default()),
//! };
//!
//! let logins = SharedKeyedLimiter::new("logins", Quota::per_minute(5), store.clone())
//!     .on_error(OnError::Deny);
//! assert!(logins.check("ann").await.is_ok());
//!
//! let per_user = Rule::new("per-user").per_user().band(Quota::per_second(10));
//! let api = RuleSet::builder("api").rule(per_user).on_error(OnError::Local).build()?;
//! let limiter = Limiter::new(api, store);
//! let api_limits = limiter.rule_set("api")?;
//! let ann = RequestContext::builder().user("ann").build();
//! assert!(api_limits.check(&ann).await.allowed());
//! # Ok(())
//! # }
//! ```
//!
//! Use [`DynStore`] to choose the store at run time, as here; otherwise name its type:
//! `Limiter<RedisStore>`. A store that fails never fails a check: [`OnError`] says whether
//! this process then limits by itself (the default), or allows or denies every request. Keys
//! of a [`SharedKeyedLimiter`] are texts or bytes, not any [`Hash`].
//!
//! # Observing decisions
//!
//! An [`Observer`] receives every decision of a [`Limiter`]. `MetricsObserver` and
//! `TracingObserver` pass them on to the crates `metrics` and `tracing`; both are features. Or
//! write one:
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::time::Duration;
//!
//! use fluxgate_core::{Decision, Limiter, MemoryStore, Observer, Quota, RequestContext};
//! use fluxgate_core::{Rule, RuleSet};
//!
//! #[derive(Clone, Debug, Default)]
//! struct CountDenials(Arc<AtomicU64>);
//!
//! impl Observer for CountDenials {
//!     fn decided(&self, decision: &Decision, _took: Duration) {
//!         if !decision.allowed() {
//!             self.0.fetch_add(1, Ordering::Relaxed);
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let denials = CountDenials::default();
//! let rule = Rule::new("all").global().band(Quota::per_hour(1));
//! let rules = RuleSet::builder("api").rule(rule).build()?;
//! let limiter = Limiter::builder(rules, MemoryStore::default())
//!     .observer(denials.clone())
//!     .build();
//! let api = limiter.rule_set("api")?;
//! for _ in 0..3 {
//!     let _ = api.check_sync(&RequestContext::default());
//! }
//! assert_eq!(denials.0.load(Ordering::Relaxed), 2);
//! # Ok(())
//! # }
//! ```
//!
//! A rule that is [`shadow`](Rule::shadow) denies nothing. Observers and
//! [`Decision::violated`] report what it would deny, so a new limit can be tried first.
//!
//! # Rules that change at run time
//!
//! [`Limiter::replace_rules`] replaces all rules at once. Counters stay: they belong to the
//! names of the rule set, the rule and the band. A bucket keeps the share of its quota that is
//! used.
//!
//! ```
//! use fluxgate_core::{InvalidRules, Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
//!
//! fn rules(per_hour: u32) -> Result<RuleSet, InvalidRules> {
//!     let rule = Rule::new("per-user").per_user().band(Quota::per_hour(per_hour));
//!     RuleSet::builder("api").rule(rule).build()
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::new(rules(1)?, MemoryStore::default());
//! let api = limiter.rule_set("api")?;
//! let ann = RequestContext::builder().user("ann").build();
//! assert!(api.check(&ann).await.allowed());
//! assert!(!api.check(&ann).await.allowed());
//! limiter.replace_rules(rules(100)?).await?;
//! assert_eq!(limiter.rules().get("api").map(|set| set.rules().len()), Some(1));
//! # Ok(())
//! # }
//! ```
//!
//! Rules can also come from a YAML file, which [`Limiter::watch_file`] loads again whenever it
//! changes. If a new version has faults, the last good one stays, and the observer gets all
//! faults:
//!
//! ```
//! use fluxgate_core::{Limiter, MemoryStore, RuleSets};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = std::env::temp_dir().join(format!("fluxgate-guide-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir)?;
//! # let path = dir.join("rules.yaml");
//! std::fs::write(
//!     &path,
//!     "
//! rule_sets:
//!   api:
//!     rules:
//!       - { id: per-user, scope: per_user, bands: [ { capacity: 10, window: 1s } ] }
//! ",
//! )?;
//! let limiter = Limiter::new(RuleSets::default(), MemoryStore::default());
//! let _watch = limiter.watch_file(&path).await?;
//! assert!(limiter.rules().get("api").is_some());
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok(())
//! # }
//! ```
//!
//! With rules in Redis, `RuleStore::follow` of `fluxgate-redis` does the same for all
//! processes.

#[expect(unused_imports, reason = "the documentation links to them")]
use crate::*;
#[expect(unused_imports, reason = "the documentation links to it")]
use std::hash::Hash;
