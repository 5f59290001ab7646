//! The usage that an answer reports, and how it is found in an answer of any size without keeping
//! the answer.

use crate::api::Api;
use crate::reader::{JsonFault, Kind, Reader};

/// The counts of one or several `usage` objects. A stream reports some of them more than
/// once, as they grow: the largest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReportedUsage {
    /// Whether there was any count.
    pub(crate) is_some: bool,
    input: Option<u64>,
    output: Option<u64>,
    pub(crate) total: Option<u64>,
    /// Tokens of Anthropic's prompt that were written to or read from its cache, which
    /// `input_tokens` does not contain.
    cache_creation: u64,
    cache_read: u64,
}

impl ReportedUsage {
    /// Reads the value of `usage`. A value that is not an object, and members that are not whole
    /// numbers, count as absent.
    pub(crate) fn read(api: Api, reader: &mut Reader<'_>) -> Result<Self, JsonFault> {
        let mut usage = Self::default();
        reader.for_each_member(|reader, name| {
            if reader.kind()? != Kind::Number {
                return reader.skip();
            }
            let Some(count) = count(reader.number()?) else {
                return Ok(());
            };
            match &*name.decode() {
                b"prompt_tokens" | b"input_tokens" => usage.input = usage.input.max(Some(count)),
                b"completion_tokens" | b"output_tokens" => {
                    usage.output = usage.output.max(Some(count));
                }
                b"total_tokens" => usage.total = Some(count),
                b"cache_creation_input_tokens" if api == Api::Messages => {
                    usage.cache_creation = count;
                }
                b"cache_read_input_tokens" if api == Api::Messages => usage.cache_read = count,
                _ => return Ok(()),
            }
            usage.is_some = true;
            Ok(())
        })?;
        Ok(usage)
    }

    pub(crate) fn merge(&mut self, later: Self) {
        self.is_some |= later.is_some;
        self.input = self.input.max(later.input);
        self.output = self.output.max(later.output);
        self.total = self.total.max(later.total);
        self.cache_creation = self.cache_creation.max(later.cache_creation);
        self.cache_read = self.cache_read.max(later.cache_read);
    }

    /// Returns the tokens of the prompt, if they were reported.
    pub(crate) fn prompt(&self) -> Option<u64> {
        let cached = self.cache_creation.saturating_add(self.cache_read);
        match self.input {
            Some(input) => Some(input.saturating_add(cached)),
            None if cached > 0 => Some(cached),
            None => None,
        }
    }

    /// Returns the tokens of the completion, if they were reported: embeddings report only
    /// the other two numbers.
    pub(crate) fn completion(&self) -> Option<u64> {
        let rest = || Some(self.total?.saturating_sub(self.prompt()?));
        self.output.or_else(rest)
    }
}

/// Parses a count of at most 15 digits.
fn count(written: &[u8]) -> Option<u64> {
    let is_count = written.len() <= 15 && written.iter().all(u8::is_ascii_digit);
    let value = |sum, digit: &u8| sum * 10 + u64::from(digit - b'0');
    is_count.then(|| written.iter().fold(0, value))
}

/// A larger usage is not read.
const MAX_USAGE: usize = 64 * 1024;

const USAGE: &[u8] = b"usage";

/// The member of OpenAI's events that holds the response with its usage.
const RESPONSE: &[u8] = b"response";

/// Finds the member `usage` of an object that comes in chunks, or of its member `response`.
/// It knows only as much of JSON as it takes to tell the members of the object from what is in
/// them.
#[derive(Debug, Default)]
pub(crate) struct UsageFinder {
    depth: u64,
    in_string: bool,
    /// Whether the last byte of a string was a backslash that escapes the next one.
    is_escape: bool,
    /// Whether a string at this place would be a name of the object itself.
    expects_name: bool,
    /// Such a name so far, unless it has escapes or is longer than those that are searched.
    name: Option<ShortName>,
    /// Whether the members of the object in `response` are searched, one level deeper.
    in_response: bool,
    state: State,
    /// The value of `usage` so far.
    value: Vec<u8>,
    pub(crate) found: ReportedUsage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Searching,
    /// The name `usage` has come, but no colon.
    Named,
    InValue,
    /// The name `response` has come, but no value.
    Entering,
}

/// The start of a name.
#[derive(Clone, Copy, Debug, Default)]
struct ShortName {
    bytes: [u8; RESPONSE.len()],
    len: usize,
}

