//! The bound of a prompt.
//!
//! Text counts by its bytes: everything below a member that carries the prompt, decoded, with
//! the names of members (those of a tool's schema are text that the model reads) and with
//! numbers, `true`, `false` and `null` as they are written. Brackets and commas do not count.
//! These count otherwise:
//!
//! - a message, prompt or input: [`MESSAGE_TOKENS`] more, for what the model's format adds;
//! - an integer in a list of tokens: one token;
//! - an image (an object with `type` `image_url`, `input_image`, `image` or
//!   `computer_screenshot`): [`IMAGE_TOKENS`], and nothing for its data;
//! - audio (`type` `input_audio`): a token for every [`AUDIO_BYTES_PER_TOKEN`] of its base64
//!   data, which bounds ten tokens a second at 20 kbit/s and more.
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

/// What a part of a prompt counts for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Bytes of text.
    text: u64,
    /// Bytes that are not text if an enclosing object says what they are.
    data: u64,
    /// Tokens that do not depend on bytes.
    tokens: u64,
}

#[derive(Clone, Copy)]
enum Media {
    Image,
    Audio,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.text += other.text;
        self.data += other.data;
        self.tokens += other.tokens;
    }

    pub(crate) fn tokens(&self, reserve: &Reserve) -> u64 {
        reserve.tokens_of(self.text + self.data) + self.tokens
    }

    fn text(bytes: u64) -> Self {
        let (data, tokens) = (0, 0);
        Self {
            text: bytes,
            data,
            tokens,
        }
    }

    fn settle_data(&mut self, media: Media) {
        self.tokens += match media {
            Media::Image => IMAGE_TOKENS,
            Media::Audio => self.data.div_ceil(AUDIO_BYTES_PER_TOKEN),
        };
        self.data = 0;
    }
}

/// Counts one or several messages, prompts or inputs. Returns also how many there are.
pub(crate) fn items(reader: &mut Reader<'_>) -> Result<(Tally, u64), JsonFault> {
    let mut items = 0;
    let mut tally = Tally::default();
    match reader.kind()? {
        Kind::Null => reader.null()?,
        Kind::Array => {
            let mut elements = reader.elements()?;
            while elements.next(reader)? {
                match reader.kind()? {
                    Kind::Number => token(reader, &mut tally)?,
                    Kind::Array => {
                        items += 1;
                        tally.add(tokens(reader)?);
                    }
                    _ => {
                        items += 1;
                        tally.add(value(reader)?);
                    }
                }
            }
        }
        _ => tally.add(value(reader)?),
    }
    let items = items.max(1);
    tally.tokens += items * MESSAGE_TOKENS;
    Ok((tally, items))
}

/// Counts a value that belongs to the prompt.
///
/// It recurses, at most as deep as the reader allows.
pub(crate) fn value(reader: &mut Reader<'_>) -> Result<Tally, JsonFault> {
    match reader.kind()? {
        Kind::Object => object(reader),
        Kind::Array => {
            let mut tally = Tally::default();
            let mut elements = reader.elements()?;
            while elements.next(reader)? {
                tally.add(value(reader)?);
            }
            Ok(tally)
        }
        Kind::String => {
            let string = reader.string()?;
            Ok(match string.starts_with("data:") {
                true => Tally {
                    data: string.len(),
                    ..Tally::default()
                },
                false => Tally::text(string.len()),
            })
        }
        Kind::Number | Kind::Boolean | Kind::Null => Ok(Tally::text(reader.raw()?.len() as u64)),
    }
}

fn object(reader: &mut Reader<'_>) -> Result<Tally, JsonFault> {
    let mut tally = Tally::default();
    let mut media = None;
    let mut members = reader.members()?;
    while let Some(name) = members.next(reader)? {
        tally.text += name.len();
        let is_string = reader.kind()? == Kind::String;
        if is_string && name.is("type") {
            let of = reader.string()?;
            tally.text += of.len();
            media = match &*of.decode() {
                b"image_url" | b"input_image" | b"image" | b"computer_screenshot" => {
                    Some(Media::Image)
                }
                b"input_audio" => Some(Media::Audio),
                _ => None,
            };
        } else if is_string && (name.is("data") || name.is("file_data")) {
            tally.data += reader.string()?.len();
        } else {
            tally.add(value(reader)?);
        }
    }
    if let Some(media) = media {
        tally.settle_data(media);
    }
    Ok(tally)
}

/// Counts a list of tokens.
fn tokens(reader: &mut Reader<'_>) -> Result<Tally, JsonFault> {
    let mut tally = Tally::default();
    let mut elements = reader.elements()?;
    while elements.next(reader)? {
        match reader.kind()? {
            Kind::Number => token(reader, &mut tally)?,
            _ => tally.add(value(reader)?),
        }
    }
    Ok(tally)
}

fn token(reader: &mut Reader<'_>, tally: &mut Tally) -> Result<(), JsonFault> {
    reader.number()?;
    tally.tokens += 1;
    Ok(())
}
