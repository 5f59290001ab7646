//! `fluxgate simulate` on JSON lines.

mod algorithms;
mod bad_lines;
mod fields;
mod random;
mod rules;
mod streams;
