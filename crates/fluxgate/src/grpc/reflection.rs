//! `grpc.reflection`, so that tools need no proto files.

mod auth;
mod schema;

use prost_types::field_descriptor_proto::Type;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use tonic_reflection::pb;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};
use tonic_reflection::server::v1alpha::{
    ServerReflection as ServerReflectionAlpha,
    ServerReflectionServer as ServerReflectionServerAlpha,
};
use tonic_reflection::server::{Builder, Error};

use schema::{Kind, enumeration, file, map_entry, message, one_of, service};

/// Returns the reflection service in both versions that tools use.
pub(super) fn services() -> Result<
    (
        ServerReflectionServer<impl ServerReflection>,
        ServerReflectionServerAlpha<impl ServerReflectionAlpha>,
    ),
    Error,
> {
    Ok((builder().build_v1()?, builder().build_v1alpha()?))
}

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_file_descriptor_set(files())
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(pb::v1::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(pb::v1alpha::FILE_DESCRIPTOR_SET)
}

/// The units of a limit, by their numbers.
const UNITS: [(&str, i32); 8] = [
    ("UNKNOWN", 0),
    ("SECOND", 1),
    ("MINUTE", 2),
    ("HOUR", 3),
    ("DAY", 4),
    ("MONTH", 5),
    ("YEAR", 6),
    ("WEEK", 7),
];

const RLS: &str = "envoy/service/ratelimit/v3/rls.proto";
const COMMON: &str = "envoy/extensions/common/ratelimit/v3/ratelimit.proto";
const BASE: &str = "envoy/config/core/v3/base.proto";
const DURATION: &str = "google/protobuf/duration.proto";
const WRAPPERS: &str = "google/protobuf/wrappers.proto";
const STRUCT: &str = "google/protobuf/struct.proto";
const LIMIT_UNIT: &str = "envoy/type/v3/ratelimit_unit.proto";
const KUADRANT: &str = "kuadrant/service/ratelimit/v1/kuadrantrls.proto";

/// Returns the supported part of the files of Envoy and Kuadrant, with their dependencies.
fn files() -> FileDescriptorSet {
    let mut file = vec![
        rls(),
        kuadrant(),
        common(),
        base(),
        duration(),
        wrappers(),
        structure(),
        limit_unit(),
    ];
    file.extend(auth::files());
    FileDescriptorSet { file }
}

const CODE: Kind = Kind::Enum(".envoy.service.ratelimit.v3.RateLimitResponse.Code");
const UNIT: Kind = Kind::Enum(".envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit");
const LIMIT: Kind = Kind::Message(".envoy.service.ratelimit.v3.RateLimitResponse.RateLimit");
const STATUSES: Kind =
    Kind::Repeated(".envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus");
const DESCRIPTORS: Kind =
    Kind::Repeated(".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor");
const ENTRIES: Kind =
    Kind::Repeated(".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry");
const HEADERS: Kind = Kind::Repeated(".envoy.config.core.v3.HeaderValue");
const HEADER: Kind = Kind::Message(".envoy.config.core.v3.HeaderValue");
const APPEND_ACTION: Kind =
    Kind::Enum(".envoy.config.core.v3.HeaderValueOption.HeaderAppendAction");
const RESET: Kind = Kind::Message(".google.protobuf.Duration");
const HITS: Kind = Kind::Message(".google.protobuf.UInt64Value");
const OVERRIDE: Kind =
    Kind::Message(".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride");
const OVERRIDE_UNIT: Kind = Kind::Enum(".envoy.type.v3.RateLimitUnit");
const METADATA: Kind = Kind::Message(".google.protobuf.Struct");
const TEXT: Kind = Kind::Scalar(Type::String);
const COUNT: Kind = Kind::Scalar(Type::Uint32);

fn rls() -> FileDescriptorProto {
    let code = enumeration("Code", &[("UNKNOWN", 0), ("OK", 1), ("OVER_LIMIT", 2)]);
    let limit = [
        ("requests_per_unit", 1, COUNT),
        ("unit", 2, UNIT),
        ("name", 3, TEXT),
    ];
    let mut limit = message("RateLimit", &limit);
    limit.enum_type.push(enumeration("Unit", &UNITS));
    let status = [
        ("code", 1, CODE),
        ("current_limit", 2, LIMIT),
        ("limit_remaining", 3, COUNT),
        ("duration_until_reset", 4, RESET),
    ];
    let request = [
        ("domain", 1, TEXT),
        ("descriptors", 2, DESCRIPTORS),
        ("hits_addend", 3, COUNT),
    ];
    let response = [
        ("overall_code", 1, CODE),
        ("statuses", 2, STATUSES),
        ("response_headers_to_add", 3, HEADERS),
        ("dynamic_metadata", 6, METADATA),
    ];
    let mut response = message("RateLimitResponse", &response);
    response.nested_type = vec![limit, message("DescriptorStatus", &status)];
    response.enum_type.push(code);
    let messages = vec![message("RateLimitRequest", &request), response];
    let dependencies = [BASE, COMMON, DURATION, STRUCT];
    let mut file = file(RLS, "envoy.service.ratelimit.v3", &dependencies, messages);
    let name = |message: &str| format!(".envoy.service.ratelimit.v3.{message}");
    let (request, response) = (name("RateLimitRequest"), name("RateLimitResponse"));
    let methods = [("ShouldRateLimit", &*request, &*response)];
    file.service.push(service("RateLimitService", &methods));
    file
}

