//! Requests of routes that count the tokens of language models.

use std::sync::Arc;

use fluxgate_core::rules::ActiveRuleSet;
use fluxgate_core::{Decision, Outcome, RequestContextBuilder, Settlement};
use fluxgate_http::{
    ContextError, Evaluation, Filter, FilterOutcome, Handler, IncomingRequest, RequestHead,
    RequestHold,
};
use fluxgate_llm::Api;

use crate::config::{LlmConfig, UnknownCalls};
use crate::error::GatewayError;
use crate::llm::{BodyBuffer, CallKind, ReadBody, ReservedCall, with_tokens};
use crate::received_request::ReceivedRequest;

/// What a filter that counts tokens says of a request, and the call that it makes, if any.
type CallOutcome = (FilterOutcome<Decision>, Option<ReservedCall>);

/// Evaluates requests by filters that count tokens.
#[derive(Debug)]
pub(super) struct CallPolicy {
    /// The memory for bodies.
    bodies: Arc<BodyBuffer>,
}

impl CallPolicy {
    pub(super) fn new(bodies: &Arc<BodyBuffer>) -> Self {
        Self {
            bodies: Arc::clone(bodies),
        }
    }

    /// Evaluates a request by the filter that counts tokens. `max_body` is the largest body of a
    /// call in bytes.
    pub(super) async fn evaluate<D, H>(
        &self,
        (llm, max_body): (LlmConfig, u64),
        filter: &Filter,
        handler: &H,
        request: &ReceivedRequest<'_, D>,
        body: &mut impl ReadBody,
    ) -> Result<CallOutcome, GatewayError>
    where
        D: RequestHead + Sync,
        H: Handler<Report = Decision, Rules = Option<ActiveRuleSet>>,
    {
        let Some(rules) = filter.rules_for(handler, request.path) else {
            return Ok((FilterOutcome::Skipped, None));
        };
        let has_body = request.body_length != Some(0);
        let kind = CallKind::of(request.head, request.path, has_body, request.upgrades)?;
        let tokens = match kind {
            CallKind::Known(api) => {
                let call = EvaluatedCall {
                    filter,
                    handler,
                    rules: &rules,
                    request: request.incoming(),
                };
                return self.evaluate_known((llm, max_body), api, call, body).await;
            }
            CallKind::NoCall => None,
            CallKind::Unknown => match llm.unknown {
                UnknownCalls::Cost(tokens) => Some(tokens),
                UnknownCalls::Allow => None,
                UnknownCalls::Deny => return Err(GatewayError::UnknownCall),
            },
        };
        let evaluation = Evaluation::new(filter, handler, &rules, request.incoming(), |context| {
            match tokens {
                // What it uses is not known afterwards either, so nothing is held.
                Some(tokens) => with_tokens(context, [tokens; 3]),
                None => context.without_tokens(),
            }
        });
        let outcome = match evaluation {
            Ok(evaluation) => evaluation.evaluate().await,
            Err(error) => error.into(),
        };
        Ok((outcome, None))
    }

    /// Evaluates a call whose tokens can be counted.
    ///
    /// What needs nothing of the body is decided before the body is read, so that a client
    /// that is refused anyway cannot fill memory. Where the body is already there, reading it
    /// costs nothing; then one evaluation suffices, and only a body that cannot be counted
    /// needs another, for the same answer in both cases.
    async fn evaluate_known<D, H>(
        &self,
        (llm, max_body): (LlmConfig, u64),
        api: Api,
        evaluated: EvaluatedCall<'_, D, H>,
        body: &mut impl ReadBody,
    ) -> Result<CallOutcome, GatewayError>
    where
        D: RequestHead + Sync,
        H: Handler<Report = Decision, Rules = Option<ActiveRuleSet>>,
    {
        let has_arrived = body.has_arrived().await;
        let provisional = if has_arrived {
            ProvisionalHold::default()
        } else {
            match evaluated.admit_body().await {
                Ok(provisional) => provisional,
                Err(refused) => return Ok((refused, None)),
            }
        };
        let read = body.read(max_body, &self.bodies).await;
        let mut call = match read.and_then(|body| ReservedCall::read(api, body, llm.reserve)) {
            Ok(call) => call,
            Err(error) if has_arrived => {
                return match evaluated.refusal().await {
                    Some(refused) => Ok((refused, None)),
                    None => Err(error),
                };
            }
            Err(error) => return Err(error),
        };
        provisional.release().await;
        let outcome = evaluated.evaluate(&mut call).await;
        Ok((outcome, Some(call)))
    }
}

