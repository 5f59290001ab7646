//! Calls to the service.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fluxgate_core::renewal::HoldKeeper;
use fluxgate_core::rules::ActiveRuleSet;
use fluxgate_core::store::{Mode, WaitPermit};
use fluxgate_core::task::poll_once_or_spawn;
use fluxgate_core::{Charge, Decision, HoldId, RequestContext};
use fluxgate_http::{Handler, HeaderNames, RequestHold};
use http::Response;
use tokio::time::timeout;

use super::pool::CallError;
use super::report::{CheckResponse, DecidedBy, RemoteReport};
use super::request::CheckRequest;
use super::{OnError, RemoteHandler};

const CHECK: &str = "/v1/check";
const CANCEL: &str = "/v1/cancel";

impl RemoteHandler {
    fn request<'a>(
        &self,
        rule_set: &'a str,
        context: &'a RequestContext<'_>,
    ) -> Option<CheckRequest<'a>> {
        CheckRequest::new(rule_set, context, self.settings.headers.as_deref())
    }

    /// Lets the service decide.
    async fn check(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> Result<DecidedBy, CallError> {
        let request = self.request(rule_set, context);
        let Some(body) = request.and_then(|request| request.in_mode(mode).body()) else {
            // Too large for the service. `on_error` must not decide: a client could choose that.
            return Ok(DecidedBy::Local(Decision::never()));
        };
        let call = InFlight::new(self, CHECK, body);
        let response = timeout(self.settings.deadline, call).await;
        let response = response.unwrap_or(Err(CallError::Deadline))?;
        Ok(DecidedBy::Service(CheckResponse::parse(&response)?))
    }

    /// Cancels a reservation at the service. This ends the hold of the request, too.
    pub(super) async fn cancel_reservation(&self, reservation: HoldId) {
        let body = format!("{{\"reservation\":\"{reservation}\"}}");
        let deadline = self.settings.deadline;
        let cancelled = self.pool.post(CANCEL, body.into(), deadline).await;
        if let Err(error) = cancelled {
            tracing::warn!(%error, "cannot cancel the reservation of an abandoned request");
        }
    }

    /// Decides in place of the service.
    async fn on_error(
        &self,
        rule_set: &str,
        rules: Option<&ActiveRuleSet>,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> Decision {
        match (&self.settings.on_error, rules) {
            (OnError::Allow, _) => Decision::failed_open(),
            (OnError::Deny, _) => Decision::failed_closed(),
            (OnError::Local(limiter), Some(rules)) => {
                limiter.check_with_permit(rules, context, mode).await.0
            }
            (OnError::Local(limiter), None) => limiter.missing_rule_set(rule_set),
        }
    }
}

/// The rules that decide a request, as far as they are known here.
#[derive(Clone, Debug)]
pub struct RemoteRules {
    /// The rules of the limiter that decides in place of the service.
    local: Option<ActiveRuleSet>,
    /// The headers that rules may read, or `None` for all.
    headers: Option<Arc<[Box<str>]>>,
}

/// Returns the selected headers and those that the local rules read.
fn with_headers_of(selected: &Arc<[Box<str>]>, local: Option<&ActiveRuleSet>) -> Arc<[Box<str>]> {
    let local = local.map_or(&[][..], |set| set.header_names());
    let mut added = local.iter().filter(|name| !selected.contains(name));
    let Some(first) = added.next() else {
        return Arc::clone(selected);
    };
    let names = selected.iter().chain([first]).chain(added);
    names.cloned().collect()
}

/// The charge of a request that waits.
#[derive(Debug)]
pub struct RemoteCharge(ChargedBy);

#[derive(Debug)]
enum ChargedBy {
    /// Charged by the service, with this reservation.
    Service(HoldId),
    /// Charged by the limiter that decided in its place.
    Local(Charge),
}

impl Handler for RemoteHandler {
    type Report = RemoteReport;
    type Rules = RemoteRules;
    type Charge = RemoteCharge;
    type Pending = Mode;

    fn rules(&self, rule_set: &str) -> RemoteRules {
        let local = match &self.settings.on_error {
            OnError::Local(limiter) => limiter.active_rule_set(rule_set),
            OnError::Allow | OnError::Deny => None,
        };
        let selected = self.settings.headers.as_ref();
        RemoteRules {
            headers: selected.map(|selected| with_headers_of(selected, local.as_ref())),
            local,
        }
    }

    fn header_names<'r>(&'r self, rules: &'r RemoteRules) -> HeaderNames<'r> {
        match &rules.headers {
            Some(names) => HeaderNames::Only(names),
            None => HeaderNames::All,
        }
    }

    /// The service does not say which headers its rules use, so all that it gets are checked.
    fn checked_header_names<'r>(&'r self, rules: &'r RemoteRules) -> &'r [Box<str>] {
        match (&rules.headers, &rules.local) {
            (Some(names), _) => names,
            (None, Some(local)) => local.checked_header_names(),
            (None, None) => &[],
        }
    }

    /// The service must always be awaited.
    fn try_decide(
        &self,
        _: &str,
        _: &Self::Rules,
        _: &RequestContext<'_>,
        mode: Mode,
    ) -> Result<RemoteReport, Mode> {
        Err(mode)
    }

    async fn decide(
        &self,
        rule_set: &str,
        rules: &Self::Rules,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> (RemoteReport, WaitPermit) {
        let source = match self.check(rule_set, context, mode).await {
            Ok(source) => {
                if self.is_failing.load(Ordering::Relaxed)
                    && self.is_failing.swap(false, Ordering::Relaxed)
                {
                    tracing::info!("the service decides again");
                }
                source
            }
            Err(error) => {
                // Logged once, and not for every request.
                if !self.is_failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "the service fails to decide");
                }
                let decision = self.on_error(rule_set, rules.local.as_ref(), context, mode);
                DecidedBy::Local(decision.await)
            }
        };
        (RemoteReport(source), WaitPermit::unbounded())
    }

    fn charge(
        &self,
        _: &str,
        context: &RequestContext<'_>,
        report: &RemoteReport,
    ) -> Option<RemoteCharge> {
        Some(RemoteCharge(match &report.0 {
            DecidedBy::Local(decision) => ChargedBy::Local(decision.charge(context)?),
            DecidedBy::Service(response) => ChargedBy::Service(response.reservation?),
        }))
    }

    fn cancel(&self, RemoteCharge(charged): RemoteCharge) {
        let reservation = match (charged, &self.settings.on_error) {
            (ChargedBy::Local(charge), OnError::Local(limiter)) => {
                return Handler::cancel(limiter, charge);
            }
            (ChargedBy::Local(_), OnError::Allow | OnError::Deny) => return,
            (ChargedBy::Service(reservation), _) => reservation,
        };
        let handler = self.clone();
        poll_once_or_spawn(async move { handler.cancel_reservation(reservation).await });
    }

    fn hold(&self, report: &RemoteReport) -> Option<RequestHold> {
        match (&report.0, &self.settings.on_error) {
            (DecidedBy::Service(response), _) => {
                let (hold, span) = response.hold?;
                Some(RequestHold::new(self.keep(hold, span)))
            }
            (DecidedBy::Local(decision), OnError::Local(limiter)) => {
                Handler::hold(limiter, decision)
            }
            (DecidedBy::Local(_), OnError::Allow | OnError::Deny) => None,
        }
    }
}

