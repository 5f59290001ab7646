//! Who decides: the embedded engine, or a service that is asked.

mod embedded;

use std::future::Future;
use std::task::{Context, Waker};
use std::time::Duration;

use fluxgate_core::{Mode, RequestContext, WaitPermit};

use crate::ruling::Report;

/// Which headers of a request are wanted.
#[derive(Clone, Copy, Debug)]
pub enum HeaderNames<'r> {
    /// All of them.
    All,
    /// Those of these names, which are in lower case.
    Only(&'r [Box<str>]),
}

/// Who decides. A handler always has an answer: what it says when it cannot ask
/// anybody is its own matter (`on_error`), so that no trouble of the limiter
/// ever becomes one of the request.
pub trait Handler: Send + Sync {
    /// The answer.
    type Report: Report;

    /// The rules of one name as they are now: a request is read and decided by
    /// the same ones.
    type Rules: Send + Sync;

    /// What is cancelled when a request that waits does not take place.
    type Charge: Send;

    /// What is prepared for a request when the handler must be awaited.
    type Pending: Send + 'static;

    /// The rules of this name as they are now.
    fn rules(&self, rule_set: &str) -> Self::Rules;

    /// Which headers these rules ask about.
    fn header_names<'r>(&'r self, rules: &'r Self::Rules) -> HeaderNames<'r>;

    /// Whether these rules may make a request wait. Then it is decided in
    /// [`Mode::Take`] only if there is a place to wait in.
    fn may_wait(&self, rules: &Self::Rules) -> bool {
        let _ = rules;
        true
    }

    /// Which headers are part of a key of these rules, in lower case. A request that gives
    /// one twice, with different values, is answered with 400.
    fn key_header_names<'r>(&'r self, rules: &'r Self::Rules) -> &'r [Box<str>] {
        let _ = rules;
        &[]
    }

    /// Decides a request and charges it if it passes: in [`Mode::TakeNow`] as if no rule
    /// let it wait. Returns what is prepared, and charges nothing, if the handler must be
    /// awaited: [`Handler::decide`] continues then.
    fn try_decide(
        &self,
        rule_set: &str,
        rules: &Self::Rules,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> Result<Self::Report, Self::Pending>;

    /// Decides a request for which [`Handler::try_decide`] returned `pending`, and charges
    /// it if it passes. One that has to wait gets a permit, if there is a bound beyond this
    /// process.
    fn decide(
        &self,
        rule_set: &str,
        rules: &Self::Rules,
        context: &RequestContext<'_>,
        pending: Self::Pending,
    ) -> impl Future<Output = (Self::Report, WaitPermit)> + Send;

    /// What a request that has to wait was charged, if anything.
    fn charge(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
        ruling: &Self::Report,
    ) -> Option<Self::Charge>;

    /// Cancels what a request was charged that does not take place: at once or in the
    /// background, for it is called when a future is dropped.
    fn cancel(&self, charge: Self::Charge);

    /// A place to wait for at most `longest`, where there is a bound beyond this
    /// process. `None` if there is none.
    fn begin_wait(&self, longest: Duration) -> impl Future<Output = Option<WaitPermit>> + Send {
        let _ = longest;
        std::future::ready(Some(WaitPermit::unbounded()))
    }

    /// How a request fares is settled; told once for each that is.
    fn record(&self, context: &RequestContext<'_>, ruling: &Self::Report) {
        let _ = (context, ruling);
    }

    /// A request begins to wait.
    fn wait_began(&self) {}

    /// It waits no longer.
    fn wait_ended(&self) {}
}

/// Does something at once if that can be, else in the background. Without a
/// runtime, which has ended then, nothing is done.
pub fn poll_once_or_spawn(work: impl Future<Output = ()> + Send + 'static) {
    // What must wait for a timer or a socket would panic outside a runtime.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return;
    };
    let mut work = Box::pin(work);
    let mut now = Context::from_waker(Waker::noop());
    if work.as_mut().poll(&mut now).is_pending() {
        runtime.spawn(work);
    }
}
