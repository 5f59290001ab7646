//! The messages of Kuadrant's `RateLimitService`, which are not Envoy's.

use prost::Message;

use crate::grpc::messages::{Code, RateLimitDescriptor};

/// The full name of the service.
pub(in crate::grpc) const KUADRANT_SERVICE: &str = "kuadrant.service.ratelimit.v1.RateLimitService";

/// `kuadrant.service.ratelimit.v1.ReserveRequest`
#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct ReserveRequest {
    /// The rule set.
    #[prost(bytes = "vec", tag = "1")]
    pub(in crate::grpc) domain: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    pub(in crate::grpc) descriptors: Vec<RateLimitDescriptor>,
    /// The cost to hold. 0 reserves nothing.
    #[prost(uint64, tag = "3")]
    pub(in crate::grpc) amount: u64,
    /// How long to hold it, if it is not committed before.
    #[prost(message, optional, tag = "4")]
    pub(in crate::grpc) ttl: Option<prost_types::Duration>,
}

/// `kuadrant.service.ratelimit.v1.ReserveResponse`
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct ReserveResponse {
    #[prost(enumeration = "Code", tag = "1")]
    pub(in crate::grpc) code: i32,
    /// Empty if nothing is held.
    #[prost(string, tag = "2")]
    pub(in crate::grpc) reservation_id: String,
}

/// `kuadrant.service.ratelimit.v1.CommitRequest`
#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct CommitRequest {
    /// The rule set, for a report.
    #[prost(bytes = "vec", tag = "1")]
    pub(in crate::grpc) domain: Vec<u8>,
    /// What a report counts by.
    #[prost(message, repeated, tag = "2")]
    pub(in crate::grpc) descriptors: Vec<RateLimitDescriptor>,
    /// The reservation; empty for a report.
    #[prost(bytes = "vec", tag = "3")]
    pub(in crate::grpc) reservation_id: Vec<u8>,
    /// The real cost.
    #[prost(uint64, tag = "4")]
    pub(in crate::grpc) actual_amount: u64,
}

/// `kuadrant.service.ratelimit.v1.CommitResponse`
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct CommitResponse {
    #[prost(enumeration = "Code", tag = "1")]
    pub(in crate::grpc) code: i32,
}
