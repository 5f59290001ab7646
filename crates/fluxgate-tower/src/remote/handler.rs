//! Calls to the service.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fluxgate_core::renewal::HoldKeeper;
use fluxgate_core::rules::ActiveRuleSet;
use fluxgate_core::store::{Mode, WaitPermit};
use fluxgate_core::task::poll_once_or_spawn;
use fluxgate_core::{Charge, Decision, HoldId, RequestContext};
use tokio::time::timeout;

use super::in_flight::InFlight;
use super::pool::CallError;
use super::report::{DecidedBy, RemoteReport};
use super::request::CheckRequest;
use super::response::CheckResponse;
use super::{OnError, RemoteHandler};
use fluxgate_http::{Handler, HeaderNames, RequestHold};

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
