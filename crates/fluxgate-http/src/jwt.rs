//! Verifies JSON Web Tokens, so that identities and attributes can come from their claims.
//!
//! ring, which TLS uses already, verifies the signatures. The crate `jsonwebtoken` has one
//! cryptographic back end for the whole process, which a library should not choose for the
//! program, and reads the clock itself.

mod jwks;
mod key;
mod key_set;
mod key_source;
mod reader;
mod settings;
mod token;

pub use key_source::JwtError;
pub(crate) use reader::TokenReader;
pub use settings::{Jwt, OnInvalid};
