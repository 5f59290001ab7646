//! Requests of routes that read calls of the Model Context Protocol.

use std::sync::Arc;

use bytes::Bytes;
use fluxgate_core::key::{MCP_METHOD, MCP_NAME};
use fluxgate_core::rules::ActiveRuleSet;
use fluxgate_core::{Decision, RequestContextBuilder};
use fluxgate_http::server::Origin;
use fluxgate_http::{
    ContextError, Evaluation, Filter, FilterOutcome, Handler, IncomingRequest, McpCall, RequestHead,
};

use super::calls::decides;
use crate::engine::Engine;
use crate::error::GatewayError;
use crate::llm::{BodyBuffer, ReadBody, check_body_head};
use crate::mcp::{Call, CallHead, CallHeaders, CallIds, Messages};
use crate::received_request::ReceivedRequest;

/// What a filter says of the calls of a request.
pub(super) struct EvaluatedMessages {
    pub(super) outcome: FilterOutcome<Decision>,
    /// The decision on the call of a batch whose slots must be renewed most often, if it is not
    /// that of the outcome.
    pub(super) holder: Option<Decision>,
    /// The body to send, if it was read.
    pub(super) body: Option<Bytes>,
    /// What a refusal answers.
    pub(super) ids: CallIds,
}

impl EvaluatedMessages {
    fn of(outcome: FilterOutcome<Decision>) -> Self {
        Self {
            outcome,
            holder: None,
            body: None,
            ids: CallIds::default(),
        }
    }
}

/// Evaluates the calls in a request, which is forwarded byte for byte. `max_body` is the largest
/// body in bytes.
///
/// The body is read even if headers announce the call: a client can write anything in them, and
/// the upstream may execute what the body says.
pub(super) async fn evaluate_messages<E, D, H>(
    engine: (&E, &Origin<'_>),
    (bodies, max_body): (&Arc<BodyBuffer>, u64),
    filter: &Filter,
    handler: &H,
    request: &ReceivedRequest<'_, D>,
    body: &mut impl ReadBody,
) -> Result<EvaluatedMessages, GatewayError>
where
    E: Engine,
    D: RequestHead + Sync,
    H: Handler<Report = Decision, Rules = Option<ActiveRuleSet>>,
{
    let Some(rules) = filter.rules_for(handler, request.path) else {
        return Ok(EvaluatedMessages::of(FilterOutcome::Skipped));
    };
    let evaluated = Evaluated {
        filter,
        handler,
        rules: &rules,
        request: request.incoming(),
    };
    // A stream of events, the end of a session, or a question of a browser.
    if request.body_length == Some(0) {
        return Ok(EvaluatedMessages::of(evaluated.evaluate_plain().await));
    }
    check_body_head(request.head)?;
    let headers = CallHeaders::read(request.head)?;
    // A client that is refused anyway cannot fill memory.
    let has_arrived = body.has_arrived().await;
    if !has_arrived && let Some(refused) = evaluated.refusal(&headers).await {
        return Ok(EvaluatedMessages::of(refused));
    }
    let read = body.read(max_body, bodies).await;
    let read = read.and_then(|body| Ok((read_messages(&headers, body.as_ref())?, body)));
    let (messages, body) = match read {
        Ok(read) => read,
        // The answer does not depend on how the body arrives.
        Err(error) if has_arrived => match evaluated.refusal(&headers).await {
            Some(refused) => return Ok(EvaluatedMessages::of(refused)),
            None => return Err(error),
        },
        Err(error) => return Err(error),
    };
    let (outcome, holder) = match &messages.calls[..] {
        // Answers to requests of the server are no calls.
        [] => (evaluated.evaluate_plain().await, None),
        [call] => (evaluated.evaluate_call(call.as_mcp_call()).await, None),
        calls => evaluated.evaluate_batch(engine, calls).await,
    };
    Ok(EvaluatedMessages {
        outcome,
        holder,
        body: Some(body.into_bytes()),
        ids: CallIds::of(&messages),
    })
}

/// Reads the messages of a body, which may be empty, and compares them with the headers.
fn read_messages(headers: &CallHeaders, body: &[u8]) -> Result<Messages, GatewayError> {
    if body.is_empty() {
        return Ok(Messages::default());
    }
    let messages = Messages::read(body);
    let messages = messages.map_err(|fault| GatewayError::UncountableMessages(fault.0))?;
    headers.check(&messages)?;
    Ok(messages)
}

/// A request that is evaluated by one filter and one version of its rules.
struct Evaluated<'a, D, H> {
    filter: &'a Filter,
    handler: &'a H,
    rules: &'a Option<ActiveRuleSet>,
    request: IncomingRequest<'a, D>,
}

