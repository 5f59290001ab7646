//! Finds the usage in an answer of any size, without keeping the answer.

use crate::api::Api;
use crate::reader::Reader;
use crate::usage::ReportedUsage;

/// A larger usage is not read.
const MAX_USAGE: usize = 64 * 1024;

const USAGE: &[u8] = b"usage";

/// The member of OpenAI's events that holds the response with its usage.
const RESPONSE: &[u8] = b"response";

/// Finds the member `usage` of an object that comes in chunks, or of its member `response`.
/// It knows only as much of JSON as it takes to tell the members of the object from what is in
/// them.
#[derive(Debug)]
pub(crate) struct UsageFinder {
    depth: u64,
    in_string: bool,
    /// Whether the last byte of a string was a backslash that escapes the next one.
    is_escape: bool,
    /// Whether a string at this place would be a name of the object itself.
    expects_name: bool,
    /// Such a name so far, unless it has escapes or is longer than those that are searched.
    name: Option<ShortName>,
    /// How deep the objects are whose members are searched.
    level: u64,
    state: State,
    /// The value of `usage` so far.
    value: Vec<u8>,
    found: ReportedUsage,
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

impl Default for UsageFinder {
    fn default() -> Self {
        Self {
            depth: 0,
            in_string: false,
            is_escape: false,
            expects_name: false,
            name: None,
            level: 1,
            state: State::Searching,
            value: Vec::new(),
            found: ReportedUsage::default(),
        }
    }
}

impl UsageFinder {
    pub(crate) fn feed(&mut self, api: Api, chunk: &[u8]) {
        let mut at = 0;
        while at < chunk.len() {
            if self.in_string && !self.is_escape && self.name.is_none() {
                at += self.skip_text(&chunk[at..]);
            } else if !self.in_string && self.depth > self.level && self.state == State::Searching {
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

    /// Returns the usage that was found.
    pub(crate) fn found(&self) -> ReportedUsage {
        self.found
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
        let is_end = self.depth == self.level && matches!(byte, b',' | b'}');
        if self.state == State::InValue && is_end {
            self.read_value(api);
        }
        self.keep(&[byte]);
        if !byte.is_ascii_whitespace() {
            self.state = match (self.state, byte) {
                (State::Named, b':') => State::InValue,
                (State::Entering, b':') => State::Entering,
                (State::Entering, b'{') => {
                    self.level = 2;
                    State::Searching
                }
                (State::InValue, _) => State::InValue,
                _ => State::Searching,
            };
        }
        match byte {
            b'"' => {
                self.in_string = true;
                let is_name = self.depth == self.level && self.expects_name;
                self.name = is_name.then(ShortName::default);
            }
            b'{' | b'[' => {
                self.depth += 1;
                self.expects_name = byte == b'{';
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.level = self.level.min(self.depth).max(1);
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
                    Some(RESPONSE) if self.level == 1 => self.state = State::Entering,
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

    fn find(chunks: &[&[u8]]) -> Option<u64> {
        let mut finder = UsageFinder::default();
        for chunk in chunks {
            finder.feed(Api::ChatCompletions, chunk);
        }
        finder.found().total()
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
        assert_eq!(finder.found(), ReportedUsage::default());
    }
}
