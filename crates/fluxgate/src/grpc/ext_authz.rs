//! Envoy's external authorization: `envoy.service.auth.v3.Authorization`.

mod answer;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod head;
mod messages;
mod service;
mod strings;

pub(super) use messages::AUTHORIZATION_SERVICE;
pub(super) use service::AuthorizationService;
