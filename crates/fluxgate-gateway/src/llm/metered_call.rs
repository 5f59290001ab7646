//! A call on its way: its answer is counted as it passes, and its tokens are settled.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use fluxgate_core::{BandLevel, Decision, RequestContextBuilder, Tokens};
use fluxgate_http::RequestHold;
use fluxgate_llm::{AnswerFormat, Api, Meter, MeterOutput, Request, Reserve, TokenUsage};

use super::body_buffer::BufferedBody;
use crate::config::OnAbort;
use crate::error::GatewayError;

/// A call that was allowed. It is settled once: by [`MeteredCall::finish`] at the end of the
/// answer; by [`MeteredCall::cut_off`] where the upstream ends it, by what was seen until
/// then; or when it is dropped, because the client has left or no answer has come, as `on_abort`
/// says.
#[derive(Debug)]
pub(crate) struct MeteredCall {
    meter: Meter,
    hold: RequestHold,
    on_abort: OnAbort,
    observer: Arc<dyn CallObserver>,
    progress: CallProgress,
    /// Whether events may be removed from the answer.
    pub(crate) removes_events: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallProgress {
    /// Nothing was used: the call was not sent, or was answered with an error.
    Unused,
    /// The upstream may have read the prompt.
    Sent,
    /// The answer passes.
    Answered,
    Settled,
}

impl MeteredCall {
    pub(super) fn new(
        request: Request,
        hold: RequestHold,
        on_abort: OnAbort,
        observer: Arc<dyn CallObserver>,
    ) -> Self {
        Self {
            // Without an answer, the prompt counts.
            meter: Meter::new(request, AnswerFormat::Events),
            hold,
            on_abort,
            observer,
            progress: CallProgress::Unused,
            removes_events: false,
        }
    }

    /// Records that the call is sent: if the client does not wait for the answer, the prompt
    /// counts.
    pub(crate) fn sent(&mut self) {
        self.progress = CallProgress::Sent;
    }

    /// Settles a call that no upstream has seen: no tokens count.
    pub(crate) fn unsent(call: Option<Box<Self>>) {
        if let Some(mut call) = call {
            call.progress = CallProgress::Unused;
        }
    }

    /// Settles a call that gets no answer. If part of it was sent, the upstream may work on it,
    /// and it costs what a call costs whose client has left.
    pub(crate) fn fail(call: Option<Box<Self>>, is_sent: bool) {
        if is_sent {
            drop(call);
        } else {
            Self::unsent(call);
        }
    }

    /// Takes the head of the response. An error is no answer.
    pub(crate) fn answered<'h>(
        &mut self,
        status: u16,
        headers: impl Iterator<Item = (&'h str, &'h [u8])>,
    ) {
        if !(200..300).contains(&status) {
            self.progress = CallProgress::Unused;
            return;
        }
        let (mut content_type, mut encoding) = (None, None);
        for (name, value) in headers {
            if name.eq_ignore_ascii_case("content-type") {
                content_type = Some(value);
            } else if name.eq_ignore_ascii_case("content-encoding")
                && !value.is_empty()
                && !value.eq_ignore_ascii_case(b"identity")
            {
                encoding = Some(value);
            }
        }
        let request = self.meter.request().clone();
        let format = AnswerFormat::of_headers(content_type, encoding);
        self.removes_events = format == AnswerFormat::Events && request.needs_usage_option();
        self.meter = Meter::new(request, format);
        self.progress = CallProgress::Answered;
    }

    /// Takes a part of the answer. Returns what to pass on.
    pub(crate) fn feed(&mut self, part: &[u8]) -> MeterOutput {
        match self.progress {
            CallProgress::Answered => self.meter.feed(part),
            _ => MeterOutput::Unchanged,
        }
    }

    /// Takes the end of the answer and settles the call. Returns the rest to send.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.end(Meter::finish)
    }

    /// Settles a call whose answer is cut off here. Returns the rest to send.
    pub(crate) fn cut_off(&mut self) -> Vec<u8> {
        self.end(Meter::cut_off)
    }

    fn end(&mut self, end: impl FnOnce(&mut Meter) -> Vec<u8>) -> Vec<u8> {
        let rest = match self.progress {
            CallProgress::Answered => end(&mut self.meter),
            _ => Vec::new(),
        };
        self.settle(TokenUsage::clone);
        rest
    }

    /// Settles a call whose client has left, or that got no answer.
    fn abandon(&mut self) {
        if self.progress == CallProgress::Answered {
            let _ = self.meter.cut_off();
        }
        let reserved = self.meter.request().reserved();
        let on_abort = self.on_abort;
        self.settle(|seen| match on_abort {
            OnAbort::Seen => *seen,
            // Never below what was seen, which may exceed what was reserved.
            OnAbort::Reserved => TokenUsage {
                prompt_tokens: seen.prompt_tokens.max(reserved.prompt_tokens),
                completion_tokens: seen.completion_tokens.max(reserved.completion_tokens),
                total_tokens: seen.total_tokens.max(reserved.total_tokens),
                is_reported: false,
            },
        });
    }

    /// Settles the call with what `charge` makes of the tokens that were seen.
    fn settle(&mut self, charge: impl FnOnce(&TokenUsage) -> TokenUsage) {
        let (end, used) = match self.progress {
            CallProgress::Settled => return,
            CallProgress::Unused => (CallEnd::Failed, TokenUsage::default()),
            CallProgress::Sent | CallProgress::Answered => {
                let used = charge(&self.meter.tokens());
                let end = if used.is_reported {
                    CallEnd::Reported
                } else {
                    CallEnd::Estimated
                };
                (end, used)
            }
        };
        self.progress = CallProgress::Settled;
        let (prompt, completion) = (used.prompt_tokens, used.completion_tokens);
        self.observer.call_settled(end, prompt, completion);
        self.hold.settle_in_background([
            (Tokens::Total.attribute(), used.total_tokens),
            (Tokens::Prompt.attribute(), used.prompt_tokens),
            (Tokens::Completion.attribute(), used.completion_tokens),
        ]);
    }
}

impl Drop for MeteredCall {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Records calls to language models as they are settled.
pub trait CallObserver: fmt::Debug + Send + Sync {
    /// Records a call with the tokens that it is charged.
    fn call_settled(&self, end: CallEnd, prompt_tokens: u64, completion_tokens: u64);
}

/// How the tokens of a call became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The answer reported them.
    Reported,
    /// They are what was seen of the answer and, for the prompt, its bound.
    Estimated,
    /// There was no answer, or it was an error: no tokens are charged.
    Failed,
}

impl CallEnd {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Reported, Self::Estimated, Self::Failed];

    /// Returns the name for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Estimated => "estimated",
            Self::Failed => "failed",
        }
    }
}

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
        let request = Request::read(api, body.as_ref(), reserve);
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
                let sent = self.request.rewrite(self.body.as_ref());
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
