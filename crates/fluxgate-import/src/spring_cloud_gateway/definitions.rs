//! Predicates and filters, in their short form `Name=value,value` or as mappings.

use fluxgate_core::yaml::{Faults, Node, Value};

use crate::draft::Remark;
use crate::spring::{Properties, words};

/// How the properties of the gateway begin: since release 4.3, and before.
pub(super) const PREFIXES: [&str; 2] = [
    "spring.cloud.gateway.server.webflux",
    "spring.cloud.gateway",
];

/// A predicate or a filter.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) line: usize,
    pub(super) name: String,
    /// As it could be written in the short form.
    pub(super) text: String,
    pub(super) arguments: Arguments,
}

#[derive(Debug)]
pub(super) enum Arguments {
    Short(Vec<String>),
    Named(Properties),
}

impl Definition {
    pub(super) fn read_all(nodes: &[Node], what: &str, faults: &mut Faults) -> Vec<Self> {
        let definitions = nodes.iter();
        definitions
            .filter_map(|node| Self::read(node, what, faults))
            .collect()
    }

    fn read(node: &Node, what: &str, faults: &mut Faults) -> Option<Self> {
        let line = node.position.line;
        let Value::Map(_) = &node.value else {
            let text = node.text(what, faults)?;
            let (name, arguments) = text.split_once('=').unwrap_or((text, ""));
            return Some(Self {
                line,
                name: name.trim().to_owned(),
                text: text.to_owned(),
                arguments: Arguments::Short(words(arguments).map(str::to_owned).collect()),
            });
        };
        let fields = Properties::of_mapping(node);
        let Some(name) = fields.text("name", faults) else {
            faults.add(node.position, format!("{what} needs a `name`"));
            return None;
        };
        let name = name.trim().to_owned();
        let values = fields.below("args").into_iter();
        let values: Vec<_> = values.map(|(_, it)| shown(&it.node)).collect();
        let text = if values.is_empty() {
            name.clone()
        } else {
            format!("{name}={}", values.join(","))
        };
        Some(Self {
            line,
            name,
            text,
            arguments: Arguments::Named(Properties::of_mapping(node)),
        })
    }

    pub(super) fn is_limiter(&self) -> bool {
        self.name == "RequestRateLimiter"
    }

    /// Returns the values of an argument that is a list, such as the patterns of `Path`. In the
    /// short form it has all values.
    pub(super) fn values(&self, names: &[&str], faults: &mut Faults) -> Vec<String> {
        match &self.arguments {
            Arguments::Short(values) => values.clone(),
            Arguments::Named(fields) => {
                let names = names.iter().map(|name| format!("args.{name}"));
                let given = names.flat_map(|name| fields.texts(&name, faults));
                let mut values: Vec<_> = given.map(|(value, _)| value).collect();
                // How Spring Cloud Gateway names the values of the short form.
                let generated = fields.below("args").into_iter();
                let generated = generated.filter(|(name, _)| name.starts_with("genkey"));
                values.extend(generated.map(|(_, property)| shown(&property.node)));
                values
            }
        }
    }

    /// Returns an argument, by its name or by its place in the short form.
    pub(super) fn value(&self, name: &str, place: usize, faults: &mut Faults) -> Option<String> {
        match &self.arguments {
            Arguments::Short(values) => values.get(place).cloned(),
            Arguments::Named(fields) => {
                let named = fields.text(&format!("args.{name}"), faults);
                let generated = || fields.text(&format!("args.genkey{place}"), faults);
                named.or_else(generated).map(str::to_owned)
            }
        }
    }

    /// Returns a remark on a filter that the gateway does not have, unless it does the same
    /// without.
    pub(super) fn remark(&self) -> Option<Remark> {
        let text = match self.name.as_str() {
            "PreserveHostHeader" => return None,
            _ => format!("the filter `{}`", self.text),
        };
        Some(Remark::lost(self.line, text))
    }
}

fn shown(node: &Node) -> String {
    match &node.value {
        Value::List(items) => items.iter().map(shown).collect::<Vec<_>>().join(","),
        _ => node.as_text().unwrap_or_default().to_owned(),
    }
}
