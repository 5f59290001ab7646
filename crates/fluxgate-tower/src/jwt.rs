//! Verifies JSON Web Tokens, so that identities and attributes can come from their claims.
//!
//! ring, which TLS uses already, verifies the signatures. The usual crate for tokens has one
//! cryptographic back end for the whole process: as a library, this crate would choose it for
//! the program. It also reads the clock by itself and does not refuse critical extensions.

mod algorithm;
mod cache;
mod claim_set;
mod endpoint;
mod error;
mod jwks;
mod key;
mod key_set;
mod key_source;
mod reader;
mod settings;
mod token;

pub use error::JwtError;
pub(crate) use reader::TokenReader;
pub use settings::{Jwt, OnInvalid};
