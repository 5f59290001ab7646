//! The proofs and models in `spec`. They take long and need Z3 and `tla-checker`.

mod models;
mod proofs;

/// Returns whether this is a long run: `scripts/test --long` installs what these tests need.
fn is_long() -> bool {
    let is_long = std::env::var_os("FLUXGATE_LONG").is_some();
    if !is_long {
        eprintln!("only with FLUXGATE_LONG");
    }
    is_long
}
