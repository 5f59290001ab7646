//! Builders of message descriptors for reflection.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto,
};

/// The type of a field. Names are fully qualified, with a leading dot.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Scalar(Type),
    Message(&'static str),
    Enum(&'static str),
}

/// Builds a proto3 file.
pub(super) fn file(
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

pub(super) fn message(name: &str, fields: Vec<FieldDescriptorProto>) -> DescriptorProto {
    DescriptorProto {
        name: Some(name.into()),
        field: fields,
        ..Default::default()
    }
}

/// Builds a field with one value.
pub(super) fn field(name: &str, number: i32, kind: Kind) -> FieldDescriptorProto {
    let (kind, type_name) = match kind {
        Kind::Scalar(kind) => (kind, None),
        Kind::Message(name) => (Type::Message, Some(name.into())),
        Kind::Enum(name) => (Type::Enum, Some(name.into())),
    };
    FieldDescriptorProto {
        name: Some(name.into()),
        number: Some(number),
        label: Some(Label::Optional.into()),
        r#type: Some(kind.into()),
        type_name,
        ..Default::default()
    }
}

/// Builds a repeated field of messages.
pub(super) fn repeated(name: &str, number: i32, of: &'static str) -> FieldDescriptorProto {
    FieldDescriptorProto {
        label: Some(Label::Repeated.into()),
        ..field(name, number, Kind::Message(of))
    }
}

/// Builds an enum.
pub(super) fn enumeration(name: &str, values: &[(&str, i32)]) -> EnumDescriptorProto {
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
