//! A call that reserves its tokens.

use std::sync::Arc;

use bytes::Bytes;
use fluxgate_core::{BandLevel, Decision, RequestContextBuilder, Tokens};
use fluxgate_http::RequestHold;
use fluxgate_llm::{Api, Request, Reserve};

use super::body_buffer::BufferedBody;
use super::call_observer::CallObserver;
use super::metered_call::MeteredCall;
use crate::config::OnAbort;
use crate::error::GatewayError;

/// A call whose body has been read.
#[derive(Debug)]
pub(crate) struct ReservedCall {
    request: Request,
    body: BufferedBody,
}

impl ReservedCall {
    /// Reads the body of a call.
    pub(crate) fn read(
        api: Api,
        body: BufferedBody,
        reserve: Reserve,
    ) -> Result<Self, GatewayError> {
        let request = Request::read(api, body.content(), reserve);
        let request = request.map_err(GatewayError::UncountableCall)?;
        Ok(Self { request, body })
    }

    /// Adds the tokens of the call to its context, to hold them until it is settled.
    pub(crate) fn reserve<'c>(
        &self,
        context: RequestContextBuilder<'c>,
    ) -> RequestContextBuilder<'c> {
        let request = &self.request;
        let tokens = [
            request.total_tokens(),
            request.prompt_tokens(),
            request.completion_tokens(),
        ];
        with_tokens(context, tokens).held()
    }

    /// Returns the call that was allowed, and what to send. If the decision counts no tokens,
    /// the call passes as it is and there is nothing to meter.
    pub(crate) fn into_metered(
        mut self,
        decision: &Decision,
        hold: Option<RequestHold>,
        on_abort: OnAbort,
        observer: Arc<dyn CallObserver>,
    ) -> (Bytes, Result<MeteredCall, Option<RequestHold>>) {
        let counts_tokens = decision.rules().any(|(rule, _)| rule.tokens().is_some());
        match hold {
            Some(hold) if counts_tokens => {
                let sent = self.request.rewrite(self.body.content());
                self.body.replace(sent);
                let call = MeteredCall::new(self.request, hold, on_abort, observer);
                (self.body.into_bytes(), Ok(call))
            }
            hold => (self.body.into_bytes(), Err(hold)),
        }
    }

    /// Lowers the tokens of the completion to the tokens that are left for it.
    ///
    /// The bound is sent also if the client stated none, so that the call cannot use more than
    /// it reserved. If nothing is left, the bound is what the rules ever allow: the call is
    /// denied, or waits, as if it had requested no more.
    pub(crate) fn clamp<'d>(&mut self, levels: impl Iterator<Item = BandLevel<'d>>) {
        let prompt = self.request.prompt_tokens();
        let (mut left, mut most) = (None::<u64>, u64::MAX);
        for level in levels.filter(|level| level.rule.clamps()) {
            let used = match level.rule.tokens() {
                Some(Tokens::Total) => prompt,
                Some(Tokens::Completion) => 0,
                Some(Tokens::Prompt) | None => continue,
            };
            let here = level.remaining.saturating_sub(used);
            left = Some(left.map_or(here, |left| left.min(here)));
            let capacity = level.band.limit().capacity();
            most = most.min(capacity.saturating_sub(used));
        }
        let Some(left) = left else { return };
        let wanted = self.request.completion_tokens();
        let _ = self.request.clamp(wanted.min(left)) || self.request.clamp(wanted.min(most));
    }
}

/// Adds tokens to the context of a request: all, and those of the prompt and the completion.
pub(crate) fn with_tokens(
    context: RequestContextBuilder<'_>,
    [total, prompt, completion]: [u64; 3],
) -> RequestContextBuilder<'_> {
    context
        .attribute(Tokens::Total.attribute(), total.to_string())
        .attribute(Tokens::Prompt.attribute(), prompt.to_string())
        .attribute(Tokens::Completion.attribute(), completion.to_string())
}