impl<D, H> Evaluated<'_, D, H>
where
    D: RequestHead + Sync,
    H: Handler<Report = Decision, Rules = Option<ActiveRuleSet>>,
{
    /// Returns how the request is refused whatever its body says: by the call that its headers
    /// announce, which the body must repeat, or by rules that read no call. Nothing is charged.
    async fn refusal(&self, headers: &CallHeaders) -> Option<FilterOutcome<Decision>> {
        if let Some(call) = headers.call() {
            let head = self.head(call);
            return match self.evaluation(&head) {
                Ok(evaluation) => evaluation.refusal(decides).await,
                Err(error) => Some(error.into()),
            };
        }
        let exempts_calls = |rules: &ActiveRuleSet| rules.exempts_calls();
        if self.filter.reads_mcp_calls() || self.rules.as_ref().is_some_and(exempts_calls) {
            return None;
        }
        match self.plain_evaluation(RequestContextBuilder::without_call) {
            Ok(evaluation) => evaluation.refusal(decides).await,
            Err(error) => Some(error.into()),
        }
    }

    /// Evaluates a request without a call.
    async fn evaluate_plain(&self) -> FilterOutcome<Decision> {
        match self.plain_evaluation(|context| context) {
            Ok(evaluation) => evaluation.evaluate().await,
            Err(error) => error.into(),
        }
    }

    /// Evaluates a request with one call.
    async fn evaluate_call(&self, call: McpCall<'_>) -> FilterOutcome<Decision> {
        let head = self.head(call);
        match self.evaluation(&head) {
            Ok(evaluation) => evaluation.evaluate().await,
            Err(error) => error.into(),
        }
    }

    /// Evaluates a request with several calls, all or nothing. Returns the reported decision, and
    /// the one whose hold is kept.
    ///
    /// A batch does not wait: its calls would wait for each other, and one that has waited in
    /// vain would have to return what the others have reserved. It is decided as if no rule let
    /// requests wait, like a request without a permit.
    async fn evaluate_batch<E: Engine>(
        &self,
        (engine, origin): (&E, &Origin<'_>),
        calls: &[Call],
    ) -> (FilterOutcome<Decision>, Option<Decision>) {
        let heads = calls.iter().map(|call| self.head(call.as_mcp_call()));
        let heads: Vec<_> = heads.collect();
        let contexts = heads.iter().map(|head| {
            let evaluation = self.evaluation(head)?;
            Ok(evaluation.context().clone())
        });
        let contexts: Result<Vec<_>, ContextError> = contexts.collect();
        let contexts = match contexts {
            Ok(contexts) => contexts,
            Err(error) => return (error.into(), None),
        };
        let name = self.filter.rule_set_name().unwrap_or_default();
        let rules = self.rules.as_ref();
        let decisions = engine.decide_all(name, rules, &contexts, origin).await;
        let held = decisions.iter().filter(|it| it.hold().is_some());
        let holder = held.min_by_key(|it| it.renew_within()).cloned();
        let Some(reported) = reported(decisions) else {
            return (FilterOutcome::Skipped, None);
        };
        let outcome = if reported.allowed() {
            FilterOutcome::Allowed(reported)
        } else {
            FilterOutcome::Denied(reported)
        };
        (outcome, holder)
    }

    fn head<'c>(&'c self, call: McpCall<'c>) -> CallHead<'c, D> {
        let head = self.request.head;
        CallHead { head, call }
    }

    /// Starts the evaluation of a request without a call.
    fn plain_evaluation<'c>(
        &'c self,
        customize: impl FnOnce(RequestContextBuilder<'c>) -> RequestContextBuilder<'c>,
    ) -> Result<Evaluation<'c, H>, ContextError> {
        let Self {
            filter,
            handler,
            rules,
            request,
        } = self;
        Evaluation::new(filter, *handler, rules, *request, customize)
    }

    /// Starts the evaluation of a call. Rules may name its fields without a source.
    fn evaluation<'c>(
        &'c self,
        head: &'c CallHead<'c, D>,
    ) -> Result<Evaluation<'c, H>, ContextError> {
        let request = IncomingRequest {
            head,
            path: self.request.path,
            peer: self.request.peer,
        };
        let McpCall { method, name } = head.call;
        let customize = |context: RequestContextBuilder<'c>| {
            let context = context.attribute(MCP_METHOD, method);
            match name {
                Some(name) => context.attribute(MCP_NAME, name),
                None => context,
            }
        };
        Evaluation::new(self.filter, self.handler, self.rules, request, customize)
    }
}

/// Returns the denied decision with the longest wait, or else the one with the fewest units left;
/// the first among equals.
fn reported(decisions: Vec<Decision>) -> Option<Decision> {
    let precedes = |a: &Decision, b: &Decision| match (a.allowed(), b.allowed()) {
        (false, false) => a.retry() > b.retry(),
        (true, true) => match (a.remaining(), b.remaining()) {
            (Some(a), Some(b)) => a < b,
            (a, b) => a.is_some() && b.is_none(),
        },
        (a, _) => !a,
    };
    let decisions = decisions.into_iter();
    decisions.reduce(|best, next| if precedes(&next, &best) { next } else { best })
}
