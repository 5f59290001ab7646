//! Bodies of any size in bounded memory.

mod backpressure;
mod memory;
mod size_limit;
