//! Text: bytes as text without loss, text that is safe to print, values as files write them,
//! hashes.

mod lossless;
mod printable;
mod rule_values;
mod sha256;

pub use lossless::lossless_text;
pub use printable::{escape_unprintable, is_printable};
pub use rule_values::{duration_text, yaml_scalar};
pub use sha256::parse_sha256;
