//! `fluxgate simulate`.

mod against;
mod algorithms;
mod bad_lines;
mod combined;
mod fields;
mod random;
mod report;
mod rules;
mod streams;
mod summary;
