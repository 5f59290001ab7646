//! What the binary `fluxgate` is made of.

pub mod cli;
pub mod config;
pub mod rule_file;
mod simulate;
