//! Answers that are not streams.

use crate::api::Api;
use crate::usage_finder::UsageFinder;
use crate::usage_tally::UsageTally;

/// The size up to which an answer is kept. A larger one that reports no usage counts by all its
/// bytes.
pub(crate) const MAX_BODY: usize = 4 * 1024 * 1024;

/// Reads a JSON answer while it passes, unchanged.
///
/// It finds the usage in an answer of any size: a batch of embeddings has many megabytes and
/// ends with the usage. It keeps the answer up to [`MAX_BODY`], to count its text if there is no
/// usage.
#[derive(Debug)]
pub(crate) struct BodyScanner {
    api: Api,
    finder: UsageFinder,
    kept: Vec<u8>,
    size: u64,
    pub(crate) tally: UsageTally,
}

impl BodyScanner {
    pub(crate) fn new(api: Api) -> Self {
        Self {
            api,
            finder: UsageFinder::default(),
            kept: Vec::new(),
            size: 0,
            tally: UsageTally::new(api),
        }
    }

    pub(crate) fn feed(&mut self, chunk: &[u8]) {
        self.size += chunk.len() as u64;
        self.finder.feed(self.api, chunk);
        // Embeddings have no text.
        if self.size > MAX_BODY as u64 || self.api == Api::Embeddings {
            self.kept = Vec::new();
        } else {
            self.kept.extend_from_slice(chunk);
        }
    }

    /// Ends the answer, which may have been cut off. Usage in it is that of the whole answer in
    /// either case. Without usage of the completion, the text counts.
    pub(crate) fn finish(&mut self) {
        let usage = self.finder.found();
        let kept = std::mem::take(&mut self.kept);
        let size = std::mem::take(&mut self.size);
        self.tally.add_usage(usage);
        if usage.completion().unwrap_or(0) == 0 {
            if kept.is_empty() {
                self.tally.add_unread(size, usage);
            } else {
                self.tally.add_body(&kept);
            }
        }
        self.tally.end();
    }
}
