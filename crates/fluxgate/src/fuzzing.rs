//! Functions for fuzz targets. Each takes any bytes and panics if a parser breaks a
//! promise. A test runs them on the seeds and on inputs near the seeds.

mod api;
mod config;
mod forwarded;
mod mcp;
mod paths;
mod record_rows;
mod rules;

pub use self::api::check as api;
pub use self::config::check as config;
pub use self::forwarded::check as forwarded;
pub use self::mcp::check as mcp;
pub use self::paths::check as paths;
pub use self::record_rows::check as record_rows;
pub use self::rules::check as rules;
pub use crate::grpc::ext_authz::fuzz::ext_authz;
pub use crate::grpc::fuzz::envoy;
pub use crate::resp::fuzz::resp;
pub use fluxgate_gateway::fuzz::{chunks, response as gateway_answer};

/// A function that takes any bytes.
pub type FuzzFn = fn(&[u8]);

/// All targets, by name.
pub const ALL: [(&str, FuzzFn); 13] = [
    ("api", api),
    ("chunks", chunks),
    ("config", config),
    ("envoy", envoy),
    ("ext_authz", ext_authz),
    ("forwarded", forwarded),
    ("gateway_answer", gateway_answer),
    ("gateway_request", gateway_request),
    ("mcp", mcp),
    ("paths", paths),
    ("record_rows", record_rows),
    ("resp", resp),
    ("rules", rules),
];

/// Parses a request to the gateway, and a simple check.
pub fn gateway_request(bytes: &[u8]) {
    fluxgate_gateway::fuzz::request(bytes);
    crate::api::fast_path::fuzz::request(bytes);
}

#[cfg(test)]
mod tests {
    /// Runs every target on its seeds and on mutations of them.
    #[test]
    fn promises_hold_for_the_seeds_and_near_them() {
        fluxgate_testkit::fuzz::run_all("fluxgate", &super::ALL);
    }
}