impl UsageFinder {
    pub(crate) fn feed(&mut self, api: Api, chunk: &[u8]) {
        let mut at = 0;
        while at < chunk.len() {
            if self.in_string && !self.is_escape && self.name.is_none() {
                at += self.skip_text(&chunk[at..]);
            } else if !self.in_string && self.depth > self.level() && self.state == State::Searching
            {
                // Deeper down, only strings and brackets matter: embeddings are numbers.
                let matters = |byte: &u8| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']');
                let rest = &chunk[at..];
                at += rest.iter().position(matters).unwrap_or(rest.len());
            }
            if let Some(byte) = chunk.get(at) {
                self.take(api, *byte);
                at += 1;
            }
        }
    }

    /// Returns how deep the objects are whose members are searched.
    fn level(&self) -> u64 {
        1 + u64::from(self.in_response)
    }

    /// Returns how many bytes belong to the string that is being read, at least.
    fn skip_text(&mut self, bytes: &[u8]) -> usize {
        let len = memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
        self.keep(&bytes[..len]);
        len
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.state == State::InValue && self.value.len() <= MAX_USAGE {
            self.value.extend_from_slice(bytes);
        }
    }

    fn take(&mut self, api: Api, byte: u8) {
        if self.in_string {
            self.keep(&[byte]);
            return self.take_text(byte);
        }
        // Only these end a value of the object itself.
        let is_end = self.depth == self.level() && matches!(byte, b',' | b'}');
        if self.state == State::InValue && is_end {
            self.read_value(api);
        }
        self.keep(&[byte]);
        if !byte.is_ascii_whitespace() {
            self.state = match (self.state, byte) {
                (State::Named, b':') => State::InValue,
                (State::Entering, b':') => State::Entering,
                (State::Entering, b'{') => {
                    self.in_response = true;
                    State::Searching
                }
                (State::InValue, _) => State::InValue,
                _ => State::Searching,
            };
        }
        match byte {
            b'"' => {
                self.in_string = true;
                let is_name = self.depth == self.level() && self.expects_name;
                self.name = is_name.then(ShortName::default);
            }
            b'{' | b'[' => {
                self.depth += 1;
                self.expects_name = byte == b'{';
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.in_response &= self.depth > 1;
                self.expects_name = false;
            }
            b',' => self.expects_name = true,
            b':' => self.expects_name = false,
            _ => (),
        }
    }

    fn take_text(&mut self, byte: u8) {
        if std::mem::replace(&mut self.is_escape, false) {
            return;
        }
        match byte {
            b'"' => {
                self.in_string = false;
                match self.name.take().as_ref().map(ShortName::bytes) {
                    Some(USAGE) => self.state = State::Named,
                    Some(RESPONSE) if !self.in_response => self.state = State::Entering,
                    _ => (),
                }
            }
            b'\\' => {
                self.is_escape = true;
                self.name = None;
            }
            byte => self.name = self.name.and_then(|name| name.with(byte)),
        }
    }

    fn read_value(&mut self, api: Api) {
        self.state = State::Searching;
        let value = std::mem::take(&mut self.value);
        if value.len() <= MAX_USAGE
            && let Ok(usage) = ReportedUsage::read(api, &mut Reader::new(&value))
        {
            self.found.merge(usage);
        }
    }
}

