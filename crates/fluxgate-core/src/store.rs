//! The seam between decisions and where their state is kept.
//!
//! A store takes data, not closures, so that a whole decision can cross a
//! network in one round trip: a list of checks goes in, one verdict each comes
//! back. To refuse is an answer; an error means that the store itself failed.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::time::Duration;

use smallvec::SmallVec;

use crate::algorithm::{Charged, Mode, Verdict};
use crate::key::{SubjectBytes, SubjectParts};
use crate::rules::{Band, RuleNumber};

/// Verdicts in the order of the checks they answer.
pub type Verdicts = SmallVec<[Verdict; 4]>;

/// A rule and an identity: who is counted, whatever the band. All bands of one
/// subject live together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The rule's number in this process.
    pub rule: RuleNumber,
    /// Rule and identity, encoded so that no two subjects meet.
    pub bytes: &'a [u8],
}

impl<'a> Subject<'a> {
    /// Rule and identity apart; `None` if no rule made these bytes.
    pub fn parts(&self) -> Option<SubjectParts<'a>> {
        SubjectParts::read(self.bytes)
    }
}

/// Checks that are decided together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group(u16);

impl Group {
    /// The checks that can refuse: all of them pass and are charged, or none is.
    pub const ENFORCED: Self = Self(0);

    /// The checks of the `index`-th shadow rule. They are looked at only if the
    /// enforced ones pass, and are charged together or not at all.
    pub fn shadow(index: usize) -> Self {
        Self(u16::try_from(index + 1).unwrap_or(u16::MAX))
    }
}

/// One band to be asked.
#[derive(Clone, Debug)]
pub struct Check<'r> {
    subject: Range<usize>,
    rule: RuleNumber,
    /// The band.
    pub band: &'r Band,
    /// The units it is asked for.
    pub cost: u64,
    /// What it is decided together with.
    pub group: Group,
}

/// Everything that one request asks of a store, the enforced checks first.
#[derive(Clone, Debug)]
pub struct Checks<'r> {
    mode: Mode,
    bytes: SubjectBytes,
    list: SmallVec<[Check<'r>; 4]>,
}

