//! Stores: where the state of limits is kept, and how to write one.
//!
//! A store takes data, not closures, so a whole decision can cross a network in one round trip:
//! a list of [`Checks`] goes in, and one [`Verdict`] for each comes back. A denial is an answer;
//! a [`StoreError`] means that the store itself failed.
//!
//! # Write a store
//!
//! Implement [`Store`]. The simplest way is a [`CounterTable`]: say how one [`Counter`] is read
//! and written, and all algorithms, groups, holds and settlements are computed for you.
//! `examples/hash-map-store` of the repository is a complete store in some 160 lines.
//!
//! | method of [`Store`] | is, on a [`CounterTable`] |
//! |---|---|
//! | [`time`](Store::time) | the time of the clock that `now` comes from |
//! | [`decide`](Store::decide) | [`CounterTable::decide`]; keep the [`HoldRecord`] if there is one |
//! | [`settle`](Store::settle) | [`CounterTable::settle`]; delete the record if it returns `Some` |
//! | [`renew`](Store::renew) | [`CounterTable::renew`]; write the record back |
//! | [`refund`](Store::refund), [`cancel`](Store::cancel), [`reset`](Store::reset) | the method of the same name |
//! | [`reset_rule`](Store::reset_rule) | delete the counters whose subjects start with the bytes of the rule |
//!
//! The other methods have defaults. Without [`keep_reservation`](Store::keep_reservation) and
//! [`cancel_reservation`](Store::cancel_reservation), only the process that made a reservation can
//! cancel it, and not another one by its id. Without [`LocalStore`] there is no
//! [`Limiter::check_sync`](crate::Limiter::check_sync). [`Arc<S>`](std::sync::Arc) is a store if `S`
//! is one, so a program can keep a reference to its store.
//!
//! - **Each call is atomic.** It reads and writes all of its counters in one transaction or
//!   under one lock. No other call sees a part of it.
//! - **One clock.** A call reads the time once. Processes that share state must share the clock,
//!   too: use the time of the server, not that of the client. [`Store::time`] returns the time of
//!   the same clock. The clock may go back; the algorithms allow for that.
//! - **A counter** is identified by [`Subject::bytes`] and [`Band::tag`]. All limits of a band
//!   with the same tag share its counter, so that a rule keeps its state when its numbers
//!   change.
//! - **Nothing is lost early.** A counter may be deleted once [`Counter::is_expired`] returns
//!   `true`, a hold record once [`HoldRecord::is_needed`] returns `false`. Do not compute the time
//!   from [`Verdict::reset_after`]: slots can be renewed, and a renewal or a settlement must still
//!   find them.
//!
//! A [`CounterTable`] is for counters in memory: its methods neither wait nor fail, and counters
//! cannot be serialized. A store on a database decides there, as the one of `fluxgate-redis` does in
//! a script. It builds its verdicts from the parts in [`algorithm`](crate::algorithm) and
//! [`limit`](crate::limit), and declares its failures as [`Reason`]s.
//!
//! # Test it
//!
//! The feature `conformance` has the suite that every store must pass, to the unit and the
//! microsecond. Enable it in `[dev-dependencies]`:
//!
//! ```ignore
//! #[tokio::test]
//! async fn the_store_passes_every_vector() {
//!     let steps = fluxgate_core::conformance::run(async |clock| MyStore::new(clock)).await;
//!     assert!(steps.unwrap() > 1_000);
//! }
//! ```
//!
//! The suite makes one call after another. It does not show that calls of several threads or
//! processes are atomic, nor what the store does when it fails: test that yourself.

mod charge_record;
mod counter_table;
mod counters;
mod dyn_store;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut, Range};
use std::time::Duration;

use smallvec::SmallVec;

use crate::band::Band;
use crate::hold::DEFAULT_HOLD;
use crate::limit::Limit;

pub use crate::algorithm::{Charged, Counter, Mode, Verdict};
pub use crate::hold::{HoldId, Settled, Settlement};
pub use crate::key::{IdentityPart, PartHash, Subject};
pub use crate::time::{Micros, Retry, Timestamp};
pub(crate) use charge_record::{ChargeRecord, ChargedPart};
pub use counter_table::{CounterTable, HoldRecord};
pub(crate) use counters::{Counters, decide};
pub use dyn_store::DynStore;

/// Checks that are decided together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group(u16);

impl Group {
    /// The checks that can deny the request: all of them pass and are charged, or none
    /// is.
    pub const ENFORCED: Self = Self(0);

    /// The checks of the `index`-th shadow rule. They are decided only if the enforced
    /// ones pass, and are charged together or not at all.
    pub fn shadow(index: usize) -> Self {
        Self(u16::try_from(index + 1).unwrap_or(u16::MAX))
    }
}

