//! The parts that descriptions of `.proto` files are built from.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, MessageOptions, MethodDescriptorProto, OneofDescriptorProto,
    ServiceDescriptorProto,
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

/// Builds the entry of a map from strings to strings, a nested message of the one that has the map.
pub(super) fn map_entry(name: &str) -> DescriptorProto {
    const TEXT: Kind = Kind::Scalar(Type::String);
    DescriptorProto {
        options: Some(MessageOptions {
            map_entry: Some(true),
            ..Default::default()
        }),
        ..message(name, &[("key", 1, TEXT), ("value", 2, TEXT)])
    }
}

/// Makes fields of a message alternatives: at most one of them is present.
pub(super) fn one_of(
    name: &str,
    fields: &mut [FieldDescriptorProto],
    of_message: &mut Vec<OneofDescriptorProto>,
) {
    of_message.push(OneofDescriptorProto {
        name: Some(name.into()),
        ..Default::default()
    });
    for field in fields {
        field.oneof_index = Some(0);
    }
}

/// Builds a service from the name, the request and the response of each method.
pub(super) fn service(name: &str, methods: &[(&str, &str, &str)]) -> ServiceDescriptorProto {
    let methods = methods
        .iter()
        .map(|&(name, input, output)| MethodDescriptorProto {
            name: Some(name.into()),
            input_type: Some(input.into()),
            output_type: Some(output.into()),
            ..Default::default()
        });
    ServiceDescriptorProto {
        name: Some(name.into()),
        method: methods.collect(),
        ..Default::default()
    }
}
