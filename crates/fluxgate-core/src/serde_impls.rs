//! Decisions and rules for serde.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

use crate::decision::Decision;
use crate::keyed::{Denied, Permit};
use crate::rules::RuleSets;
use crate::time::{Micros, Retry};
use crate::yaml::{Node, Position, Value};

impl Serialize for Decision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let millis = |retry: Retry| retry.after().map(Micros::ceil_millis);
        let violated: Vec<_> = self.violated().map(|it| it.to_string()).collect();
        let (hold, reservation) = (self.hold(), self.reservation());
        let count = 10 + 2 * usize::from(hold.is_some()) + usize::from(reservation.is_some());
        let mut fields = serializer.serialize_struct("Decision", count)?;
        fields.serialize_field("allowed", &self.allowed())?;
        fields.serialize_field("outcome", &self.outcome())?;
        fields.serialize_field("rule", &self.rule().map(|rule| rule.id()))?;
        fields.serialize_field("band", &self.band().map(|band| band.id()))?;
        fields.serialize_field("limit", &self.limit())?;
        fields.serialize_field("remaining", &self.remaining())?;
        fields.serialize_field("retry_after_ms", &millis(self.retry()))?;
        fields.serialize_field("reset_after_ms", &self.reset_micros().ceil_millis())?;
        fields.serialize_field("delay_ms", &self.delay_micros().ceil_millis())?;
        fields.serialize_field("violated", &violated)?;
        if let Some(hold) = hold {
            fields.serialize_field("hold", &hold.to_string())?;
            fields.serialize_field("hold_ms", &(self.renew_within().get() / 1_000))?;
        }
        if let Some(reservation) = reservation {
            fields.serialize_field("reservation", &reservation.to_string())?;
        }
        fields.end()
    }
}

/// Milliseconds are rounded up.
impl Serialize for Permit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let reset = Micros::from(self.reset_after).ceil_millis();
        let mut fields = serializer.serialize_struct("Permit", 2)?;
        fields.serialize_field("remaining", &self.remaining)?;
        fields.serialize_field("reset_after_ms", &reset)?;
        fields.end()
    }
}

/// `retry_after_ms` is null if waiting does not help.
impl Serialize for Denied {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let wait = self
            .retry_after
            .map(|wait| Micros::from(wait).ceil_millis());
        let mut fields = serializer.serialize_struct("Denied", 3)?;
        fields.serialize_field("retry_after_ms", &wait)?;
        fields.serialize_field("remaining", &self.remaining)?;
        fields.serialize_field("failed_closed", &self.failed_closed())?;
        fields.end()
    }
}

/// The form of a rule file.
impl Serialize for RuleSets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let root = Node::parse(&self.to_yaml()).map_err(serde::ser::Error::custom)?;
        root.serialize(serializer)
    }
}

/// The form of a rule file. Faults have the same messages, without positions.
impl<'de> serde::Deserialize<'de> for RuleSets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let count = Cell::new(0);
        let root = NodeSeed(&count).deserialize(deserializer)?;
        Self::from_node(&root).map_err(|error| {
            let messages: Vec<_> = error.0.into_iter().map(|fault| fault.message).collect();
            D::Error::custom(messages.join("; "))
        })
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            _ if self.is_null() => serializer.serialize_unit(),
            Value::Plain(text) => match (text.parse::<bool>(), text.parse::<i64>()) {
                (Ok(boolean), _) => serializer.serialize_bool(boolean),
                (_, Ok(number)) => serializer.serialize_i64(number),
                _ => serializer.serialize_str(text),
            },
            Value::Quoted(text) => serializer.serialize_str(text),
            Value::List(items) => serializer.collect_seq(items),
            Value::Map(pairs) => {
                let mut map = serializer.serialize_map(Some(pairs.len()))?;
                for (key, value) in pairs {
                    map.serialize_entry(key.as_text().unwrap_or_default(), value)?;
                }
                map.end()
            }
        }
    }
}

/// Reads any value. Each gets a position of its own, which identifies its faults.
struct NodeSeed<'c>(&'c Cell<usize>);

impl NodeSeed<'_> {
    fn node(&self, value: Value) -> Node {
        self.0.set(self.0.get() + 1);
        let position = Position {
            line: self.0.get(),
            column: 1,
        };
        Node { value, position }
    }
}

impl<'de> DeserializeSeed<'de> for NodeSeed<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NodeSeed<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of a rule file")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(self.node(Value::Plain(value.to_string())))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(self.node(Value::Plain(value.to_string())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(self.node(Value::Plain(value.to_string())))
    }

    // No rule has such a number, but the text of an attribute may be one.
    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(self.node(Value::Plain(value.to_string())))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(self.node(Value::Quoted(value.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(self.node(Value::Plain("null".into())))
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Node, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(NodeSeed(self.0))? {
            list.push(item);
        }
        Ok(self.node(Value::List(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = pairs.next_key_seed(NodeSeed(self.0))? {
            map.push((key, pairs.next_value_seed(NodeSeed(self.0))?));
        }
        Ok(self.node(Value::Map(map)))
    }
}
