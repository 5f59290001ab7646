//! Text of unknown origin: bytes as text without loss, text that is safe to print, hashes.

mod lossless;
mod printable;
mod sha256;

pub use lossless::lossless_text;
pub use printable::{escape_unprintable, is_printable};
pub use sha256::parse_sha256;