/// A request for units of one band.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// The rule and the identity.
    pub subject: Subject<'a>,
    /// The band.
    pub band: &'a Band,
    /// The units.
    pub cost: u64,
    /// The checks that it is decided with.
    pub group: Group,
}

/// All checks of one request, the enforced ones first.
#[derive(Clone, Debug)]
pub struct Checks<'a> {
    mode: Mode,
    list: SmallVec<[Check<'a>; 4]>,
    /// Whether some are charged even if the request is denied.
    charges_always: bool,
    /// Whether the request is denied whatever the checks say.
    is_refused: bool,
    /// Boxed, because few requests are held.
    hold: Option<Box<HoldRequest<'a>>>,
}

/// The hold that a store creates if it charges a request.
#[derive(Clone, Debug)]
pub struct HoldRequest<'a> {
    /// Its id, which no other hold has.
    pub id: HoldId,
    /// Its requested lifetime. Slots live at most as long as their limit allows, and exactly
    /// as long by default. A hold with slots ends with the last of them.
    pub span: Option<Micros>,
    attributes: SmallVec<[Option<&'a str>; 4]>,
}

impl<'a> HoldRequest<'a> {
    /// Creates a request for a hold with this id and lifetime. `attributes` has one element
    /// for each check: the attribute that its rule counts, if it counts one.
    pub fn new(
        id: HoldId,
        span: Option<Micros>,
        attributes: impl IntoIterator<Item = Option<&'a str>>,
    ) -> Self {
        Self {
            id,
            span,
            attributes: attributes.into_iter().collect(),
        }
    }

    /// Returns the attribute that the rule of each check counts, if it counts one.
    pub fn attributes(&self) -> &[Option<&'a str>] {
        &self.attributes
    }

    /// Returns how long a hold without slots lives.
    pub fn span_without_slots(&self) -> Micros {
        self.span.unwrap_or(DEFAULT_HOLD)
    }

    /// Returns how long slots of a limit live.
    pub fn span_of_slots(&self, limit: &Limit) -> Micros {
        self.span
            .map_or(limit.window(), |span| span.min(limit.window()))
    }
}

impl<'a> Checks<'a> {
    /// Creates an empty list.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            list: SmallVec::new(),
            charges_always: false,
            is_refused: false,
            hold: None,
        }
    }

    /// Denies the request whatever the checks say. Only enforced ones whose bands
    /// [always charge](Band::charges_always) are charged. Those of shadow rules are removed.
    pub fn refuse(&mut self) {
        let mut list = self.list.iter();
        let enforced = list.position(|check| check.group != Group::ENFORCED);
        let enforced = enforced.unwrap_or(self.list.len());
        self.list.truncate(enforced);
        if let Some(hold) = &mut self.hold {
            hold.attributes.truncate(enforced);
        }
        self.charges_always = self.list.iter().any(|check| check.band.charges_always());
        if self.charges_always && self.mode.reports_charge() {
            self.is_refused = true;
        } else {
            // Stores need not look for a refusal where nothing is charged in any case.
            self.mode = self.mode.peeking();
        }
    }

    /// Returns whether the request is denied whatever the checks say.
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Returns whether some checks are charged even if the request is denied.
    #[inline]
    pub fn charges_always(&self) -> bool {
        self.charges_always
    }

    /// Creates a hold if the checks are charged.
    pub fn set_hold(&mut self, hold: HoldRequest<'a>) {
        debug_assert_eq!(hold.attributes.len(), self.list.len());
        self.hold = Some(Box::new(hold));
    }

    /// Returns the hold to create if the checks are charged. Checks for slots always have one.
    pub fn hold(&self) -> Option<&HoldRequest<'a>> {
        self.hold.as_deref()
    }

    /// Adds all bands of one subject. Groups must come in ascending order.
    #[inline]
    pub fn push(&mut self, subject: Subject<'a>, bands: &'a [Band], cost: u64, group: Group) {
        debug_assert!(self.list.last().is_none_or(|last| last.group <= group));
        self.charges_always |= bands.iter().any(Band::charges_always);
        for band in bands {
            self.list.push(Check {
                subject,
                band,
                cost,
                group,
            });
        }
    }

    /// Adds a check of one band behind the enforced ones. Returns its index.
    pub(crate) fn push_enforced(
        &mut self,
        subject: Subject<'a>,
        band: &'a Band,
        cost: u64,
    ) -> usize {
        let group = Group::ENFORCED;
        let mut list = self.list.iter();
        let index = list.position(|check| check.group != group);
        let index = index.unwrap_or(self.list.len());
        let check = Check {
            subject,
            band,
            cost,
            group,
        };
        self.list.insert(index, check);
        if let Some(hold) = &mut self.hold {
            hold.attributes.insert(index, None);
        }
        index
    }

    /// Returns whether the checks are charged, and whether they may wait.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the same checks in another mode.
    pub fn in_mode(&self, mode: Mode) -> Self {
        Self {
            mode,
            ..self.clone()
        }
    }

    /// Returns whether a request that these checks let pass may have to wait.
    pub fn may_wait(&self) -> bool {
        let mut enforced = self.list.iter();
        enforced.any(|check| {
            let rate = check.band.limit().rate();
            check.group == Group::ENFORCED && (rate.max_wait().is_some() || rate.shape())
        })
    }

    /// Returns the checks.
    pub fn list(&self) -> &[Check<'a>] {
        &self.list
    }
}

