//! The configuration of the service: one YAML file, overridden by the environment and by
//! flags, and validated as a whole into types that cannot hold invalid values.

mod checked;
mod deployment;
mod effective;
mod filters;
mod gateway;
mod history;
mod jwt;
mod listen;
mod mongo_url;
mod origins;
mod overrides;
mod paths;
mod raw;
mod redact;
pub mod rule_file;
mod rules;
mod secrets;
mod section;
mod settings;
mod sources;
mod store;
mod tree;
mod url;
mod warnings;

pub use checked::Config;
pub use deployment::Deployment;
pub use effective::effective_yaml;
pub use filters::Filter;
pub use gateway::{Gateway, Llm, Route};
pub use history::History;
pub use jwt::{Jwt, JwtKeys};
pub use listen::{Endpoint, Listen, Tls};
pub use mongo_url::MongoUrl;
pub use origins::{ConfigFault, FaultLocation, OverrideSource};
pub use overrides::Overrides;
pub use paths::PathPatterns;
pub use raw::{ConfigError, RawConfig};
pub use rules::{DEFAULT_POLL, HttpRulesConfig, MongoRulesConfig, MongoUrlSource, Rules};
pub use secrets::{Secret, SecretError, Secrets};
pub use settings::{Admin, CallLimits, Keys, LogFormat, Shutdown, Telemetry};
pub use sources::{Field, FieldSources, Sources};
pub use store::{Redis, RedisTls, Store};
pub(crate) use tree::{child, child_mut};
pub use url::{HttpUrl, RedisUrl};
pub use warnings::{config_warnings, source_warnings};
