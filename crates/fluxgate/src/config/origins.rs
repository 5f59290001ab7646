//! Where the values of a configuration come from.

use std::fmt;

use fluxgate_core::yaml::{Fault, Node, Position};

/// The column of a mapping that no override names, made on the way to what one names.
pub(super) const INTERMEDIATE: usize = 2;

/// The origin of an override.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// An environment variable, by its name.
    Environment(String),
    /// A `--set` flag, by its path.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Escaped: names may hold line ends, and a fault is one line.
        match self {
            Self::Environment(name) => write!(f, "environment {}", name.escape_debug()),
            Self::Flag(path) => write!(f, "--set {}", path.escape_debug()),
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A file.
    File {
        /// Its name.
        file: String,
        /// Where in it.
        position: Position,
    },
    /// The environment or a flag.
    Override(Source),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, position } => {
                write!(f, "{file}:{}:{}", position.line, position.column)
            }
            Self::Override(source) => write!(f, "{source}"),
        }
    }
}

/// One fault, and where its value comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigFault {
    /// Where the value comes from.
    pub place: Place,
    /// What is wrong, and what is allowed.
    pub message: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Maps lines to their origin: first those of the file, then one for each override, as if
/// it were written below the file.
#[derive(Clone, Debug)]
pub(super) struct Origins {
    file: String,
    lines: usize,
    overrides: Vec<Source>,
}

impl Origins {
    /// Creates the origins of a config file without overrides.
    pub(super) fn new(file: &str, text: &str) -> Self {
        Self {
            file: file.into(),
            // In YAML, a carriage return alone ends a line, too.
            lines: text.split(['\n', '\r']).count() + 1,
            overrides: Vec::new(),
        }
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// Adds an override and returns its position.
    pub(super) fn add(&mut self, source: Source) -> Position {
        self.overrides.push(source);
        Position {
            line: self.lines + self.overrides.len(),
            column: 1,
        }
    }

    /// Returns the override at a position.
    fn source(&self, at: Position) -> Option<&Source> {
        let index = at.line.checked_sub(self.lines + 1)?;
        self.overrides.get(index)
    }

    /// Returns the override that set a value, not only made room for one.
    pub(super) fn source_of(&self, node: &Node) -> Option<&Source> {
        let source = self.source(node.position);
        source.filter(|_| node.position.column != INTERMEDIATE)
    }

    pub(super) fn fault(&self, fault: Fault) -> ConfigFault {
        let place = match self.source(fault.position) {
            Some(source) => Place::Override(source.clone()),
            None => Place::File {
                file: self.file.clone(),
                position: fault.position,
            },
        };
        ConfigFault {
            place,
            message: fault.message,
        }
    }
}
