//! The bound of a prompt.
//!
//! Text counts by its bytes. The text of messages, and of the parts of their content, is decoded
//! and counted with the names of members. Everything else, such as the schemas of tools and
//! the arguments of their calls, is JSON that the model reads, and counts as it is written.
//! Exceptions:
//!
//! - a message, prompt or input: [`MESSAGE_TOKENS`] more, for what the model's format adds;
//! - a part of a content: a byte more;
//! - an integer in a list of tokens: one token;
//! - an image (a part with `type` `image_url`, `input_image`, `image` or
//!   `computer_screenshot`): [`IMAGE_TOKENS`], and nothing for the member that holds it;
//! - audio (a part with `type` `input_audio`): a token for every [`AUDIO_BYTES_PER_TOKEN`] of
//!   that member, which bounds ten tokens a second at 20 kbit/s and more.
//!
//! Files count by their base64 text: a few kilobytes of PDF hold thousands of tokens.
//!
//! The bound cannot cover what the upstream adds by itself: conversations that it stored,
//! templates, descriptions of its own tools. A settlement charges these.

use crate::reader::{JsonFault, Kind, Reader};
use crate::reserve::Reserve;

/// Tokens that a message, a prompt or an input counts for besides its text.
pub const MESSAGE_TOKENS: u64 = 4;

/// Tokens of an image, whatever its size.
pub const IMAGE_TOKENS: u64 = 2_500;

/// How many bytes of base64 make a token of audio.
pub const AUDIO_BYTES_PER_TOKEN: u64 = 256;

/// The text and tokens of a prompt, or of a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PromptTally {
    /// Bytes of text.
    text: u64,
    /// Tokens that do not depend on bytes of text.
    tokens: u64,
}

#[derive(Clone, Copy)]
enum Media {
    Image,
    Audio,
}

impl PromptTally {
    pub(crate) fn add(&mut self, other: Self) {
        self.text += other.text;
        self.tokens += other.tokens;
    }

    pub(crate) fn tokens(&self, reserve: &Reserve) -> u64 {
        reserve.tokens_of(self.text) + self.tokens
    }

    fn text(bytes: u64) -> Self {
        Self {
            text: bytes,
            tokens: 0,
        }
    }
}

/// Counts one or several messages, prompts or inputs. Returns what they count for and how many
/// there are.
pub(crate) fn items(reader: &mut Reader<'_>) -> Result<(PromptTally, u64), JsonFault> {
    let mut items = 0;
    let mut tally = PromptTally::default();
    match reader.kind()? {
        Kind::Null => reader.null()?,
        Kind::Array => {
            reader.for_each_element(|reader| {
                let kind = reader.kind()?;
                items += u64::from(kind != Kind::Number);
                tally.add(match kind {
                    Kind::Number => token(reader)?,
                    Kind::Array => tokens(reader)?,
                    _ => item(reader)?,
                });
                Ok(())
            })?;
        }
        _ => tally.add(item(reader)?),
    }
    let items = items.max(1);
    tally.tokens += items * MESSAGE_TOKENS;
    Ok((tally, items))
}

/// Counts an unknown member, because servers put some of them into the prompt: arguments of
/// templates, for example. A number or a flag is not text.
pub(crate) fn unknown(reader: &mut Reader<'_>) -> Result<PromptTally, JsonFault> {
    match reader.kind()? {
        Kind::Number | Kind::Boolean | Kind::Null => reader.skip().map(|()| PromptTally::default()),
        Kind::String | Kind::Array | Kind::Object => value(reader),
    }
}

/// Counts a text, or JSON as it is written.
pub(crate) fn value(reader: &mut Reader<'_>) -> Result<PromptTally, JsonFault> {
    let bytes = match reader.kind()? {
        Kind::String => reader.string()?.len(),
        _ => reader.raw()?.len() as u64,
    };
    Ok(PromptTally::text(bytes))
}

/// Counts a message, or a part of its content.
///
/// It recurses, because parts have contents too: at most as deep as the reader allows.
fn item(reader: &mut Reader<'_>) -> Result<PromptTally, JsonFault> {
    if reader.kind()? != Kind::Object {
        return value(reader);
    }
    let mut tally = PromptTally::default();
    // The members with media, which count by their text unless the type says what they hold.
    let mut media_text = PromptTally::default();
    let mut media = None;
    let mut types = 0;
    reader.for_each_member(|reader, name| {
        tally.text += name.len();
        match &*name.decode() {
            b"type" if reader.kind()? == Kind::String => {
                let part_type = reader.string()?;
                tally.text += part_type.len();
                media = Media::of_type(&part_type.decode());
                types += 1;
            }
            b"image_url" | b"source" | b"input_audio" => media_text.add(value(reader)?),
            b"content" | b"output" => tally.add(content(reader)?),
            _ => tally.add(value(reader)?),
        }
        Ok(())
    })?;
    match media {
        // With two types, servers differ in which one they take.
        Some(media) if types == 1 => tally.tokens += media.tokens(media_text.text),
        _ => tally.add(media_text),
    }
    Ok(tally)
}

/// Counts the content of a message or the output of a tool: a text, a part or a list of parts.
fn content(reader: &mut Reader<'_>) -> Result<PromptTally, JsonFault> {
    if reader.kind()? != Kind::Array {
        return item(reader);
    }
    let mut tally = PromptTally::default();
    reader.for_each_element(|reader| {
        // Even an empty part is not free.
        tally.text += 1;
        tally.add(item(reader)?);
        Ok(())
    })?;
    Ok(tally)
}

impl Media {
    fn of_type(name: &[u8]) -> Option<Self> {
        match name {
            b"image_url" | b"input_image" | b"image" | b"computer_screenshot" => Some(Self::Image),
            b"input_audio" => Some(Self::Audio),
            _ => None,
        }
    }

    /// Returns the tokens of media whose JSON has `bytes` bytes.
    fn tokens(self, bytes: u64) -> u64 {
        match self {
            Self::Image => IMAGE_TOKENS,
            Self::Audio => bytes.div_ceil(AUDIO_BYTES_PER_TOKEN),
        }
    }
}

/// Counts a list of tokens.
fn tokens(reader: &mut Reader<'_>) -> Result<PromptTally, JsonFault> {
    let mut tally = PromptTally::default();
    reader.for_each_element(|reader| {
        tally.add(match reader.kind()? {
            Kind::Number => token(reader)?,
            _ => value(reader)?,
        });
        Ok(())
    })?;
    Ok(tally)
}

fn token(reader: &mut Reader<'_>) -> Result<PromptTally, JsonFault> {
    reader.number()?;
    Ok(PromptTally { text: 0, tokens: 1 })
}
