//! The supported part of Envoy's files for external authorization.

use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FileDescriptorProto};

use super::schema::{Kind, enumeration, file, map_entry, message, one_of, service};

const AUTH: &str = "envoy/service/auth/v3/external_auth.proto";
const CONTEXT: &str = "envoy/service/auth/v3/attribute_context.proto";
const ADDRESS: &str = "envoy/config/core/v3/address.proto";
const BASE: &str = "envoy/config/core/v3/base.proto";
const HTTP_STATUS: &str = "envoy/type/v3/http_status.proto";
const STRUCT: &str = "google/protobuf/struct.proto";
const RPC_STATUS: &str = "google/rpc/status.proto";

const ATTRIBUTES: Kind = Kind::Message(".envoy.service.auth.v3.AttributeContext");
const PEER: Kind = Kind::Message(".envoy.service.auth.v3.AttributeContext.Peer");
const REQUEST: Kind = Kind::Message(".envoy.service.auth.v3.AttributeContext.Request");
const HTTP: Kind = Kind::Message(".envoy.service.auth.v3.AttributeContext.HttpRequest");
const EXTENSIONS: Kind =
    Kind::Repeated(".envoy.service.auth.v3.AttributeContext.ContextExtensionsEntry");
const HEADERS: Kind =
    Kind::Repeated(".envoy.service.auth.v3.AttributeContext.HttpRequest.HeadersEntry");
const HEADER_MAP: Kind = Kind::Message(".envoy.config.core.v3.HeaderMap");
const HEADER_OPTIONS: Kind = Kind::Repeated(".envoy.config.core.v3.HeaderValueOption");
const ADDRESS_OF: Kind = Kind::Message(".envoy.config.core.v3.Address");
const SOCKET: Kind = Kind::Message(".envoy.config.core.v3.SocketAddress");
const DENIED: Kind = Kind::Message(".envoy.service.auth.v3.DeniedHttpResponse");
const OK: Kind = Kind::Message(".envoy.service.auth.v3.OkHttpResponse");
const STATUS: Kind = Kind::Message(".google.rpc.Status");
const HTTP_CODE: Kind = Kind::Message(".envoy.type.v3.HttpStatus");
const STATUS_CODE: Kind = Kind::Enum(".envoy.type.v3.StatusCode");
const METADATA: Kind = Kind::Message(".google.protobuf.Struct");
const TEXT: Kind = Kind::Scalar(Type::String);

/// Returns the files, which depend on that of headers.
pub(super) fn files() -> [FileDescriptorProto; 5] {
    [auth(), context(), address(), http_status(), rpc_status()]
}

fn auth() -> FileDescriptorProto {
    let denied = [
        ("status", 1, HTTP_CODE),
        ("headers", 2, HEADER_OPTIONS),
        ("body", 3, TEXT),
    ];
    let response = [
        ("status", 1, STATUS),
        ("denied_response", 2, DENIED),
        ("ok_response", 3, OK),
    ];
    let mut response = message("CheckResponse", &response);
    one_of(
        "http_response",
        &mut response.field[1..],
        &mut response.oneof_decl,
    );
    let metadata = ("dynamic_metadata", 4, METADATA);
    response.field.extend(message("", &[metadata]).field);
    let messages = vec![
        message("CheckRequest", &[("attributes", 1, ATTRIBUTES)]),
        message("DeniedHttpResponse", &denied),
        message(
            "OkHttpResponse",
            &[("response_headers_to_add", 6, HEADER_OPTIONS)],
        ),
        response,
    ];
    let dependencies = [BASE, CONTEXT, HTTP_STATUS, RPC_STATUS, STRUCT];
    let mut file = file(AUTH, "envoy.service.auth.v3", &dependencies, messages);
    let name = |message: &str| format!(".envoy.service.auth.v3.{message}");
    let (request, response) = (name("CheckRequest"), name("CheckResponse"));
    let methods = [("Check", &*request, &*response)];
    file.service.push(service("Authorization", &methods));
    file
}

fn context() -> FileDescriptorProto {
    let http = [
        ("method", 2, TEXT),
        ("headers", 3, HEADERS),
        ("path", 4, TEXT),
        ("host", 5, TEXT),
        ("header_map", 13, HEADER_MAP),
    ];
    let http = DescriptorProto {
        nested_type: vec![map_entry("HeadersEntry")],
        ..message("HttpRequest", &http)
    };
    let attributes = [
        ("source", 1, PEER),
        ("request", 4, REQUEST),
        ("context_extensions", 10, EXTENSIONS),
    ];
    let attributes = DescriptorProto {
        nested_type: vec![
            message("Peer", &[("address", 1, ADDRESS_OF)]),
            message("Request", &[("http", 2, HTTP)]),
            http,
            map_entry("ContextExtensionsEntry"),
        ],
        ..message("AttributeContext", &attributes)
    };
    let dependencies = [ADDRESS, BASE];
    file(
        CONTEXT,
        "envoy.service.auth.v3",
        &dependencies,
        vec![attributes],
    )
}

fn address() -> FileDescriptorProto {
    let messages = vec![
        message("Address", &[("socket_address", 1, SOCKET)]),
        message("SocketAddress", &[("address", 2, TEXT)]),
    ];
    file(ADDRESS, "envoy.config.core.v3", &[], messages)
}

fn http_status() -> FileDescriptorProto {
    // A rule may have any other status from 400 to 499.
    let codes = [
        ("Empty", 0),
        ("OK", 200),
        ("BadRequest", 400),
        ("Unauthorized", 401),
        ("Forbidden", 403),
        ("TooManyRequests", 429),
        ("ServiceUnavailable", 503),
    ];
    let messages = vec![message("HttpStatus", &[("code", 1, STATUS_CODE)])];
    let mut file = file(HTTP_STATUS, "envoy.type.v3", &[], messages);
    file.enum_type.push(enumeration("StatusCode", &codes));
    file
}

fn rpc_status() -> FileDescriptorProto {
    let status = message("Status", &[("code", 1, Kind::Scalar(Type::Int32))]);
    file(RPC_STATUS, "google.rpc", &[], vec![status])
}
