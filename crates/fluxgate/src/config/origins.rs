//! Where the values of a configuration come from.

use std::fmt;

use fluxgate_core::yaml::{Fault, Node, Position};

/// The column of a mapping that was created only to hold an overridden value.
pub(super) const INTERMEDIATE: usize = 2;

/// The origin of an override.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OverrideSource {
    /// An environment variable, by its name.
    Environment(String),
    /// A `--set` flag, by its path.
    Flag(String),
}

impl fmt::Display for OverrideSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Escaped: names may hold line ends, and a fault is one line.
        match self {
            Self::Environment(name) => write!(f, "environment {}", name.escape_debug()),
            Self::Flag(path) => write!(f, "--set {}", path.escape_debug()),
        }
    }
}

/// The origin of an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultLocation {
    /// The config file.
    File {
        /// Its name.
        file: String,
        /// The position of the value.
        position: Position,
    },
    /// An environment variable or a flag.
    Override(OverrideSource),
}

impl fmt::Display for FaultLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, position } => {
                write!(f, "{file}:{}:{}", position.line, position.column)
            }
            Self::Override(source) => write!(f, "{source}"),
        }
    }
}

/// An invalid value of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigFault {
    /// Where the value comes from.
    pub location: FaultLocation,
    /// The fault, and the allowed values.
    pub message: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.message)
    }
}

/// Maps lines to their origins: first the lines of the file, then one for each override,
/// as if it were written below the file.
#[derive(Clone, Debug)]
pub(super) struct Origins {
    file: String,
    lines: usize,
    overrides: Vec<OverrideSource>,
}

impl Origins {
    /// Creates the origins of a config file without overrides.
    pub(super) fn new(file: &str, text: &str) -> Self {
        Self {
            file: file.into(),
            // In YAML, a carriage return alone also ends a line.
            lines: text.split(['\n', '\r']).count() + 1,
            overrides: Vec::new(),
        }
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// Adds an override and returns its position.
    pub(super) fn add(&mut self, source: OverrideSource) -> Position {
        self.overrides.push(source);
        Position {
            line: self.lines + self.overrides.len(),
            column: 1,
        }
    }

    /// Returns the override at a position.
    fn source(&self, at: Position) -> Option<&OverrideSource> {
        let index = at.line.checked_sub(self.lines + 1)?;
        self.overrides.get(index)
    }

    /// Returns the override that set a value, but not one that only created its mapping.
    pub(super) fn source_of(&self, node: &Node) -> Option<&OverrideSource> {
        let source = self.source(node.position);
        source.filter(|_| node.position.column != INTERMEDIATE)
    }

    /// Returns the file and position, or the override that a position refers to.
    pub(super) fn location(&self, position: Position) -> FaultLocation {
        match self.source(position) {
            Some(source) => FaultLocation::Override(source.clone()),
            None => FaultLocation::File {
                file: self.file.clone(),
                position,
            },
        }
    }

    pub(super) fn fault(&self, fault: Fault) -> ConfigFault {
        ConfigFault {
            location: self.location(fault.position),
            message: fault.message,
        }
    }
}
