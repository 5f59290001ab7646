//! What an answer has shown so far, and what it counts for.

use crate::answer::{read_body, read_event};
use crate::api::Api;
use crate::facts::Facts;
use crate::request::Request;
use crate::seen::Seen;
use crate::usage::ReportedUsage;

/// The tokens that a call used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenUsage {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the completion.
    pub completion_tokens: u64,
    /// All tokens, as the upstream adds them up.
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
    /// Whether text has come after the last usage, which then is not the final one.
    text_follows: bool,
}

impl Observed {
    pub(crate) fn new(api: Api) -> Self {
        Self {
            api,
            usage: ReportedUsage::default(),
            seen: Seen::default(),
            repeated: Seen::default(),
            text_follows: false,
        }
    }

    /// Adds an event. Returns whether it is the one that only `include_usage` brings.
    ///
    /// Data that is no JSON counts by its bytes: what it says is not known.
    pub(crate) fn add_event(&mut self, data: &[u8]) -> bool {
        // The end of the stream says nothing, also if it is cut off.
        if b"[DONE]".starts_with(data) {
            return false;
        }
        match read_event(self.api, data) {
            Ok(facts) => {
                self.add(facts);
                facts.is_usage_only
            }
            Err(_) => {
                self.add_unread(data.len() as u64);
                false
            }
        }
    }

    /// Adds an answer that is no stream.
    pub(crate) fn add_body(&mut self, body: &[u8]) {
        match read_body(self.api, body) {
            Ok(facts) => self.add(facts),
            Err(_) => self.add_unread(body.len() as u64),
        }
    }

    /// Adds usage that was found without reading the answer around it.
    pub(crate) fn add_usage(&mut self, usage: ReportedUsage) {
        self.add(Facts {
            usage,
            ..Facts::default()
        });
    }

    /// Adds so many bytes that could not be read.
    pub(crate) fn add_unread(&mut self, bytes: u64) {
        let mut facts = Facts::default();
        facts.seen.add_piece(bytes);
        self.add(facts);
    }

    /// Returns whether the usage was reported and no text has followed.
    pub(crate) fn is_final(&self) -> bool {
        self.usage.is_some && !self.text_follows
    }

    /// Returns what the call used, as far as it is known.
    pub(crate) fn tokens(&self, request: &Request) -> TokenUsage {
        let (prompt, completion) = (self.usage.prompt(), self.usage.completion());
        let is_reported = self.is_final() && prompt.is_some() && completion.is_some();
        let prompt = prompt.unwrap_or_else(|| request.prompt_tokens());
        let completion = match completion {
            Some(completion) if self.is_final() => completion,
            reported => reported.unwrap_or(0).max(self.seen_tokens(request)),
        };
        let sum = prompt.saturating_add(completion);
        let total = match self.usage.total() {
            Some(total) if self.is_final() => total,
            total => total.unwrap_or(0).max(sum),
        };
        TokenUsage {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: total,
            is_reported,
        }
    }

    fn seen_tokens(&self, request: &Request) -> u64 {
        if self.api == Api::Embeddings {
            return 0;
        }
        let seen = self.seen.max(self.repeated).tokens(request.reserve());
        match request.runs_in_background() {
            true => seen.max(request.completion_tokens()),
            false => seen,
        }
    }

    fn add(&mut self, facts: Facts) {
        self.seen.add(facts.seen);
        self.repeated = self.repeated.max(facts.repeated);
        if facts.usage.is_some {
            self.usage.merge(facts.usage);
            self.text_follows = false;
        } else if !facts.seen.is_empty() {
            self.text_follows = true;
        }
    }
}
