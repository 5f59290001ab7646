//! The usage that an answer reports.

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
    total: Option<u64>,
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

    /// Returns all tokens, if they were reported as one number.
    pub(crate) fn total(&self) -> Option<u64> {
        self.total
    }
}

/// Parses a count of at most 15 digits.
fn count(written: &[u8]) -> Option<u64> {
    let is_count = written.len() <= 15 && written.iter().all(u8::is_ascii_digit);
    let value = |sum, digit: &u8| sum * 10 + u64::from(digit - b'0');
    is_count.then(|| written.iter().fold(0, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(api: Api, text: &str) -> (Option<u64>, Option<u64>, Option<u64>) {
        let usage = ReportedUsage::read(api, &mut Reader::new(text.as_bytes())).unwrap();
        let counts = (usage.prompt(), usage.completion(), usage.total());
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
}
