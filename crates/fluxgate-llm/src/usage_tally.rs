//! What an answer has shown so far, and what it counts for.

use crate::answer::{read_body, read_event};
use crate::api::Api;
use crate::facts::Facts;
use crate::request::Request;
use crate::seen::Seen;
use crate::usage::ReportedUsage;
use crate::usage_finder::UsageFinder;

/// The tokens that a call used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenUsage {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the completion.
    pub completion_tokens: u64,
    /// All tokens, as the upstream adds them up, and at least the sum of both.
    pub total_tokens: u64,
    /// Whether the upstream reported the numbers. If not, they are what was seen and, for the
    /// prompt, its bound.
    pub is_reported: bool,
}

/// What an answer has shown so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed {
    api: Api,
    usage: ReportedUsage,
    seen: Seen,
    repeated: Seen,
    done: Seen,
    /// Whether text has come after the last usage, which then is not the final one.
    text_follows: bool,
    /// Whether the answer has ended; if not, it may have been cut off.
    has_ended: bool,
}

impl Observed {
    pub(crate) fn new(api: Api) -> Self {
        Self {
            api,
            usage: ReportedUsage::default(),
            seen: Seen::default(),
            repeated: Seen::default(),
            done: Seen::default(),
            text_follows: false,
            has_ended: false,
        }
    }

    /// Takes the end of the answer, which was not cut off.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Adds an event. Returns whether it is the one that only `include_usage` brings.
    ///
    /// Data that is no JSON counts by its bytes: what it says is not known.
    pub(crate) fn add_event(&mut self, data: &[u8]) -> bool {
        let data = data.trim_ascii();
        // The end of the stream says nothing else, also if it is cut off.
        if b"[DONE]".starts_with(data) {
            self.has_ended |= data == b"[DONE]";
            return false;
        }
        match read_event(self.api, data) {
            Ok(facts) => {
                self.add(facts);
                facts.is_usage_only
            }
            Err(_) if data.starts_with(b"{") => {
                let mut finder = UsageFinder::default();
                finder.feed(self.api, data);
                self.add_unread(data.len() as u64, finder.found());
                false
            }
            // No event of these APIs, so it does not make usage incomplete.
            Err(_) => {
                self.seen.add_piece(data.len() as u64);
                false
            }
        }
    }

    /// Adds an answer that is no stream.
    pub(crate) fn add_body(&mut self, body: &[u8]) {
        match read_body(self.api, body) {
            Ok(facts) => self.add(facts),
            Err(_) => self.add_unread(body.len() as u64, ReportedUsage::default()),
        }
    }

    /// Adds usage that was found without reading the answer around it.
    pub(crate) fn add_usage(&mut self, usage: ReportedUsage) {
        self.add(Facts {
            usage,
            is_last: usage.is_some,
            ..Facts::default()
        });
    }

    /// Adds an event that was too large to keep. Those of responses repeat the request.
    pub(crate) fn add_large_event(&mut self, bytes: u64, usage: ReportedUsage) {
        match self.api {
            Api::Responses => self.add_usage(usage),
            _ => self.add_unread(bytes, usage),
        }
    }

    /// Adds so many bytes that could not be read, and the usage that was found in them.
    pub(crate) fn add_unread(&mut self, bytes: u64, usage: ReportedUsage) {
        let mut facts = Facts {
            usage,
            ..Facts::default()
        };
        facts.seen.add_piece(bytes);
        self.add(facts);
    }

    /// Returns what the call used, as far as it is known: never less than what was seen,
    /// unless the answer ended after its usage. A report of 0 tokens says nothing about a
    /// prompt, nor about a completion that was seen: servers that do not count report it.
    pub(crate) fn tokens(&self, request: &Request) -> TokenUsage {
        let seen = self.seen_tokens(request);
        let is_final = self.has_ended && !self.text_follows;
        let prompt = self.usage.prompt().filter(|tokens| *tokens > 0);
        let completion = self.usage.completion();
        let completion = completion.filter(|tokens| *tokens > 0 || seen == 0);
        let is_reported = is_final && prompt.is_some() && completion.is_some();
        let prompt = prompt.unwrap_or_else(|| request.prompt_tokens());
        let completion = match completion {
            Some(completion) if is_final => completion,
            reported => reported.unwrap_or(0).max(seen),
        };
        let sum = prompt.saturating_add(completion);
        TokenUsage {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: self.usage.total().unwrap_or(0).max(sum),
            is_reported,
        }
    }

    fn seen_tokens(&self, request: &Request) -> u64 {
        if self.api == Api::Embeddings {
            return 0;
        }
        let seen = self.seen.max(self.repeated).max(self.done);
        let seen = seen.tokens(request.reserve());
        if request.runs_in_background() {
            seen.max(request.completion_tokens())
        } else {
            seen
        }
    }

    fn add(&mut self, facts: Facts) {
        self.usage.merge(facts.usage);
        let has_text = !facts.seen.is_empty();
        if facts.usage.is_some || has_text {
            self.text_follows = !facts.usage.is_some;
        }
        self.has_ended = !has_text && (self.has_ended || facts.is_last);
        self.seen.add(facts.seen);
        self.repeated = self.repeated.max(facts.repeated);
        self.done.add(facts.done);
    }
}