/// Verdicts, in the order of their checks. Derefs to a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts(SmallVec<[Verdict; 4]>);

impl Verdicts {
    /// Creates an empty list.
    #[inline]
    pub const fn new() -> Self {
        Self(SmallVec::new_const())
    }

    /// Appends a verdict.
    #[inline]
    pub fn push(&mut self, verdict: Verdict) {
        self.0.push(verdict);
    }

    /// Removes the verdicts in a range, as far as there are any, and returns them.
    pub(crate) fn split_off(&mut self, range: Range<usize>) -> Self {
        let end = range.end.min(self.0.len());
        let start = range.start.min(end);
        Self(self.0.drain(start..end).collect())
    }

    /// Removes all verdicts.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Deref for Verdicts {
    type Target = [Verdict];

    #[inline]
    fn deref(&self) -> &[Verdict] {
        &self.0
    }
}

impl DerefMut for Verdicts {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Verdict] {
        &mut self.0
    }
}

impl FromIterator<Verdict> for Verdicts {
    fn from_iter<I: IntoIterator<Item = Verdict>>(verdicts: I) -> Self {
        Self(verdicts.into_iter().collect())
    }
}

impl Extend<Verdict> for Verdicts {
    fn extend<I: IntoIterator<Item = Verdict>>(&mut self, verdicts: I) {
        self.0.extend(verdicts);
    }
}

impl<'v> IntoIterator for &'v Verdicts {
    type Item = &'v Verdict;
    type IntoIter = std::slice::Iter<'v, Verdict>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The reservation of a request that waits, which any process can cancel by its id, once.
#[derive(Clone, Debug)]
pub struct KeptReservation<'a> {
    /// Its id; if the request is held, that of the hold.
    pub id: HoldId,
    /// When the request goes on. From then on there is nothing to cancel.
    pub until: Timestamp,
    /// How long it waits.
    pub wait: Micros,
    /// Whether the request is held. Then the reservation ends when the hold is settled.
    pub is_held: bool,
    /// What was charged.
    pub charges: Vec<ReservedCharge<'a>>,
}

/// The units that every band of a subject was charged.
#[derive(Clone, Copy, Debug)]
pub struct ReservedCharge<'a> {
    /// The rule and the identity.
    pub subject: Subject<'a>,
    /// The bands.
    pub bands: &'a [Band],
    /// The units.
    pub units: u64,
    /// Where the units of each band went.
    pub charged: &'a [Charged],
}

/// A place where state is kept, with a clock. The [module](self) explains how to write one.
pub trait Store: Send + Sync {
    /// Decides all checks at one instant.
    ///
    /// The enforced checks are charged together or not at all; costs of the same counter
    /// add up. If they pass, each shadow group is decided by itself in the same way; if
    /// not, the verdicts end with those of the enforced checks. Nothing is charged in
    /// [`Mode::Peek`].
    ///
    /// A check whose band [always charges](Band::charges_always) is charged even if its group
    /// does not pass: as many units as a settlement would charge on top. Its verdict is that
    /// of the band after the charge.
    ///
    /// If the checks have a [hold](Checks::hold) and something is charged, the store keeps
    /// what [`Store::settle`] needs, for as long as the hold lives.
    fn decide(
        &self,
        checks: &Checks<'_>,
    ) -> impl Future<Output = Result<Verdicts, StoreError>> + Send;

    /// Returns the time by which overrides end: that of [`Store::decide`], as far as it is known
    /// without asking. A store on a server estimates it from earlier answers.
    fn time(&self) -> Timestamp;

    /// Returns whether every future of the store is ready at its first poll, so that no
    /// runtime is needed.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Decides like [`Store::decide`], if the store can without waiting, and adds the
    /// verdicts. Returns `false`, and charges nothing, if it must be awaited.
    fn try_decide(&self, checks: &Checks<'_>, verdicts: &mut Verdicts) -> bool {
        let _ = (checks, verdicts);
        false
    }

