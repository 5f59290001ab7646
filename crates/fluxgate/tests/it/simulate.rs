//! `fluxgate simulate`.

mod messages;
mod report;
mod streams;
