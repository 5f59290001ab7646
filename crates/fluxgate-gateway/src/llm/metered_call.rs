//! A call on its way: its answer is counted as it passes, and its tokens are settled.

use std::sync::Arc;

use fluxgate_core::Tokens;
use fluxgate_http::RequestHold;
use fluxgate_llm::{AnswerFormat, Meter, MeterOutput, Request, TokenUsage};

use super::call_observer::{CallEnd, CallObserver};
use crate::config::OnAbort;

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
    removes_events: bool,
}

const UNUSED: TokenUsage = TokenUsage {
    prompt_tokens: 0,
    completion_tokens: 0,
    total_tokens: 0,
    is_reported: false,
};

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

    /// Returns whether events may be removed from the answer, so that its length is unknown.
    pub(crate) fn removes_events(&self) -> bool {
        self.removes_events
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
        let request = self.meter.request();
        let reserved = TokenUsage {
            prompt_tokens: request.prompt_tokens(),
            completion_tokens: request.completion_tokens(),
            total_tokens: request.total_tokens(),
            is_reported: false,
        };
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
            CallProgress::Unused => (CallEnd::Failed, UNUSED),
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
