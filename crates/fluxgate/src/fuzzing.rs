//! Functions for fuzz targets. Each takes any bytes and panics if a parser breaks a
//! promise. A test runs them on the seeds and on inputs near the seeds.

mod api;
mod config;
mod forwarded;
mod paths;
mod rules;

/// A function that takes any bytes.
pub type FuzzFn = fn(&[u8]);

/// All targets, by name.
pub const ALL: [(&str, FuzzFn); 10] = [
    ("api", api),
    ("chunks", chunks),
    ("config", config),
    ("envoy", envoy),
    ("forwarded", forwarded),
    ("gateway_answer", gateway_answer),
    ("gateway_request", gateway_request),
    ("paths", paths),
    ("resp", resp),
    ("rules", rules),
];

/// Sends consecutive requests to the HTTP API.
pub fn api(bytes: &[u8]) {
    api::check(bytes);
}

/// Decodes the chunked body of an upstream's response.
pub fn chunks(bytes: &[u8]) {
    fluxgate_gateway::fuzz::chunks(bytes);
}

/// Loads a configuration.
pub fn config(bytes: &[u8]) {
    config::check(bytes);
}

/// Answers a call from Envoy.
pub fn envoy(bytes: &[u8]) {
    crate::grpc::fuzz::envoy(bytes);
}

/// Reads headers with the client address and the trace of a request.
pub fn forwarded(bytes: &[u8]) {
    forwarded::check(bytes);
}

/// Parses the head of an upstream's response.
pub fn gateway_answer(bytes: &[u8]) {
    fluxgate_gateway::fuzz::response(bytes);
}

/// Parses a request to the gateway, and a simple check.
pub fn gateway_request(bytes: &[u8]) {
    fluxgate_gateway::fuzz::request(bytes);
    crate::api::fast_path::fuzz(bytes);
}

/// Reads the path of a request.
pub fn paths(bytes: &[u8]) {
    paths::check(bytes);
}

/// Answers a client of the Redis protocol.
pub fn resp(bytes: &[u8]) {
    crate::resp::fuzz::resp(bytes);
}

/// Loads a rule file.
pub fn rules(bytes: &[u8]) {
    rules::check(bytes);
}

#[cfg(test)]
mod tests {
    /// Runs every target on its seeds and on mutations of them.
    #[test]
    fn promises_hold_for_the_seeds_and_near_them() {
        fluxgate_testkit::fuzz::run_all("fluxgate", &super::ALL);
    }
}
