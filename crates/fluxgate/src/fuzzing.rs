//! One function for each parser. It is given any bytes, and panics where what the
//! parser promises does not hold. Fuzz targets call them, and so does a test: with
//! the seeds, and with what is near them.

mod api;
mod config;
mod forwarded;
mod paths;
mod rules;

/// What is given any bytes.
pub type Entrance = fn(&[u8]);

/// All of them, by their names.
pub const ALL: [(&str, Entrance); 10] = [
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

/// Requests to the HTTP API, one after the other.
pub fn api(bytes: &[u8]) {
    api::check(bytes);
}

/// The body of an upstream's answer, in chunks.
pub fn chunks(bytes: &[u8]) {
    fluxgate_gateway::fuzz::chunks(bytes);
}

/// A configuration.
pub fn config(bytes: &[u8]) {
    config::check(bytes);
}

/// A call of Envoy's.
pub fn envoy(bytes: &[u8]) {
    crate::grpc::fuzz::envoy(bytes);
}

/// Headers that say whom a request is forwarded for, and which trace it is of.
pub fn forwarded(bytes: &[u8]) {
    forwarded::check(bytes);
}

/// The head of an upstream's answer.
pub fn gateway_answer(bytes: &[u8]) {
    fluxgate_gateway::fuzz::response(bytes);
}

/// A request to the gateway, or a plain check.
pub fn gateway_request(bytes: &[u8]) {
    fluxgate_gateway::fuzz::request(bytes);
    crate::api::fast_path::fuzz(bytes);
}

/// The path of a request.
pub fn paths(bytes: &[u8]) {
    paths::check(bytes);
}

/// What a client of the Redis protocol says.
pub fn resp(bytes: &[u8]) {
    crate::resp::fuzz::resp(bytes);
}

/// A rule file.
pub fn rules(bytes: &[u8]) {
    rules::check(bytes);
}

#[cfg(test)]
mod tests {
    /// Runs every target on its seeds and on mutations of them.
    #[test]
    fn promises_hold_for_the_seeds_and_near_them() {
        fluxgate_testkit::fuzz::try_all("fluxgate", &super::ALL);
    }
}
