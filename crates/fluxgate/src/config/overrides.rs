//! Overrides of config values by the environment and by flags.

use std::ffi::OsString;

use fluxgate_core::yaml::{Node, Position, Value};

use super::origins::{ConfigFault, FaultLocation, INTERMEDIATE, Origins, OverrideSource};

/// The prefix of the environment variables that override values.
const PREFIX: &str = "FLUXGATE__";
/// More than the depth of any config field.
const MAX_DEPTH: usize = 16;

/// Overrides, in the order in which they apply.
#[derive(Clone, Debug, Default)]
pub struct Overrides(Vec<Override>);

#[derive(Clone, Debug)]
struct Override {
    source: OverrideSource,
    /// The path to the value and its text, or the fault.
    assignment: Result<(Vec<String>, String), String>,
}

impl Overrides {
    /// Reads the variables with the prefix `FLUXGATE__`: `FLUXGATE__STORE__REDIS__URL` is
    /// `store.redis.url`.
    pub fn from_env(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut overrides = Vec::new();
        for (name, value) in variables {
            let name = name.to_string_lossy().into_owned();
            let Some(path) = name.strip_prefix(PREFIX) else {
                continue;
            };
            let path = path.split("__").map(str::to_lowercase).collect();
            let value = value.into_string();
            let assignment = match value {
                Ok(value) => check_path(path).map(|path| (path, value)),
                Err(_) => Err("not UTF-8".into()),
            };
            let source = OverrideSource::Environment(name);
            overrides.push(Override { source, assignment });
        }
        // A mapping before its fields, in whatever order the system returns them.
        overrides.sort_by(|a, b| {
            let depth = |of: &Override| of.assignment.as_ref().map_or(0, |(path, _)| path.len());
            (depth(a), &a.source).cmp(&(depth(b), &b.source))
        });
        Self(overrides)
    }

    /// Adds flags, each as `PATH=VALUE`. They apply after the overrides so far, in their
    /// order.
    pub fn and_flags<S: AsRef<str>>(mut self, flags: impl IntoIterator<Item = S>) -> Self {
        for flag in flags {
            let flag = flag.as_ref();
            let (path, value) = flag.split_once('=').unwrap_or((flag, ""));
            let assignment = if flag.contains('=') {
                check_path(path.split('.').map(Into::into).collect())
            } else {
                Err("must be PATH=VALUE, such as store.redis.deadline=20ms".into())
            };
            self.0.push(Override {
                source: OverrideSource::Flag(path.into()),
                assignment: assignment.map(|path| (path, value.into())),
            });
        }
        self
    }
}

fn check_path(path: Vec<String>) -> Result<Vec<String>, String> {
    match path.len() {
        _ if path.iter().any(String::is_empty) => {
            Err("names no field: a part of the path is empty".into())
        }
        depth if depth > MAX_DEPTH => Err(format!(
            "names no field: the path has more than {MAX_DEPTH} parts"
        )),
        _ => Ok(path),
    }
}

/// Applies overrides to the tree, and returns the faults of the overrides themselves.
pub(super) fn apply(
    overrides: &Overrides,
    tree: &mut Node,
    origins: &mut Origins,
) -> Vec<ConfigFault> {
    let mut faults = Vec::new();
    for Override { source, assignment } in &overrides.0 {
        let at = origins.add(source.clone());
        let done = assignment.clone().and_then(|(path, text)| {
            let value = Node::parse(&text).map_err(|fault| {
                let what = fault.message;
                format!("{what} (a text with special characters needs quotes)")
            })?;
            set(tree, &path, with_position(value, at))
        });
        if let Err(message) = done {
            let location = FaultLocation::Override(source.clone());
            faults.push(ConfigFault { location, message });
        }
    }
    faults
}