impl<'r> Checks<'r> {
    /// Nothing yet.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            bytes: SubjectBytes::new(),
            list: SmallVec::new(),
        }
    }

    /// Adds all bands of one subject. Groups must come in ascending order.
    pub fn push(&mut self, subject: Subject<'_>, bands: &'r [Band], cost: u64, group: Group) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(subject.bytes);
        self.push_encoded(start, subject.rule, bands, cost, group);
    }

    /// Adds all bands of the subject whose bytes were written from `start` on.
    pub(crate) fn push_encoded(
        &mut self,
        start: usize,
        rule: RuleNumber,
        bands: &'r [Band],
        cost: u64,
        group: Group,
    ) {
        debug_assert!(self.list.last().is_none_or(|last| last.group <= group));
        let subject = start..self.bytes.len();
        for band in bands {
            self.list.push(Check {
                subject: subject.clone(),
                rule,
                band,
                cost,
                group,
            });
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut SubjectBytes {
        &mut self.bytes
    }

    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    /// Whether the checks are to be charged.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// The same checks, decided in another mode.
    pub fn in_mode(&self, mode: Mode) -> Self {
        let mut checks = self.clone();
        checks.set_mode(mode);
        checks
    }

    /// Whether a request that these checks let pass may have to wait.
    pub fn may_wait(&self) -> bool {
        let mut enforced = self.list.iter();
        enforced.any(|check| {
            let rate = check.band.limit().rate();
            check.group == Group::ENFORCED && (rate.max_wait().is_some() || rate.shape())
        })
    }

    /// The checks.
    pub fn list(&self) -> &[Check<'r>] {
        &self.list
    }

    /// Who a check is about.
    pub fn subject(&self, check: &Check<'_>) -> Subject<'_> {
        Subject {
            rule: check.rule,
            bytes: &self.bytes[check.subject.clone()],
        }
    }

    /// Whether two checks are about one subject, by where it stands.
    pub(crate) fn same_subject(a: &Check<'_>, b: &Check<'_>) -> bool {
        a.subject == b.subject
    }
}

/// Where state is kept, and by whose clock.
///
/// Every store must pass the suite of the `conformance` module (a feature).
pub trait Store: Send + Sync {
    /// Decides all checks at one instant.
    ///
    /// The enforced checks are charged together or not at all; two of them that
    /// meet on one counter add up. If they pass, each shadow group is decided
    /// by itself in the same way; if not, the answer ends with the enforced
    /// checks. Nothing is charged in [`Mode::Peek`].
    fn decide(
        &self,
        checks: &Checks<'_>,
    ) -> impl Future<Output = Result<Verdicts, StoreError>> + Send;

    /// Adds the verdicts of [`Store::decide`] at once and says so, where a store
    /// need not wait for anybody. It does nothing else than `decide`, for less.
    fn try_decide(&self, checks: &Checks<'_>, verdicts: &mut Verdicts) -> bool {
        let _ = (checks, verdicts);
        false
    }

    /// Decides all checks at one instant, like [`Store::decide`], for a caller that
    /// can wait. Where it has to, and the number of those who wait is bounded for all
    /// processes that share the state, it has the place that is returned. The place
    /// is taken before any units are; without a free one the checks are decided as in
    /// [`Mode::TakeNow`].
    fn decide_with_permit(
        &self,
        checks: &Checks<'_>,
    ) -> impl Future<Output = Result<(Verdicts, WaitPermit), StoreError>> + Send {
        async { Ok((self.decide(checks).await?, WaitPermit::unbounded())) }
    }

    /// A place among those who wait for at most `longest`, where their number is
    /// bounded for all processes that share the state. `None` if there is none.
    fn begin_wait(
        &self,
        longest: Duration,
    ) -> impl Future<Output = Result<Option<WaitPermit>, StoreError>> + Send {
        let _ = longest;
        std::future::ready(Ok(Some(WaitPermit::unbounded())))
    }

    /// Gives units back to every band of a subject, and tells what each holds.
    fn refund(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
    ) -> impl Future<Output = Result<Verdicts, StoreError>> + Send;

    /// Cancels a charge of `units` to every band of a subject, which went to where
    /// `charged` says. Only what no later reservation was queued behind returns.
    fn cancel(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Forgets the bands of a subject; tells how many had state.
    fn reset(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Forgets everything of a rule, whose subjects all begin with these bytes;
    /// tells how many counters had state.
    fn reset_rule(&self, rule: Subject<'_>)
    -> impl Future<Output = Result<u64, StoreError>> + Send;
}

/// A place among those who wait; given back when it is dropped.
pub struct WaitPermit(Option<Box<dyn Any + Send + Sync>>);

impl WaitPermit {
    /// One of any number.
    pub const fn unbounded() -> Self {
        Self(None)
    }

    /// One that is given back when `place` is dropped.
    pub fn held_by(place: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(place)))
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

/// The store itself failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", .reason.name())]
pub struct StoreError {
    /// What kind of trouble; the label it is counted under.
    pub reason: Reason,
    /// The rest of the story.
    pub message: String,
}

/// Kinds of trouble with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Anything without a name of its own.
    RedisError,
    /// No answer within the deadline.
    Timeout,
    /// An answer that cannot be one.
    BadResponse,
    /// Something else stands at our key.
    BadTypes,
    /// Not asked, because it kept failing.
    CircuitOpen,
    /// Out of memory.
    Oom,
    /// It refuses writes because it cannot save.
    Misconf,
    /// It wants a password.
    Noauth,
    /// The user may not do this.
    Noperm,
    /// It is still loading its data.
    Loading,
    /// A script keeps it busy.
    Busy,
    /// It is a replica.
    Readonly,
    /// The cluster lacks slots.
    ClusterDown,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::RedisError,
        Self::Timeout,
        Self::BadResponse,
        Self::BadTypes,
        Self::CircuitOpen,
        Self::Oom,
        Self::Misconf,
        Self::Noauth,
        Self::Noperm,
        Self::Loading,
        Self::Busy,
        Self::Readonly,
        Self::ClusterDown,
    ];

    /// The label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RedisError => "redis_error",
            Self::Timeout => "timeout",
            Self::BadResponse => "bad_response",
            Self::BadTypes => "bad_types",
            Self::CircuitOpen => "circuit_open",
            Self::Oom => "oom",
            Self::Misconf => "misconf",
            Self::Noauth => "noauth",
            Self::Noperm => "noperm",
            Self::Loading => "loading",
            Self::Busy => "busy",
            Self::Readonly => "readonly",
            Self::ClusterDown => "cluster_down",
        }
    }
}