const RELEASE: &str = "/v1/release";

/// How long to wait for an answer after its request has gone.
const LATE_ANSWER: Duration = Duration::from_secs(5);

type Answer = Result<Response<Bytes>, CallError>;

/// A call to the service that decides one request.
///
/// If it is dropped before the answer has arrived, because the client is gone or the deadline has
/// passed, the service may still have reserved units or taken slots. A task then waits for the
/// answer and cancels the reservation or releases the hold. Otherwise the units would stay charged
/// until the hold expires. If `MAX_LATE_ANSWERS` tasks wait already, nothing is cancelled.
pub(super) struct InFlight<'a> {
    handler: &'a RemoteHandler,
    /// `None` once it has ended.
    call: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    /// Whether the request may have left this process.
    is_sent: Arc<AtomicBool>,
}

impl<'a> InFlight<'a> {
    /// Prepares a call. It is sent when it is first polled.
    pub(super) fn new(handler: &'a RemoteHandler, path: &'static str, body: Bytes) -> Self {
        let is_sent = Arc::<AtomicBool>::default();
        let (pool, sent) = (Arc::clone(&handler.pool), Arc::clone(&is_sent));
        Self {
            handler,
            call: Some(Box::pin(async move { pool.call(path, body, &sent).await })),
            is_sent,
        }
    }
}

impl Future for InFlight<'_> {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let Some(call) = &mut self.call else {
            return Poll::Pending;
        };
        let answer = call.as_mut().poll(cx);
        if answer.is_ready() {
            self.call = None;
        }
        answer
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else {
            return;
        };
        if !self.is_sent.load(Ordering::Relaxed) {
            return;
        }
        let Ok(permit) = Arc::clone(&self.handler.late_answers).try_acquire_owned() else {
            return;
        };
        let handler = self.handler.clone();
        poll_once_or_spawn(async move {
            let answer = timeout(LATE_ANSWER, call).await;
            drop(permit);
            if let Ok(Ok(answer)) = answer
                && let Ok(response) = CheckResponse::parse(&answer)
            {
                handler.abandon(&response).await;
            }
        });
    }
}

impl RemoteHandler {
    /// Cancels the reservation, or releases the hold, of a request that does not proceed.
    async fn abandon(&self, response: &CheckResponse) {
        match (response.reservation, response.hold) {
            (Some(reservation), _) => self.cancel_reservation(reservation).await,
            (None, Some((hold, _))) => {
                let body = format!("{{\"hold\":\"{hold}\"}}");
                let deadline = self.settings.deadline;
                let released = self.pool.post(RELEASE, body.into(), deadline).await;
                if let Err(error) = released {
                    tracing::warn!(%error, "cannot release the hold of an abandoned request");
                }
            }
            (None, None) => {}
        }
    }
}
