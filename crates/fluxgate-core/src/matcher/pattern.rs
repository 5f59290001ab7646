//! Path patterns.

/// A path pattern, as a list of segments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    pub(super) segments: Vec<Segment>,
}

/// One segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Segment {
    /// Exactly this text.
    Literal(Box<str>),
    /// `*`: any one segment.
    Any,
    /// `{name}`: any one segment that is not empty. The name is for people.
    NonEmpty,
    /// A text with `*` or `?` in it.
    Glob(Vec<Token>),
    /// `**`: zero or more whole segments.
    Deep,
}

/// One element of a glob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Token {
    /// This character.
    Char(char),
    /// `?`: any one character.
    One,
    /// `*`: any characters.
    Many,
}

/// Why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// It does not begin with a slash.
    #[error("a path pattern must begin with `/`; `{0}` does not")]
    NoSlash(String),
    /// It has `**` inside of a segment.
    #[error("`**` must be a whole segment; `{0}` has more in it")]
    DeepInSegment(String),
    /// It has a brace that is not part of a whole segment such as `{id}`.
    #[error(
        "`{{name}}` must be a whole segment, and a name has letters, digits, `_`, `-` and `.`; \
         `{0}` is not one: write `*` for any characters of a segment"
    )]
    Brace(String),
}

impl Pattern {
    /// Parses a pattern: `?` is one character, `*` any characters of a segment, `{name}` one
    /// segment that is not empty, `**` zero or more whole segments.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(PatternError::NoSlash(text.into()));
        };
        let segments = rest.split('/').map(Segment::parse);
        Ok(Self {
            segments: segments.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the pattern with its ASCII letters in lower case.
    pub(super) fn to_ascii_lowercase(&self) -> Self {
        let segments = self.segments.iter().map(|segment| match segment {
            Segment::Literal(text) => Segment::Literal(text.to_ascii_lowercase().into()),
            Segment::Glob(tokens) => {
                let tokens = tokens.iter().map(|token| match token {
                    Token::Char(it) => Token::Char(it.to_ascii_lowercase()),
                    other => *other,
                });
                Segment::Glob(tokens.collect())
            }
            other => other.clone(),
        });
        Self {
            segments: segments.collect(),
        }
    }
}

impl Segment {
    fn parse(text: &str) -> Result<Self, PatternError> {
        match text {
            "*" => Ok(Self::Any),
            "**" => Ok(Self::Deep),
            _ if is_variable(text) => Ok(Self::NonEmpty),
            _ if text.contains(['{', '}']) => Err(PatternError::Brace(text.into())),
            _ if text.contains("**") => Err(PatternError::DeepInSegment(text.into())),
            _ if text.contains(['*', '?']) => {
                let tokens = text.chars().map(|char| match char {
                    '*' => Token::Many,
                    '?' => Token::One,
                    other => Token::Char(other),
                });
                Ok(Self::Glob(tokens.collect()))
            }
            _ => Ok(Self::Literal(text.into())),
        }
    }
}

/// Returns whether a segment is a name in braces. What other programs write there besides, such
/// as `{id:[0-9]+}` or `{*rest}`, means something else.
fn is_variable(segment: &str) -> bool {
    let name = segment
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    let is_allowed = |char: char| char.is_alphanumeric() || "_-.".contains(char);
    name.is_some_and(|name| !name.is_empty() && name.chars().all(is_allowed))
}
