//! The service as a handler.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use fluxgate_core::{ActiveRuleSet, Charge, Decision, Mode, RequestContext, WaitPermit};

use super::answer::Answer;
use super::connections::{Exchange, ExchangeError};
use super::question::Question;
use super::ruling::{RemoteReport, Said};
use super::{OnError, RemoteHandler};
use crate::handler::{Handler, HeaderNames, poll_once_or_spawn};

const CHECK: &str = "/v1/check";
const GIVE_BACK: &str = "/v1/give_back";

impl RemoteHandler {
    fn question<'a>(
        &self,
        rule_set: &'a str,
        context: &'a RequestContext<'_>,
    ) -> Option<Question<'a>> {
        Question::new(rule_set, context, self.settings.headers.as_deref())
    }

    /// What the service says, or why it says nothing.
    async fn ask(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> Result<Said, ExchangeError> {
        let question = self.question(rule_set, context);
        let question = question.map(|question| question.in_mode(mode));
        let Some(question) = question.and_then(|it| it.body()) else {
            return Ok(Said::TooLarge);
        };
        let exchange = Exchange {
            path: CHECK,
            token: None,
            body: question,
        };
        let answer = self.connections.exchange(exchange, self.settings.deadline);
        Ok(Said::Answer(Answer::read(answer.await?)?))
    }

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

/// What is cancelled, and who took it.
#[derive(Debug)]
pub struct RemoteCharge(Taken);

#[derive(Debug)]
enum Taken {
    /// By the service; the body of the call.
    There(Bytes),
    /// By the limiter that decided in its stead.
    Here(Charge),
}

impl Handler for RemoteHandler {
    type Report = RemoteReport;
    /// The rules of the limiter that decides in the service's stead.
    type Rules = Option<ActiveRuleSet>;
    type Charge = RemoteCharge;
    /// The service must always be awaited.
    type Pending = Mode;

    fn rules(&self, rule_set: &str) -> Self::Rules {
        match &self.settings.on_error {
            OnError::Local(limiter) => limiter.rule_set(rule_set),
            OnError::Allow | OnError::Deny => None,
        }
    }

    fn header_names<'r>(&'r self, _: &'r Self::Rules) -> HeaderNames<'r> {
        match (&self.settings.headers, &self.settings.on_error) {
            (Some(names), OnError::Allow | OnError::Deny) => HeaderNames::Only(names),
            // Whoever decides here may ask about any.
            (_, OnError::Local(_)) | (None, _) => HeaderNames::All,
        }
    }

    fn key_header_names<'r>(&'r self, rules: &'r Self::Rules) -> &'r [Box<str>] {
        rules.as_ref().map_or(&[], |set| set.key_header_names())
    }

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
        let ruling = match self.ask(rule_set, context, mode).await {
            Ok(said) => {
                if self.trouble.load(Ordering::Relaxed)
                    && self.trouble.swap(false, Ordering::Relaxed)
                {
                    tracing::info!("the service decides again");
                }
                RemoteReport::said(said)
            }
            Err(error) => {
                // Once, and not for every request.
                if !self.trouble.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "the service gives no decision");
                }
                let decision = self.on_error(rule_set, rules.as_ref(), context, mode);
                RemoteReport::local(decision.await)
            }
        };
        (ruling, WaitPermit::unbounded())
    }

    fn charge(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
        ruling: &RemoteReport,
    ) -> Option<RemoteCharge> {
        let taken = match ruling.decision() {
            Ok(decision) => Taken::Here(decision.charge(context)?),
            Err(answer) => {
                let question = self.question(rule_set, context)?.answered(answer)?;
                Taken::There(question.body()?)
            }
        };
        Some(RemoteCharge(taken))
    }

    fn cancel(&self, RemoteCharge(taken): RemoteCharge) {
        let body = match (taken, &self.settings.on_error) {
            (Taken::Here(charge), OnError::Local(limiter)) => {
                return Handler::cancel(limiter, charge);
            }
            (Taken::Here(_), OnError::Allow | OnError::Deny) => return,
            (Taken::There(body), _) => body,
        };
        let handler = self.clone();
        poll_once_or_spawn(async move {
            let exchange = Exchange {
                path: GIVE_BACK,
                token: handler.settings.token.clone(),
                body,
            };
            let deadline = handler.settings.deadline;
            if let Err(error) = handler.connections.exchange(exchange, deadline).await {
                tracing::warn!(%error, "the reservation of a request that went away is not cancelled");
            }
        });
    }
}
