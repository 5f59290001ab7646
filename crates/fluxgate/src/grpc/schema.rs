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
    /// A list of messages.
    Repeated(&'static str),
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

/// Builds a message from the name, the number and the type of each field.
pub(super) fn message(name: &str, fields: &[(&str, i32, Kind)]) -> DescriptorProto {
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