    /// Decides like [`Store::decide`], for a caller that can wait. If the request has to,
    /// and the number of waiting requests is bounded for all processes that share the
    /// state, it gets a permit. The permit is acquired before any units are; if none is
    /// left, the checks are decided as in [`Mode::TakeNow`].
    fn decide_with_permit(
        &self,
        checks: &Checks<'_>,
    ) -> impl Future<Output = Result<(Verdicts, WaitPermit), StoreError>> + Send {
        async { Ok((self.decide(checks).await?, WaitPermit::unbounded())) }
    }

    /// Acquires a permit to wait for at most `longest`. Returns `None` if the number of
    /// waiting requests is bounded for all processes that share the state, and reached.
    fn begin_wait(
        &self,
        longest: Duration,
    ) -> impl Future<Output = Result<Option<WaitPermit>, StoreError>> + Send {
        let _ = longest;
        std::future::ready(Ok(Some(WaitPermit::unbounded())))
    }

    /// Refunds units to every band of a subject. Returns what each has left.
    fn refund(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
    ) -> impl Future<Output = Result<Verdicts, StoreError>> + Send;

    /// Cancels a charge of `units` to every band of a subject. Units with a later
    /// reservation behind them do not return.
    fn cancel(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Keeps a reservation until the request goes on, for [`Store::cancel_reservation`].
    /// Returns whether it is kept; by default it is not.
    fn keep_reservation(
        &self,
        reservation: &KeptReservation<'_>,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let _ = reservation;
        std::future::ready(Ok(false))
    }

    /// Cancels a reservation that is kept, like [`Store::cancel`], and ends its hold if it has
    /// one. Returns `false`, and changes nothing, if there is no such reservation: it was never
    /// kept, has been cancelled, or the request has gone on. It is forgotten before any units
    /// return, so they return at most once, even if the store fails in between.
    fn cancel_reservation(
        &self,
        id: HoldId,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let _ = id;
        std::future::ready(Ok(false))
    }

    /// Ends a hold: releases its slots, and changes its charges to the real cost. Returns
    /// `None`, and changes nothing, if there is no such hold: it was never created, has been
    /// settled, or has expired.
    fn settle(
        &self,
        hold: HoldId,
        settlement: Settlement<'_>,
    ) -> impl Future<Output = Result<Option<Settled>, StoreError>> + Send;

    /// Extends each hold to its span from now; slots no longer than their limit allows. Returns
    /// for each whether it is still held. A hold that has ended is not revived.
    fn renew(
        &self,
        holds: &[(HoldId, Micros)],
    ) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Deletes the bands of a subject. Returns how many had state.
    fn reset(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Returns how many units of each band of a subject are out on lease, to all instances
    /// together. Asks nothing if no band leases its units.
    fn on_lease(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
    ) -> impl Future<Output = Result<Vec<u64>, StoreError>> + Send {
        let _ = subject;
        std::future::ready(Ok(vec![0; bands.len()]))
    }

    /// Returns the hash that the store keeps in place of a part of an identity, if it hashes it. In
    /// a [`Subject`], such a part may then come [as its hash](IdentityPart::hash), because nothing
    /// else of it is known any more, and must count as the same part. By default, no part is hashed.
    fn hash_part(&self, part: &IdentityPart<'_>) -> Option<PartHash> {
        let _ = part;
        None
    }

    /// Deletes all state of a rule, whose subjects begin with these bytes. Returns how
    /// many counters had state.
    fn reset_rule(&self, rule: Subject<'_>)
    -> impl Future<Output = Result<u64, StoreError>> + Send;
}

/// A store that need not be awaited, such as the memory of this process.
pub trait LocalStore: Store {
    /// Decides all checks like [`Store::decide`].
    fn decide_now(&self, checks: &Checks<'_>) -> Verdicts;
}

/// A permit to wait, released when it is dropped.
pub struct WaitPermit(Option<Box<dyn Any + Send + Sync>>);

impl WaitPermit {
    /// Creates a permit where the number of waiting requests is not bounded.
    pub const fn unbounded() -> Self {
        Self(None)
    }

    /// Creates a permit that drops `permit` when it is dropped.
    pub fn held_by(permit: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(permit)))
    }
}

impl fmt::Debug for WaitPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "WaitPermit(bounded)",
            None => "WaitPermit(unbounded)",
        })
    }
}

/// A failure of the store itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", .reason.name())]
pub struct StoreError {
    /// The kind of failure, which metrics count by.
    pub reason: Reason,
    /// The details.
    pub message: String,
}

/// A kind of store failure, by its label in metrics. Stores declare their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason(&'static str);

impl Reason {
    /// The store did not answer within the deadline.
    pub const TIMEOUT: Self = Self("timeout");
    /// The store gave an answer that is not valid.
    pub const BAD_RESPONSE: Self = Self("bad_response");

    /// Declares a reason with this label.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// Returns the label.
    pub const fn name(self) -> &'static str {
        self.0
    }
}
