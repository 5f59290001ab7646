//! The APIs of language models that can be metered.

/// An API of a language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenAI's chat completions.
    ChatCompletions,
    /// OpenAI's older completions, of prompts instead of messages.
    Completions,
    /// OpenAI's responses.
    Responses,
    /// OpenAI's embeddings.
    Embeddings,
    /// Anthropic's messages.
    Messages,
}

/// The endings of paths. The first that matches counts.
const ENDINGS: [(&str, Api); 5] = [
    ("/chat/completions", Api::ChatCompletions),
    ("/completions", Api::Completions),
    ("/responses", Api::Responses),
    ("/embeddings", Api::Embeddings),
    // Other APIs have messages too: threads of OpenAI's assistants, for one.
    ("/v1/messages", Api::Messages),
];

impl Api {
    /// Returns the API that a path belongs to, if any: what precedes the ending, such as
    /// `/openai/deployments/NAME`, is up to the provider.
    ///
    /// `path` has no query and is in the normal form, without percent-encoded letters. Case,
    /// slashes at the end, spaces, control characters and what is not ASCII do not matter,
    /// because some servers ignore them: a request must not pass uncounted for its spelling.
    pub fn of_path(path: &str) -> Option<Self> {
        let significant = path.bytes().rev().filter(u8::is_ascii_graphic);
        let backwards = significant.skip_while(|byte| *byte == b'/');
        let ends_with = |ending: &str| {
            let mut path = backwards.clone();
            let mut ending = ending.bytes().rev();
            ending.all(|byte| path.next().is_some_and(|it| it.eq_ignore_ascii_case(&byte)))
        };
        let found = ENDINGS.iter().find(|(ending, _)| ends_with(ending));
        found.map(|(_, api)| *api)
    }

    /// Returns the members that bound a completion for every server, the one to insert first.
    pub(crate) fn max_members(self) -> &'static [&'static str] {
        match self {
            Self::ChatCompletions => &["max_completion_tokens", "max_tokens"],
            Self::Completions | Self::Messages => &["max_tokens"],
            Self::Responses => &["max_output_tokens"],
            Self::Embeddings => &[],
        }
    }

    /// Returns the members that ask for several completions.
    pub(crate) fn choice_members(self) -> &'static [&'static str] {
        match self {
            Self::ChatCompletions | Self::Completions => &["n", "best_of"],
            Self::Responses | Self::Embeddings | Self::Messages => &[],
        }
    }

    /// Returns whether streams report usage only if `stream_options` asks for it.
    pub(crate) fn has_stream_options(self) -> bool {
        matches!(self, Self::ChatCompletions | Self::Completions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_of_the_path_names_the_api() {
        for (path, api) in [
            ("/v1/chat/completions", Some(Api::ChatCompletions)),
            (
                "/openai/deployments/x/chat/completions",
                Some(Api::ChatCompletions),
            ),
            ("/V1/Chat/Completions//", Some(Api::ChatCompletions)),
            ("/chat/completions", Some(Api::ChatCompletions)),
            ("/v1/completions", Some(Api::Completions)),
            ("/beta/completions", Some(Api::Completions)),
            ("/v1/responses", Some(Api::Responses)),
            ("/v1/responses/resp_1", None),
            ("/v1/embeddings", Some(Api::Embeddings)),
            ("/v1/messages", Some(Api::Messages)),
            ("/anthropic/v1/messages", Some(Api::Messages)),
            ("/v1/messages/count_tokens", None),
            ("/v1/threads/t/messages", None),
            ("/v1/models", None),
            ("/v1/xcompletions", None),
            ("/", None),
            ("", None),
            ("é/completions", Some(Api::Completions)),
            ("/v1/chat/completions\n", Some(Api::ChatCompletions)),
            (
                "/v1/chat\u{e0}/comp letions/\r\n/",
                Some(Api::ChatCompletions),
            ),
            ("/v1/messages\u{80}", Some(Api::Messages)),
        ] {
            assert_eq!(Api::of_path(path), api, "{path}");
        }
    }
}