/// Sets the value at a path. Creates missing mappings; items of a list are named by
/// index.
fn set(node: &mut Node, path: &[String], value: Node) -> Result<(), String> {
    let Some((name, rest)) = path.split_first() else {
        *node = value;
        return Ok(());
    };
    let at = value.position;
    if let Value::List(items) = &mut node.value {
        let count = items.len();
        let item = name
            .parse()
            .ok()
            .and_then(|index: usize| items.get_mut(index))
            .ok_or(format!(
                "`{name}` is not an index of the list, which has {count} items (the first is 0)"
            ))?;
        return set(item, rest, value);
    }
    if !matches!(node.value, Value::Map(_)) {
        let column = INTERMEDIATE;
        *node = node_at(Value::Map(Vec::new()), Position { column, ..at });
    }
    if let Value::Map(pairs) = &mut node.value {
        let known = pairs
            .iter()
            .position(|(key, _)| key.as_text() == Some(name));
        let index = known.unwrap_or_else(|| {
            let key = node_at(Value::Quoted(name.clone()), at);
            let nothing = node_at(Value::Plain(String::new()), at);
            pairs.push((key, nothing));
            pairs.len() - 1
        });
        set(&mut pairs[index].1, rest, value)?;
    }
    Ok(())
}

/// Returns the same value with all its positions set to `at`.
fn with_position(node: Node, at: Position) -> Node {
    let value = match node.value {
        Value::List(items) => Value::List(
            items
                .into_iter()
                .map(|item| with_position(item, at))
                .collect(),
        ),
        Value::Map(pairs) => {
            let pairs = pairs
                .into_iter()
                .map(|(key, value)| (with_position(key, at), with_position(value, at)));
            Value::Map(pairs.collect())
        }
        scalar => scalar,
    };
    node_at(value, at)
}

fn node_at(value: Value, position: Position) -> Node {
    Node { value, position }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(variables: &[(&str, &str)]) -> Overrides {
        let variables = variables.iter();
        Overrides::from_env(variables.map(|(name, value)| (name.into(), value.into())))
    }

    fn applied(text: &str, overrides: &Overrides) -> (String, Vec<String>) {
        let mut tree = Node::parse(text).unwrap();
        let mut origins = crate::config::RawConfig::demo().origins;
        let faults = apply(overrides, &mut tree, &mut origins);
        let faults = faults.iter().map(ConfigFault::to_string).collect();
        (tree.canonical(), faults)
    }

    #[test]
    fn parts_come_after_the_whole_and_flags_after_the_environment() {
        let overrides = env(&[
            ("FLUXGATE__A__B__C", "1"),
            ("FLUXGATE__A", "{ b: { c: 0, d: 0 }, e: [0, 0] }"),
            ("FLUXGATE_A", "9"),
            ("PATH", "9"),
            ("FLUXGATE__A__B__D", "2"),
        ])
        .and_flags(["a.b.d=3", "a.e.1=4", "a.b.d=5", "a.f=x=y"]);
        let (tree, faults) = applied("a: 7", &overrides);
        let expected = Node::parse("a: { b: { c: 1, d: 5 }, e: [0, 4], f: x=y }").unwrap();
        assert_eq!((tree, faults.len()), (expected.canonical(), 0));
    }

    #[test]
    fn a_bad_path_or_value_is_reported_with_its_origin() {
        let overrides = env(&[
            ("FLUXGATE__", "1"),
            ("FLUXGATE__A____B", "1"),
            ("FLUXGATE__C", "[1"),
        ])
        .and_flags(["a", "a..b=1", "=1", "l.2=1", "l.x=1"])
        .and_flags(["x.".repeat(20) + "x=1"]);
        let (_, faults) = applied("l: [1, 2]", &overrides);
        let beginnings = [
            "environment FLUXGATE__: names no field",
            "environment FLUXGATE__A____B: names no field",
            "environment FLUXGATE__C: not valid YAML: ",
            "--set a: must be PATH=VALUE",
            "--set a..b: names no field",
            "--set : names no field",
            "--set l.2: `2` is not an index of the list, which has 2 items",
            "--set l.x: `x` is not an index of the list",
            "--set x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x: names no field",
        ];
        assert_eq!(faults.len(), beginnings.len(), "{faults:#?}");
        for (fault, beginning) in faults.iter().zip(beginnings) {
            assert!(fault.starts_with(beginning), "{fault}");
        }
    }
}