/// A call that is evaluated by one filter and one version of its rules.
struct EvaluatedCall<'a, D, H> {
    filter: &'a Filter,
    handler: &'a H,
    rules: &'a Option<ActiveRuleSet>,
    request: IncomingRequest<'a, D>,
}

impl<'a, D, H> EvaluatedCall<'a, D, H>
where
    D: RequestHead + Sync,
    H: Handler<Report = Decision, Rules = Option<ActiveRuleSet>>,
{
    /// Decides whether the body may be read, and takes what needs nothing of it until then.
    async fn admit_body(&self) -> Result<ProvisionalHold, FilterOutcome<Decision>> {
        if let Some(refused) = self.refusal().await {
            return Err(refused);
        }
        let evaluation = self.evaluation(|context| context.provisional().held())?;
        let hold = Box::pin(evaluation.hold_provisionally(decides)).await?;
        Ok(ProvisionalHold(hold))
    }

    /// Returns how the call is refused whatever its body says: by missing keys, or by rules that
    /// do not count tokens. Rules that do may refuse it too, if they already owe some.
    async fn refusal(&self) -> Option<FilterOutcome<Decision>> {
        // It is held as the call will be, for the levels of its limits.
        match self.evaluation(|context| context.without_tokens().held()) {
            Ok(evaluation) => Box::pin(evaluation.refusal(decides)).await,
            Err(error) => Some(error.into()),
        }
    }

    /// Evaluates the call with its tokens, which are held until it is settled. Rules that clamp
    /// lower them first.
    async fn evaluate(&self, call: &mut ReservedCall) -> FilterOutcome<Decision> {
        let clamps = |rules: &ActiveRuleSet| rules.rules().iter().any(|rule| rule.clamps());
        if self.rules.as_ref().is_some_and(clamps)
            && let Ok(evaluation) = self.evaluation(|context| call.reserve(context))
        {
            // The future is large, and few rules clamp.
            let decision = Box::pin(evaluation.peek()).await;
            call.clamp(decision.levels());
        }
        match self.evaluation(|context| call.reserve(context)) {
            Ok(evaluation) => evaluation.evaluate().await,
            Err(error) => error.into(),
        }
    }

    fn evaluation(
        &self,
        customize: impl FnOnce(RequestContextBuilder<'a>) -> RequestContextBuilder<'a>,
    ) -> Result<Evaluation<'a, H>, ContextError> {
        Evaluation::new(
            self.filter,
            self.handler,
            self.rules,
            self.request,
            customize,
        )
    }
}

/// Returns whether a denial stands before the cost of the call is known. A rule that charges
/// denied requests too must be decided once, and with the whole cost.
pub(super) fn decides(denial: &Decision) -> bool {
    let mut rules = denial.rules();
    denial.outcome() == Outcome::Forbidden || !rules.any(|(rule, _)| rule.charges_always())
}

/// The slots and units of a call while its body is read. They are returned when it is dropped.
#[derive(Debug, Default)]
struct ProvisionalHold(Option<RequestHold>);

impl ProvisionalHold {
    /// Returns the slots and units, so that the call can be charged as a whole.
    async fn release(mut self) {
        if let Some(hold) = self.0.take() {
            // If the store fails, the hold expires, and the evaluation meets the same failure.
            let _ = hold.settle(Settlement::RELEASE).await;
        }
    }
}

impl Drop for ProvisionalHold {
    fn drop(&mut self) {
        if let Some(hold) = self.0.take() {
            hold.release_in_background();
        }
    }
}
