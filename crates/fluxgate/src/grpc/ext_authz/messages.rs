//! The messages of `Authorization`, with the fields that are used here. Others are ignored.
//!
//! Strings of Envoy are bytes here: one that is not UTF-8 would fail the whole call, and Envoy may
//! allow a request whose call fails.

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

use crate::grpc::messages::HeaderValue;

/// The full name of the service.
pub(in crate::grpc) const AUTHORIZATION_SERVICE: &str = "envoy.service.auth.v3.Authorization";

/// `envoy.service.auth.v3.CheckRequest`
#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) attributes: Option<AttributeContext>,
}

/// `envoy.service.auth.v3.AttributeContext`
#[derive(Clone, PartialEq, Message)]
pub(super) struct AttributeContext {
    /// The peer of the client's connection to Envoy.
    #[prost(message, optional, tag = "1")]
    pub(super) source: Option<Peer>,
    #[prost(message, optional, tag = "4")]
    pub(super) request: Option<RequestAttributes>,
    /// What the configuration of Envoy sends along.
    #[prost(message, repeated, tag = "10")]
    pub(super) context_extensions: Vec<MapEntry>,
}

/// `envoy.service.auth.v3.AttributeContext.Peer`
#[derive(Clone, PartialEq, Message)]
pub(super) struct Peer {
    #[prost(message, optional, tag = "1")]
    pub(super) address: Option<Address>,
}

/// `envoy.config.core.v3.Address`
#[derive(Clone, PartialEq, Message)]
pub(super) struct Address {
    #[prost(message, optional, tag = "1")]
    pub(super) socket_address: Option<SocketAddress>,
}

/// `envoy.config.core.v3.SocketAddress`
#[derive(Clone, PartialEq, Message)]
pub(super) struct SocketAddress {
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) address: Bytes,
}

/// `envoy.service.auth.v3.AttributeContext.Request`
#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestAttributes {
    #[prost(message, optional, tag = "2")]
    pub(super) http: Option<HttpRequest>,
}

/// `envoy.service.auth.v3.AttributeContext.HttpRequest`
#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpRequest {
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) method: Bytes,
    /// The headers, those of one name joined by commas: each an encoded entry of a map, which
    /// [`Strings`](super::strings::Strings) reads without copies.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub(super) headers: Vec<Bytes>,
    /// The target, with the query.
    #[prost(bytes = "bytes", tag = "4")]
    pub(super) path: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) host: Bytes,
    /// The headers line by line, in place of `headers`: an encoded `envoy.config.core.v3.HeaderMap`.
    /// If there are several, they count as one.
    #[prost(bytes = "bytes", repeated, tag = "13")]
    pub(super) header_map: Vec<Bytes>,
}

/// An entry of a map from strings to strings.
#[derive(Clone, PartialEq, Message)]
pub(super) struct MapEntry {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
}

/// `envoy.service.auth.v3.CheckResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<RpcStatus>,
    #[prost(oneof = "HttpResponse", tags = "2, 3")]
    pub(super) http_response: Option<HttpResponse>,
    /// For later filters and access logs of Envoy.
    #[prost(message, optional, tag = "4")]
    pub(super) dynamic_metadata: Option<prost_types::Struct>,
}

/// `google.rpc.Status`
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct RpcStatus {
    /// A code of gRPC. The request may pass if it is 0.
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
}

/// What becomes of the request.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum HttpResponse {
    #[prost(message, tag = "2")]
    DeniedResponse(DeniedHttpResponse),
    #[prost(message, tag = "3")]
    OkResponse(OkHttpResponse),
}

/// `envoy.service.auth.v3.DeniedHttpResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeniedHttpResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<HttpStatus>,
    #[prost(message, repeated, tag = "2")]
    pub(super) headers: Vec<HeaderValueOption>,
    #[prost(string, tag = "3")]
    pub(super) body: String,
}

/// `envoy.type.v3.HttpStatus`
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct HttpStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
}

/// `envoy.service.auth.v3.OkHttpResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct OkHttpResponse {
    /// For the response to the client.
    #[prost(message, repeated, tag = "6")]
    pub(super) response_headers_to_add: Vec<HeaderValueOption>,
}

/// `envoy.config.core.v3.HeaderValueOption`
#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<HeaderValue>,
    #[prost(enumeration = "HeaderAppendAction", tag = "3")]
    pub(super) append_action: i32,
}

/// `envoy.config.core.v3.HeaderValueOption.HeaderAppendAction`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum HeaderAppendAction {
    AppendIfExistsOrAdd = 0,
    OverwriteIfExistsOrAdd = 2,
}
