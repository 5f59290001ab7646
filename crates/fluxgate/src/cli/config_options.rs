//! The options that say where the configuration comes from.

use std::path::PathBuf;

use crate::config::{ConfigError, Overrides, RawConfig};

/// Where the configuration comes from, if the command has a name.
#[derive(Debug, clap::Args)]
pub(super) struct ConfigArguments {
    #[command(flatten)]
    options: ConfigOptions,
    /// The config file, as with `--config`
    // Not an option of the bare `fluxgate`, where a misspelt command would be a file.
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
}

impl ConfigArguments {
    pub(super) fn options(&self) -> ConfigOptions {
        let Self { options, file } = self;
        ConfigOptions {
            config: options.config.as_ref().or(file.as_ref()).cloned(),
            set: options.set.clone(),
        }
    }
}

/// Where the configuration comes from.
#[derive(Debug, clap::Args)]
pub(super) struct ConfigOptions {
    /// The config file (default: the built-in demo)
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Override a value of the file and the environment, such as
    /// `store.redis.deadline=20ms` (repeatable)
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
}

impl ConfigOptions {
    pub(super) fn overrides(&self) -> Overrides {
        Overrides::from_env(std::env::vars_os()).and_flags(&self.set)
    }

    pub(super) fn load(&self) -> Result<RawConfig, ConfigError> {
        RawConfig::load(self.config.as_deref(), &self.overrides())
    }
}
