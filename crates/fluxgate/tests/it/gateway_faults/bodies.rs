//! Bodies of any size, in little memory.

mod bounded;
mod flat;
mod held_up;
