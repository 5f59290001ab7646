//! The error that ends a command, with its exit code.

use std::fmt;

use crate::config::rule_file::RuleFileError;
use crate::config::{ConfigError, RawConfig, SecretError};

/// The exit codes, after `sysexits.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// A difference, as in `diff`: not a failure, but not the same.
    Different = 1,
    /// Bad input data.
    Data = 65,
    /// A file that cannot be read.
    NoInput = 66,
    /// An address that cannot be opened, or a service that does not answer.
    Unavailable = 69,
    /// The system refuses what every process needs.
    System = 71,
    /// An error while writing.
    Io = 74,
    /// A request that was denied, or a rule set that another writer changed: a later try may
    /// succeed.
    TryAgain = 75,
    /// A token that is missing or not sufficient.
    NoPermission = 77,
    /// Bad rules or a bad config.
    Config = 78,
}

/// The error that ends a command: its message and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    /// The config field that the message is about.
    field: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self {
            exit,
            message: message.to_string(),
            field: None,
        }
    }

    /// Creates a failure because of the value of a config field, which the message names.
    pub(crate) fn of_field(
        exit: Exit,
        field: impl Into<String>,
        message: impl fmt::Display,
    ) -> Self {
        Self {
            field: Some(field.into()),
            ..Self::new(exit, message)
        }
    }

    /// Puts the place of the field, if there is one, before the message.
    pub(crate) fn located_in(mut self, config: &RawConfig) -> Self {
        let field = self.field.as_deref();
        if let Some(location) = field.and_then(|field| config.location(field)) {
            self.message = format!("{location}: {}", self.message);
        }
        self
    }
}

impl From<SecretError> for Failure {
    fn from(error: SecretError) -> Self {
        Self::of_field(Exit::Config, error.field.clone(), error)
    }
}

impl From<RuleFileError> for Failure {
    fn from(error: RuleFileError) -> Self {
        let exit = match error {
            RuleFileError::Unreadable { .. } => Exit::NoInput,
            RuleFileError::Invalid { .. } => Exit::Config,
        };
        Self::new(exit, error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::File(error) => error.into(),
            ConfigError::Invalid(_) => Self::new(Exit::Config, error),
        }
    }
}
