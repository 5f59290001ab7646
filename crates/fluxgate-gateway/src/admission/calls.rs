//! Requests of routes that count the tokens of language models.

use fluxgate_core::Decision;
use fluxgate_core::internals::ActiveRuleSet;
use fluxgate_llm::Api;
use fluxgate_tower::Handler;
use fluxgate_tower::internals::{Filter, FilterOutcome, RequestHead};

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
                return self
                    .evaluate_known(llm, api, (filter, handler), request, body)
                    .await;
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
        (filter, handler): (&Filter, &H),
        request: &ReceivedRequest<'_, D>,
        body: &mut impl ReadBody,
    ) -> Result<CallOutcome, GatewayError>
    where
        D: RequestHead + Sync,
        H: Handler<Report = Decision, Rules = Option<ActiveRuleSet>>,
    {
        let has_arrived = body.has_arrived().await;
        if !has_arrived && let Some(refused) = refusal((filter, handler), request).await {
            return Ok((refused, None));
        }
        let max = self.limits.body_bytes.map_or(MAX_CALL_BODY, u64::from);
        let read = body.read(max, &self.call_bodies).await;
        let mut call = match read.and_then(|body| ReservedCall::read(api, body, llm.reserve)) {
            Ok(call) => call,
            Err(error) if has_arrived => {
                return match refusal((filter, handler), request).await {
                    Some(refused) => Ok((refused, None)),
                    None => Err(error),
                };
            }
            Err(error) => return Err(error),
        };
        let peer = request.client.peer.ip();
        let evaluation = call.evaluate(filter, handler, request.head, request.path, peer);
        let outcome = evaluation.await;
        Ok((outcome, Some(call)))
    }
}

/// Returns how a call is refused whatever its body says: by missing keys, or by rules that do
/// not count tokens. Rules that do may refuse it too, if they already owe some.
async fn refusal<D, H>(
    (filter, handler): (&Filter, &H),
    request: &ReceivedRequest<'_, D>,
) -> Option<FilterOutcome<Decision>>
where
    D: RequestHead + Sync,
    H: Handler<Report = Decision, Rules = Option<ActiveRuleSet>>,
{
    let rules = filter.rules_for(handler, request.path)?;
    // A rule that charges denied requests too must be decided once, and with the whole cost.
    let mut all = rules.iter().flat_map(|set| set.rules());
    if all.any(|rule| rule.charges_always()) {
        return None;
    }
    let (head, peer) = ((request.head, request.path), request.client.peer.ip());
    // It is held as the call will be, for the levels of its limits.
    let refusal = filter.refusal(handler, &rules, head, Some(peer), |context| {
        context.without_tokens().held()
    });
    Box::pin(refusal).await
}
