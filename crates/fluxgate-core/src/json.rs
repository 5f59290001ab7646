//! Requests and decisions in JSON, as the HTTP API and the simulator exchange them.
//!
//! Requests are read with serde and borrow from the input wherever they can.
//! Decisions are written by hand, because most of a fast answer is its JSON.

mod request;
mod text;
mod writer;

pub use request::{ContextFields, concat_names, read_once, read_value};
pub use text::{FieldError, Names, Pairs, Text, Texts, unique, whole_number, without_position};
pub use writer::{JsonWriter, quoted};
