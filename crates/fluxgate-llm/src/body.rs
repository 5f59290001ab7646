//! Answers that are no streams.

use crate::api::Api;
use crate::observed::Observed;
use crate::usage_finder::UsageFinder;

/// The text of a larger answer is counted by all its bytes if it reports no usage.
pub(crate) const MAX_BODY: usize = 4 * 1024 * 1024;

/// Reads a JSON answer while it passes, unchanged.
///
/// The usage is found in an answer of any size: that of a batch of embeddings has many
/// megabytes and ends with it. The rest is kept, up to a bound, to count its text in case
/// there is no usage.
#[derive(Debug)]
pub(crate) struct BodyScanner {
    api: Api,
    finder: UsageFinder,
    kept: Vec<u8>,
    size: u64,
    pub(crate) observed: Observed,
}

impl BodyScanner {
    pub(crate) fn new(api: Api) -> Self {
        Self {
            api,
            finder: UsageFinder::default(),
            kept: Vec::new(),
            size: 0,
            observed: Observed::new(api),
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

    /// Takes the end of the answer, or the place where it was cut off. Its usage is that of
    /// the whole answer in either case. If it has no completion, the text is counted.
    pub(crate) fn finish(&mut self) {
        let usage = self.finder.found();
        let kept = std::mem::take(&mut self.kept);
        let size = std::mem::take(&mut self.size);
        self.observed.add_usage(usage);
        if usage.completion().unwrap_or(0) == 0 {
            if kept.is_empty() {
                self.observed.add_unread(size, usage);
            } else {
                self.observed.add_body(&kept);
            }
        }
        self.observed.end();
    }
}