fn kuadrant() -> FileDescriptorProto {
    const CALL: &str = ".envoy.service.ratelimit.v3.RateLimitRequest";
    const ANSWER: &str = ".envoy.service.ratelimit.v3.RateLimitResponse";
    const PACKAGE: &str = "kuadrant.service.ratelimit.v1";
    let amount = Kind::Scalar(Type::Uint64);
    let reserve = [
        ("domain", 1, TEXT),
        ("descriptors", 2, DESCRIPTORS),
        ("amount", 3, amount),
        ("ttl", 4, RESET),
    ];
    let commit = [
        ("domain", 1, TEXT),
        ("descriptors", 2, DESCRIPTORS),
        ("reservation_id", 3, TEXT),
        ("actual_amount", 4, amount),
    ];
    let messages = vec![
        message("ReserveRequest", &reserve),
        message(
            "ReserveResponse",
            &[("code", 1, CODE), ("reservation_id", 2, TEXT)],
        ),
        message("CommitRequest", &commit),
        message("CommitResponse", &[("code", 1, CODE)]),
    ];
    let own = |name: &str| format!(".{PACKAGE}.{name}");
    let names = [
        "ReserveRequest",
        "ReserveResponse",
        "CommitRequest",
        "CommitResponse",
    ];
    let [reserve, reserved, commit, committed] = &names.map(own);
    let methods = [
        ("CheckRateLimit", CALL, ANSWER),
        ("Report", CALL, ANSWER),
        ("Reserve", reserve, reserved),
        ("Commit", commit, committed),
    ];
    let mut file = file(KUADRANT, PACKAGE, &[RLS, COMMON, DURATION], messages);
    file.service.push(service("RateLimitService", &methods));
    file
}

fn common() -> FileDescriptorProto {
    let descriptor = [
        ("entries", 1, ENTRIES),
        ("limit", 2, OVERRIDE),
        ("hits_addend", 3, HITS),
        ("is_negative_hits", 4, Kind::Scalar(Type::Bool)),
    ];
    let mut descriptor = message("RateLimitDescriptor", &descriptor);
    let entry = message("Entry", &[("key", 1, TEXT), ("value", 2, TEXT)]);
    let limit = [("requests_per_unit", 1, COUNT), ("unit", 2, OVERRIDE_UNIT)];
    let limit = message("RateLimitOverride", &limit);
    descriptor.nested_type.extend([entry, limit]);
    let package = "envoy.extensions.common.ratelimit.v3";
    file(COMMON, package, &[WRAPPERS, LIMIT_UNIT], vec![descriptor])
}

fn base() -> FileDescriptorProto {
    let value = [
        ("key", 1, TEXT),
        ("value", 2, TEXT),
        ("raw_value", 3, Kind::Scalar(Type::Bytes)),
    ];
    let actions = [
        ("APPEND_IF_EXISTS_OR_ADD", 0),
        ("OVERWRITE_IF_EXISTS_OR_ADD", 2),
    ];
    let option = [("header", 1, HEADER), ("append_action", 3, APPEND_ACTION)];
    let mut option = message("HeaderValueOption", &option);
    option
        .enum_type
        .push(enumeration("HeaderAppendAction", &actions));
    let messages = vec![
        message("HeaderValue", &value),
        message("HeaderMap", &[("headers", 1, HEADERS)]),
        option,
    ];
    file(BASE, "envoy.config.core.v3", &[], messages)
}

fn duration() -> FileDescriptorProto {
    let fields = [
        ("seconds", 1, Kind::Scalar(Type::Int64)),
        ("nanos", 2, Kind::Scalar(Type::Int32)),
    ];
    let duration = message("Duration", &fields);
    file(DURATION, "google.protobuf", &[], vec![duration])
}

/// The part of `google.protobuf.Struct` that is sent: texts and numbers.
fn structure() -> FileDescriptorProto {
    const FIELDS: Kind = Kind::Repeated(".google.protobuf.Struct.FieldsEntry");
    const VALUE: Kind = Kind::Message(".google.protobuf.Value");
    let mut entry = map_entry("FieldsEntry");
    entry.field = message("", &[("key", 1, TEXT), ("value", 2, VALUE)]).field;
    let mut structure = message("Struct", &[("fields", 1, FIELDS)]);
    structure.nested_type.push(entry);
    let value = [
        ("number_value", 2, Kind::Scalar(Type::Double)),
        ("string_value", 3, TEXT),
    ];
    let mut value = message("Value", &value);
    one_of("kind", &mut value.field, &mut value.oneof_decl);
    file(STRUCT, "google.protobuf", &[], vec![structure, value])
}

fn limit_unit() -> FileDescriptorProto {
    let mut file = file(LIMIT_UNIT, "envoy.type.v3", &[], Vec::new());
    // It has no week.
    file.enum_type
        .push(enumeration("RateLimitUnit", &UNITS[..7]));
    file
}

fn wrappers() -> FileDescriptorProto {
    let values = [
        ("DoubleValue", Type::Double),
        ("FloatValue", Type::Float),
        ("Int64Value", Type::Int64),
        ("UInt64Value", Type::Uint64),
        ("Int32Value", Type::Int32),
        ("UInt32Value", Type::Uint32),
        ("BoolValue", Type::Bool),
        ("StringValue", Type::String),
        ("BytesValue", Type::Bytes),
    ];
    let values = values.map(|(name, kind)| message(name, &[("value", 1, Kind::Scalar(kind))]));
    file(WRAPPERS, "google.protobuf", &[], values.into())
}
