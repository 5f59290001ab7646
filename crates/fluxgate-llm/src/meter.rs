//! Counts the tokens of an answer while it is passed on.

use crate::api::Api;
use crate::request::Request;
use crate::reserve::TokenUsage;
use crate::stream::StreamScanner;
use crate::usage::UsageFinder;
use crate::usage_tally::UsageTally;

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerFormat {
    /// A stream of server-sent events.
    Events,
    /// One JSON text.
    Json,
    /// A format that the meter cannot read, such as a compressed body.
    Unreadable,
}

/// The bytes to pass on for a chunk of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeterOutput {
    /// The chunk as it is.
    Unchanged,
    /// These bytes instead, if any.
    Instead(Vec<u8>),
}

/// Reads an answer while it passes, and counts its tokens.
///
/// Feed it chunks as they come, cut anywhere, and pass on what it returns. Call
/// [`finish`](Self::finish) at the end, or [`cut_off`](Self::cut_off) if either side cuts the
/// answer off. Then charge [`tokens`](Self::tokens).
///
/// If the upstream reports usage, its numbers count. If it reports none, the prompt counts by
/// its bound, and the completion by its text, for all choices together, with reasoning and the
/// arguments of tools: by the number of events with text or by the bytes divided by
/// `prompt_bytes_per_token`, whichever is more. If a stream is cut off, or if more text follows
/// the last report, the larger of report and text counts. A report of 0 tokens is ignored if
/// there was a prompt or text.
///
/// Parts that cannot be read count by their bytes: events that are not JSON or larger than 1 MiB
/// (except those of responses, which repeat the request), and JSON answers without usage that
/// are larger than 4 MiB or cut off. An answer in an unreadable format uses the whole
/// reservation, and so does one without usage to a request in the background.
#[derive(Debug)]
pub struct Meter {
    request: Request,
    scanner: Scanner,
    has_begun: bool,
}

#[derive(Debug)]
enum Scanner {
    Stream(StreamScanner),
    Body(BodyScanner),
    Unreadable,
}

impl AnswerFormat {
    /// Returns the format that the headers `Content-Type` and `Content-Encoding` state.
    ///
    /// Everything but a stream of events is read as JSON, because servers often omit its
    /// type.
    pub fn of_headers(content_type: Option<&[u8]>, content_encoding: Option<&[u8]>) -> Self {
        let encoding = content_encoding.unwrap_or_default().trim_ascii();
        if !encoding.is_empty() && !encoding.eq_ignore_ascii_case(b"identity") {
            return Self::Unreadable;
        }
        let content_type = content_type.unwrap_or_default();
        let media_type = content_type.split(|byte| *byte == b';').next();
        let media_type = media_type.unwrap_or_default().trim_ascii();
        if media_type.eq_ignore_ascii_case(b"text/event-stream") {
            Self::Events
        } else {
            Self::Json
        }
    }
}

impl Meter {
    /// Creates a meter for the answer to a request, whose body was sent as
    /// [`rewrite`](Request::rewrite) returned it.
    pub fn new(request: Request, format: AnswerFormat) -> Self {
        let api = request.api();
        let scanner = match format {
            AnswerFormat::Events => {
                Scanner::Stream(StreamScanner::new(api, request.needs_usage_option()))
            }
            AnswerFormat::Json => Scanner::Body(BodyScanner::new(api)),
            AnswerFormat::Unreadable => Scanner::Unreadable,
        };
        Self {
            request,
            scanner,
            has_begun: false,
        }
    }

    /// Reads a chunk of the answer. Returns what to pass on now.
    pub fn feed(&mut self, chunk: &[u8]) -> MeterOutput {
        if !self.has_begun && !chunk.is_empty() {
            self.has_begun = true;
            // No event begins with `{`. This is plain JSON from a server that does not stream but
            // sent the content type of a stream.
            if matches!(self.scanner, Scanner::Stream(_)) && chunk[0] == b'{' {
                self.scanner = Scanner::Body(BodyScanner::new(self.request.api()));
            }
        }
        match &mut self.scanner {
            Scanner::Stream(stream) => match stream.feed(chunk) {
                Some(bytes) => MeterOutput::Instead(bytes),
                None => MeterOutput::Unchanged,
            },
            Scanner::Body(body) => {
                body.feed(chunk);
                MeterOutput::Unchanged
            }
            Scanner::Unreadable => MeterOutput::Unchanged,
        }
    }

    /// Ends the answer. Returns the bytes that are left to pass on.
    pub fn finish(&mut self) -> Vec<u8> {
        let rest = self.cut_off();
        if let Scanner::Stream(stream) = &mut self.scanner {
            stream.tally.end();
        }
        rest
    }

    /// Ends an answer that was cut off. Returns the bytes that are left to pass on.
    pub fn cut_off(&mut self) -> Vec<u8> {
        match &mut self.scanner {
            Scanner::Stream(stream) => stream.finish(),
            Scanner::Body(body) => {
                body.finish();
                Vec::new()
            }
            Scanner::Unreadable => Vec::new(),
        }
    }

    /// Returns the tokens that the call used.
    pub fn tokens(&self) -> TokenUsage {
        match &self.scanner {
            Scanner::Stream(stream) => stream.tally.tokens(&self.request),
            Scanner::Body(body) => body.tally.tokens(&self.request),
            Scanner::Unreadable => self.request.reserved(),
        }
    }

    /// Returns the request.
    pub fn request(&self) -> &Request {
        &self.request
    }
}

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
        let usage = self.finder.found;
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
