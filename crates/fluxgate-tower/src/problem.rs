//! How a client is told that it was refused (RFC 9457).

/// The type of the problem, as registered with IANA.
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// Its title.
pub const QUOTA_EXCEEDED_TITLE: &str = "The quota for these requests is used up";
