//! `grpc.reflection`, so that tools need no proto files.

use prost_types::{FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto};
use prost_types::{ServiceDescriptorProto, field_descriptor_proto::Type};
use tonic_reflection::pb;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};
use tonic_reflection::server::v1alpha::{
    ServerReflection as ServerReflectionAlpha,
    ServerReflectionServer as ServerReflectionServerAlpha,
};
use tonic_reflection::server::{Builder, Error};

use super::schema::{Kind, enumeration, field, file, message, repeated};

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
    const CODE: Kind = Kind::Enum(".envoy.service.ratelimit.v3.RateLimitResponse.Code");
    let mut limit = message(
        "RateLimit",
        vec![
            field("requests_per_unit", 1, Kind::Scalar(Type::Uint32)),
            field(
                "unit",
                2,
                Kind::Enum(".envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit"),
            ),
            field("name", 3, Kind::Scalar(Type::String)),
        ],
    );
    limit.enum_type.push(enumeration("Unit", &units));
    let status = message(
        "DescriptorStatus",
        vec![
            field("code", 1, CODE),
            field(
                "current_limit",
                2,
                Kind::Message(".envoy.service.ratelimit.v3.RateLimitResponse.RateLimit"),
            ),
            field("limit_remaining", 3, Kind::Scalar(Type::Uint32)),
            field(
                "duration_until_reset",
                4,
                Kind::Message(".google.protobuf.Duration"),
            ),
        ],
    );
    let request = message(
        "RateLimitRequest",
        vec![
            field("domain", 1, Kind::Scalar(Type::String)),
            repeated(
                "descriptors",
                2,
                ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor",
            ),
            field("hits_addend", 3, Kind::Scalar(Type::Uint32)),
        ],
    );
    let mut response = message(
        "RateLimitResponse",
        vec![
            field("overall_code", 1, CODE),
            repeated(
                "statuses",
                2,
                ".envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus",
            ),
            repeated(
                "response_headers_to_add",
                3,
                ".envoy.config.core.v3.HeaderValue",
            ),
        ],
    );
    response.nested_type = vec![limit, status];
    response.enum_type.push(code);
    let mut file = file(
        RLS,
        "envoy.service.ratelimit.v3",
        &[BASE, COMMON, DURATION],
        vec![request, response],
    );
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
    let entry = message(
        "Entry",
        vec![
            field("key", 1, Kind::Scalar(Type::String)),
            field("value", 2, Kind::Scalar(Type::String)),
        ],
    );
    let mut descriptor = message(
        "RateLimitDescriptor",
        vec![
            repeated(
                "entries",
                1,
                ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry",
            ),
            field(
                "hits_addend",
                3,
                Kind::Message(".google.protobuf.UInt64Value"),
            ),
            field("is_negative_hits", 4, Kind::Scalar(Type::Bool)),
        ],
    );
    descriptor.nested_type.push(entry);
    let package = "envoy.extensions.common.ratelimit.v3";
    file(COMMON, package, &[WRAPPERS], vec![descriptor])
}

fn base() -> FileDescriptorProto {
    let header = message(
        "HeaderValue",
        vec![
            field("key", 1, Kind::Scalar(Type::String)),
            field("value", 2, Kind::Scalar(Type::String)),
        ],
    );
    file(BASE, "envoy.config.core.v3", &[], vec![header])
}

fn duration() -> FileDescriptorProto {
    let duration = message(
        "Duration",
        vec![
            field("seconds", 1, Kind::Scalar(Type::Int64)),
            field("nanos", 2, Kind::Scalar(Type::Int32)),
        ],
    );
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
    let values =
        values.map(|(name, kind)| message(name, vec![field("value", 1, Kind::Scalar(kind))]));
    file(WRAPPERS, "google.protobuf", &[], values.into())
}
