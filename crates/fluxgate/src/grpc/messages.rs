//! The messages of `RateLimitService`, with the fields that are used here. Others are
//! ignored.
//!
//! Fields that a client of Envoy can choose are bytes: a string that is not UTF-8 would
//! fail the whole call, and Envoy allows a request whose call fails.

use prost::{Enumeration, Message};

/// The full name of the service.
pub(super) const RATE_LIMIT_SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// `envoy.service.ratelimit.v3.RateLimitRequest`
#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimitRequest {
    /// The rule set.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) domain: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    pub(super) descriptors: Vec<RateLimitDescriptor>,
    /// The cost, or 0 if none is given.
    #[prost(uint32, tag = "3")]
    pub(super) hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`
#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub(super) entries: Vec<Entry>,
    /// The limit of this descriptor, in place of the rules.
    #[prost(message, optional, tag = "2")]
    pub(super) limit: Option<RateLimitOverride>,
    /// The cost of this descriptor, a `google.protobuf.UInt64Value`. It may be 0.
    #[prost(message, optional, tag = "3")]
    pub(super) hits_addend: Option<u64>,
    /// Whether the cost is a refund.
    #[prost(bool, tag = "4")]
    pub(super) is_negative_hits: bool,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride`
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct RateLimitOverride {
    #[prost(uint32, tag = "1")]
    pub(super) requests_per_unit: u32,
    /// `envoy.type.v3.RateLimitUnit`
    #[prost(enumeration = "Unit", tag = "2")]
    pub(super) unit: i32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry`
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Entry {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimitResponse {
    #[prost(enumeration = "Code", tag = "1")]
    pub(super) overall_code: i32,
    /// One for each descriptor, in the same order.
    #[prost(message, repeated, tag = "2")]
    pub(super) statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub(super) response_headers_to_add: Vec<HeaderValue>,
    /// For later filters and access logs of Envoy.
    #[prost(message, optional, tag = "6")]
    pub(super) dynamic_metadata: Option<prost_types::Struct>,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.Code`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum Code {
    /// Never sent.
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus`
#[derive(Clone, PartialEq, Message)]
pub(super) struct DescriptorStatus {
    #[prost(enumeration = "Code", tag = "1")]
    pub(super) code: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) current_limit: Option<RateLimit>,
    #[prost(uint32, tag = "3")]
    pub(super) limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub(super) duration_until_reset: Option<prost_types::Duration>,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.RateLimit`
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RateLimit {
    #[prost(uint32, tag = "1")]
    pub(super) requests_per_unit: u32,
    #[prost(enumeration = "Unit", tag = "2")]
    pub(super) unit: i32,
    #[prost(string, tag = "3")]
    pub(super) name: String,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit`, and
/// `envoy.type.v3.RateLimitUnit`, which has the same names and numbers but for the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum Unit {
    Unknown = 0,
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}

/// `envoy.config.core.v3.HeaderValue`
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct HeaderValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}
