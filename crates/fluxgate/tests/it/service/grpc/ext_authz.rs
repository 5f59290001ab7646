//! External authorization: `envoy.service.auth.v3.Authorization`.

mod decisions;
mod described;
mod envoy;
mod meetings;
mod readings;
mod refusals;

use described::{Answer, Described};
