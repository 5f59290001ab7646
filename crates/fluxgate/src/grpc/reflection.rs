//! `grpc.reflection`, so that tools need no proto files.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto,
};
use tonic_reflection::pb;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};
use tonic_reflection::server::v1alpha::{
    ServerReflection as ServerReflectionAlpha,
    ServerReflectionServer as ServerReflectionServerAlpha,
};
use tonic_reflection::server::{Builder, Error};

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

const RLS: &str = "envoy/service/ratelimit/v3/rls.proto";
const COMMON: &str = "envoy/extensions/common/ratelimit/v3/ratelimit.proto";
const BASE: &str = "envoy/config/core/v3/base.proto";
const DURATION: &str = "google/protobuf/duration.proto";
const WRAPPERS: &str = "google/protobuf/wrappers.proto";

/// Returns the supported part of Envoy's files, with their dependencies.
fn files() -> FileDescriptorSet {
    FileDescriptorSet {
        file: vec![rls(), common(), base(), duration(), wrappers()],
    }
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
const RESET: Kind = Kind::Message(".google.protobuf.Duration");
const HITS: Kind = Kind::Message(".google.protobuf.UInt64Value");
const TEXT: Kind = Kind::Scalar(Type::String);
const COUNT: Kind = Kind::Scalar(Type::Uint32);

fn rls() -> FileDescriptorProto {
    let code = enumeration("Code", &[("UNKNOWN", 0), ("OK", 1), ("OVER_LIMIT", 2)]);
    let units = [
        ("UNKNOWN", 0),
        ("SECOND", 1),
        ("MINUTE", 2),
        ("HOUR", 3),
        ("DAY", 4),
        ("MONTH", 5),
        ("YEAR", 6),
    ];
    let limit = [
        ("requests_per_unit", 1, COUNT),
        ("unit", 2, UNIT),
        ("name", 3, TEXT),
    ];
    let mut limit = message("RateLimit", &limit);
    limit.enum_type.push(enumeration("Unit", &units));
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
    ];
    let mut response = message("RateLimitResponse", &response);
    response.nested_type = vec![limit, message("DescriptorStatus", &status)];
    response.enum_type.push(code);
    let messages = vec![message("RateLimitRequest", &request), response];
    let dependencies = [BASE, COMMON, DURATION];
    let mut file = file(RLS, "envoy.service.ratelimit.v3", &dependencies, messages);
    file.service.push(ServiceDescriptorProto {
        name: Some("RateLimitService".into()),
        method: vec![MethodDescriptorProto {
            name: Some("ShouldRateLimit".into()),
            input_type: Some(".envoy.service.ratelimit.v3.RateLimitRequest".into()),
            output_type: Some(".envoy.service.ratelimit.v3.RateLimitResponse".into()),
            ..Default::default()
        }],
        ..Default::default()
    });
    file
}

fn common() -> FileDescriptorProto {
    let descriptor = [
        ("entries", 1, ENTRIES),
        ("hits_addend", 3, HITS),
        ("is_negative_hits", 4, Kind::Scalar(Type::Bool)),
    ];
    let mut descriptor = message("RateLimitDescriptor", &descriptor);
    let entry = message("Entry", &[("key", 1, TEXT), ("value", 2, TEXT)]);
    descriptor.nested_type.push(entry);
    let package = "envoy.extensions.common.ratelimit.v3";
    file(COMMON, package, &[WRAPPERS], vec![descriptor])
}

fn base() -> FileDescriptorProto {
    let header = message("HeaderValue", &[("key", 1, TEXT), ("value", 2, TEXT)]);
    file(BASE, "envoy.config.core.v3", &[], vec![header])
}

fn duration() -> FileDescriptorProto {
    let fields = [
        ("seconds", 1, Kind::Scalar(Type::Int64)),
        ("nanos", 2, Kind::Scalar(Type::Int32)),
    ];
    let duration = message("Duration", &fields);
    file(DURATION, "google.protobuf", &[], vec![duration])
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

/// The type of a field. Names are fully qualified, with a leading dot.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Scalar(Type),
    Message(&'static str),
    /// A list of messages.
    Repeated(&'static str),
    Enum(&'static str),
}

/// Builds a proto3 file.
fn file(
    name: &str,
    package: &str,
    dependencies: &[&str],
    messages: Vec<DescriptorProto>,
) -> FileDescriptorProto {
    FileDescriptorProto {
        name: Some(name.into()),
        package: Some(package.into()),
        dependency: dependencies.iter().map(|&name| name.into()).collect(),
        message_type: messages,
        syntax: Some("proto3".into()),
        ..Default::default()
    }
}

/// Builds a message from the name, the number and the type of each field.
fn message(name: &str, fields: &[(&str, i32, Kind)]) -> DescriptorProto {
    DescriptorProto {
        name: Some(name.into()),
        field: fields.iter().map(field).collect(),
        ..Default::default()
    }
}

fn field((name, number, kind): &(&str, i32, Kind)) -> FieldDescriptorProto {
    let (kind, type_name, label) = match *kind {
        Kind::Scalar(kind) => (kind, None, Label::Optional),
        Kind::Message(name) => (Type::Message, Some(name.into()), Label::Optional),
        Kind::Repeated(name) => (Type::Message, Some(name.into()), Label::Repeated),
        Kind::Enum(name) => (Type::Enum, Some(name.into()), Label::Optional),
    };
    FieldDescriptorProto {
        name: Some((*name).into()),
        number: Some(*number),
        label: Some(label.into()),
        r#type: Some(kind.into()),
        type_name,
        ..Default::default()
    }
}

/// Builds an enum.
fn enumeration(name: &str, values: &[(&str, i32)]) -> EnumDescriptorProto {
    let value = |&(name, number): &(&str, i32)| EnumValueDescriptorProto {
        name: Some(name.into()),
        number: Some(number),
        ..Default::default()
    };
    EnumDescriptorProto {
        name: Some(name.into()),
        value: values.iter().map(value).collect(),
        ..Default::default()
    }
}
