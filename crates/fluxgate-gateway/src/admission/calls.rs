//! Requests of routes that count the tokens of language models.

use std::net::IpAddr;

use fluxgate_core::rules::ActiveRuleSet;
use fluxgate_core::{Decision, Outcome, RequestContextBuilder, Settlement};
use fluxgate_llm::Api;
use fluxgate_tower::internals::{Filter, FilterOutcome, RequestHead};
use fluxgate_tower::{Handler, RequestHold};

use super::ReceivedRequest;
use crate::config::{LlmConfig, MAX_CALL_BODY, UnknownCalls};
use crate::error::GatewayError;
use crate::gateway::{Engine, Gateway};
use crate::llm::{CallKind, ReadBody, ReservedCall, with_tokens};

/// What a filter that counts tokens says of a request, and the call that it makes, if any.
type CallOutcome = (FilterOutcome<Decision>, Option<ReservedCall>);

impl<E: Engine> Gateway<E> {
    /// Evaluates a request by the filter that counts tokens.
    pub(super) async fn evaluate_call<D, H>(
        &self,
        llm: LlmConfig,
        (filter, handler): (&Filter, &H),
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
                let evaluation = CallEvaluation {
                    filter,
                    handler,
                    rules: &rules,
                    request,
                };
                return self.evaluate_known(llm, api, evaluation, body).await;
            }
            CallKind::NoCall => None,
            CallKind::Unknown => match llm.unknown {
                UnknownCalls::Cost(tokens) => Some(tokens),
                UnknownCalls::Allow => None,
                UnknownCalls::Deny => return Err(GatewayError::UnknownCall),
            },
        };
        let (head, peer) = ((request.head, request.path), request.client.peer.ip());
        let evaluation = filter.evaluate_with(handler, &rules, head, Some(peer), |context| {
            match tokens {
                // What it uses is not known afterwards either, so nothing is held.
                Some(tokens) => with_tokens(context, [tokens; 3]),
                None => context.without_tokens(),
            }
        });
        Ok((evaluation.await, None))
    }

    /// Evaluates a call whose tokens can be counted.
    ///
    /// What needs nothing of the body is decided before the body is read, so that a client
    /// that is refused anyway cannot fill memory. Where the body is already there, reading it
    /// costs nothing; then one evaluation suffices, and only a body that cannot be counted
    /// needs another, for the same answer in both cases.
    async fn evaluate_known<D, H>(
        &self,
        llm: LlmConfig,
        api: Api,
        evaluation: CallEvaluation<'_, D, H>,
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
            match evaluation.admit_body().await {
                Ok(provisional) => provisional,
                Err(refused) => return Ok((refused, None)),
            }
        };
        let max = self.limits.body_bytes.map_or(MAX_CALL_BODY, u64::from);
        let read = body.read(max, &self.call_bodies).await;
        let mut call = match read.and_then(|body| ReservedCall::read(api, body, llm.reserve)) {
            Ok(call) => call,
            Err(error) if has_arrived => {
                return match evaluation.refusal().await {
                    Some(refused) => Ok((refused, None)),
                    None => Err(error),
                };
            }
            Err(error) => return Err(error),
        };
        provisional.release().await;
        let outcome = evaluation.evaluate(&mut call).await;
        Ok((outcome, Some(call)))
    }
}

/// A call that is evaluated by one filter and one version of its rules.
struct CallEvaluation<'a, D, H> {
    filter: &'a Filter,
    handler: &'a H,
    rules: &'a Option<ActiveRuleSet>,
    request: &'a ReceivedRequest<'a, D>,
}

impl<'a, D, H> CallEvaluation<'a, D, H>
where
    D: RequestHead + Sync,
    H: Handler<Report = Decision, Rules = Option<ActiveRuleSet>>,
{
    /// Decides whether the body may be read, and takes what needs nothing of it until then.
    async fn admit_body(&self) -> Result<ProvisionalHold, FilterOutcome<Decision>> {
        if let Some(refused) = self.refusal().await {
            return Err(refused);
        }
        let (head, peer) = ((self.request.head, self.request.path), self.peer());
        let filter = self.filter;
        let hold = filter.hold_provisionally(self.handler, self.rules, head, peer, decides);
        Ok(ProvisionalHold(Box::pin(hold).await?))
    }

    /// Returns how the call is refused whatever its body says: by missing keys, or by rules that
    /// do not count tokens. Rules that do may refuse it too, if they already owe some.
    async fn refusal(&self) -> Option<FilterOutcome<Decision>> {
        let (head, peer) = ((self.request.head, self.request.path), self.peer());
        let filter = self.filter;
        // It is held as the call will be, for the levels of its limits.
        let customize = |context: RequestContextBuilder<'a>| context.without_tokens().held();
        let refusal = filter.refusal(self.handler, self.rules, head, peer, customize, decides);
        Box::pin(refusal).await
    }

    /// Evaluates the call with its tokens.
    async fn evaluate(&self, call: &mut ReservedCall) -> FilterOutcome<Decision> {
        let (head, peer) = ((self.request.head, self.request.path), self.peer());
        call.evaluate(self.filter, self.handler, self.rules, head, peer)
            .await
    }

    fn peer(&self) -> Option<IpAddr> {
        Some(self.request.client.peer.ip())
    }
}

/// Returns whether a denial stands before the cost of the call is known. A rule that charges
/// denied requests too must be decided once, and with the whole cost.
fn decides(denial: &Decision) -> bool {
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
