//! The usage and the text of an answer so far, and the tokens that they count for.

use crate::answer::{AnswerFacts, read_body, read_event};
use crate::api::Api;
use crate::request::Request;
use crate::reserve::{TextCounts, TokenUsage};
use crate::usage::{ReportedUsage, UsageFinder};

/// The usage and the text of an answer so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsageTally {
    api: Api,
    usage: ReportedUsage,
    new_text: TextCounts,
    all_text: TextCounts,
    part_text: TextCounts,
    /// Whether text has come after the last usage, which then is not the final one.
    text_follows: bool,
    /// Whether the answer has ended; if not, it may have been cut off.
    has_ended: bool,
}

impl UsageTally {
    pub(crate) fn new(api: Api) -> Self {
        Self {
            api,
            usage: ReportedUsage::default(),
            new_text: TextCounts::default(),
            all_text: TextCounts::default(),
            part_text: TextCounts::default(),
            text_follows: false,
            has_ended: false,
        }
    }

    /// Records that the answer has ended and was not cut off.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Adds an event. Returns whether it is the one that only `include_usage` adds.
    ///
    /// Data that is not JSON counts by its bytes.
    pub(crate) fn add_event(&mut self, data: &[u8]) -> bool {
        let data = data.trim_ascii();
        // The mark of the end, which may be cut off, has no text.
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
                self.add_unread(data.len() as u64, finder.found);
                false
            }
            // No API has such an event, so text in it does not make a usage before it incomplete.
            Err(_) => {
                self.new_text.add_piece(data.len() as u64);
                false
            }
        }
    }

    /// Adds an answer that is not a stream.
    pub(crate) fn add_body(&mut self, body: &[u8]) {
        match read_body(self.api, body) {
            Ok(facts) => self.add(facts),
            Err(_) => self.add_unread(body.len() as u64, ReportedUsage::default()),
        }
    }

    /// Adds usage that was found without reading the answer around it.
    pub(crate) fn add_usage(&mut self, usage: ReportedUsage) {
        self.add(AnswerFacts {
            usage,
            is_last: usage.is_some,
            ..AnswerFacts::default()
        });
    }

    /// Adds an event that was too large to keep. A large event of responses repeats the request.
    pub(crate) fn add_large_event(&mut self, bytes: u64, usage: ReportedUsage) {
        match self.api {
            Api::Responses => self.add_usage(usage),
            _ => self.add_unread(bytes, usage),
        }
    }

    /// Adds `bytes` bytes that could not be read, and the usage that was found in them.
    pub(crate) fn add_unread(&mut self, bytes: u64, usage: ReportedUsage) {
        let mut facts = AnswerFacts {
            usage,
            ..AnswerFacts::default()
        };
        facts.new_text.add_piece(bytes);
        self.add(facts);
    }

    /// Returns the tokens that the call used so far: at least those of the text that was seen,
    /// unless the answer ended after its usage. Servers that do not count report 0 tokens, so a
    /// report of 0 is ignored for a prompt, and for a completion whose text was seen.
    pub(crate) fn tokens(&self, request: &Request) -> TokenUsage {
        let seen = self.seen_tokens(request);
        let is_final = self.has_ended && !self.text_follows;
        let reported_prompt = self.usage.prompt().filter(|tokens| *tokens > 0);
        let reported_completion = self
            .usage
            .completion()
            .filter(|tokens| *tokens > 0 || seen == 0);
        let prompt_tokens = reported_prompt.unwrap_or_else(|| request.prompt_tokens());
        let completion_tokens = match reported_completion {
            Some(completion) if is_final => completion,
            reported => reported.unwrap_or(0).max(seen),
        };
        let sum = prompt_tokens.saturating_add(completion_tokens);
        TokenUsage {
            prompt_tokens,
            completion_tokens,
            total_tokens: self.usage.total.unwrap_or(0).max(sum),
            is_reported: is_final && reported_prompt.is_some() && reported_completion.is_some(),
        }
    }

    /// Returns the tokens of the text that was seen.
    fn seen_tokens(&self, request: &Request) -> u64 {
        if self.api == Api::Embeddings {
            return 0;
        }
        let text = self.new_text.max(self.all_text).max(self.part_text);
        let seen = text.tokens(request.reserve());
        if request.runs_in_background() {
            seen.max(request.completion_tokens())
        } else {
            seen
        }
    }

    fn add(&mut self, facts: AnswerFacts) {
        self.usage.merge(facts.usage);
        let has_text = !facts.new_text.is_empty();
        if facts.usage.is_some || has_text {
            self.text_follows = !facts.usage.is_some;
        }
        self.has_ended = !has_text && (self.has_ended || facts.is_last);
        self.new_text.add(facts.new_text);
        self.all_text = self.all_text.max(facts.all_text);
        self.part_text.add(facts.part_text);
    }
}