impl ShortName {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the name with a byte more, unless it is too long.
    fn with(mut self, byte: u8) -> Option<Self> {
        *self.bytes.get_mut(self.len)? = byte;
        self.len += 1;
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(api: Api, text: &str) -> (Option<u64>, Option<u64>, Option<u64>) {
        let usage = ReportedUsage::read(api, &mut Reader::new(text.as_bytes())).unwrap();
        let counts = (usage.prompt(), usage.completion(), usage.total);
        assert_eq!(usage.is_some, counts != (None, None, None));
        counts
    }

    #[test]
    fn counts_are_read_by_either_name() {
        let chat = r#"{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21,
            "prompt_tokens_details":{"cached_tokens":4},"cache_read_input_tokens":4}"#;
        let embeddings = r#"{"prompt_tokens":8,"total_tokens":8}"#;
        let messages = r#"{"input_tokens":3,"cache_creation_input_tokens":100,
            "cache_read_input_tokens":20,"output_tokens":5,"service_tier":"standard"}"#;
        let responses = r#"{"input_tokens":36,"output_tokens":87,"total_tokens":123}"#;
        for (api, text, expected) in [
            (Api::ChatCompletions, chat, (Some(9), Some(12), Some(21))),
            (Api::Embeddings, embeddings, (Some(8), Some(0), Some(8))),
            (Api::Messages, messages, (Some(123), Some(5), None)),
            (Api::Responses, responses, (Some(36), Some(87), Some(123))),
        ] {
            assert_eq!(read(api, text), expected, "{text}");
        }
    }

    #[test]
    fn other_values_are_no_counts() {
        for text in [
            "null",
            "{}",
            "[1]",
            r#""usage""#,
            r#"{"prompt_tokens":null,"completion_tokens":"5","total_tokens":[5]}"#,
            r#"{"prompt_tokens":-1,"completion_tokens":1.5,"total_tokens":1e3}"#,
            r#"{"prompt_tokens":18446744073709551616}"#,
        ] {
            assert_eq!(
                read(Api::ChatCompletions, text),
                (None, None, None),
                "{text}"
            );
        }
    }

    #[test]
    fn the_largest_of_several_reports_counts() {
        let read = |text: &str| {
            ReportedUsage::read(Api::Messages, &mut Reader::new(text.as_bytes())).unwrap()
        };
        let mut usage = read(r#"{"input_tokens":25,"output_tokens":1}"#);
        usage.merge(read(
            r#"{"input_tokens":0,"output_tokens":15,"cache_read_input_tokens":2}"#,
        ));
        usage.merge(ReportedUsage::default());
        assert_eq!((usage.prompt(), usage.completion()), (Some(27), Some(15)));
    }

    fn find(chunks: &[&[u8]]) -> Option<u64> {
        let mut finder = UsageFinder::default();
        for chunk in chunks {
            finder.feed(Api::ChatCompletions, chunk);
        }
        finder.found.total
    }

    #[test]
    fn only_the_usage_of_the_object_itself_counts() {
        for (text, total) in [
            (r#"{"usage":{"total_tokens":5}}"#, Some(5)),
            (
                r#" { "a" : [1, {"b": "}"}] , "usage" : { "x":{"y":[","]} , "total_tokens" : 6 } , "c":1 } "#,
                Some(6),
            ),
            (r#"{"usage":null,"usage":{"total_tokens":7}}"#, Some(7)),
            (
                r#"{"a":"\"usage\":{\"total_tokens\":1}","b":"\\","usage":{"total_tokens":8}}"#,
                Some(8),
            ),
            (r#"{"a":{"usage":{"total_tokens":1}}}"#, None),
            (
                r#"{"type":"response.completed","response" : {"tools":[{"usage":1}],"usage":{"total_tokens":3}},"b":{"usage":{"total_tokens":4}}}"#,
                Some(3),
            ),
            (r#"{"response":"x","usage":{"total_tokens":5}}"#, Some(5)),
            (r#"{"response":{"a":{"usage":{"total_tokens":1}}}}"#, None),
            (r#"{"a":{"response":{"usage":{"total_tokens":1}}}}"#, None),
            (
                r#"{"response":{"response":{"usage":{"total_tokens":1}}}}"#,
                None,
            ),
            (
                r#"{"response":{},"response":[{"usage":{"total_tokens":1}}]}"#,
                None,
            ),
            (
                r#"{"a":["usage",{"total_tokens":1}],"usages":{"total_tokens":1},"usag":1}"#,
                None,
            ),
            (r#"{"a":"usage","b":{"total_tokens":1}}"#, None),
            (r#"[{"usage":{"total_tokens":1}}]"#, None),
            (r#"["usage",{"a":1},{"total_tokens":1}]"#, None),
            (r#"{"usage":{"total_tokens":1"#, None),
            (r#"{"usage":{"s":"\"}","total_tokens":9}}"#, Some(9)),
            ("]]]}}{{", None),
            ("", None),
        ] {
            assert_eq!(find(&[text.as_bytes()]), total, "{text}");
            let single: Vec<_> = text.as_bytes().chunks(1).collect();
            assert_eq!(find(&single), total, "{text}");
            for cut in 0..text.len() {
                let (start, end) = text.as_bytes().split_at(cut);
                assert_eq!(find(&[start, end]), total, "{text} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_huge_usage_is_not_kept() {
        let text = format!(
            r#"{{"usage":{{"a":"{}","total_tokens":5}}}}"#,
            "x".repeat(200_000)
        );
        let mut finder = UsageFinder::default();
        for chunk in text.as_bytes().chunks(1_000) {
            finder.feed(Api::ChatCompletions, chunk);
            assert!(finder.value.len() <= MAX_USAGE + 1_000);
        }
        assert_eq!(finder.found, ReportedUsage::default());
    }
}
