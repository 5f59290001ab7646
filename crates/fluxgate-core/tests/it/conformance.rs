//! The suite that every store must pass, on the embedded one.

use fluxgate_core::memory::Retention;
use fluxgate_core::task::ready;
use fluxgate_core::{MemoryStore, conformance};

#[test]
fn the_memory_store_passes_all_vectors() {
    for retention in [Retention::Forever, Retention::UntilFull] {
        let steps = ready(conformance::run(async |clock| {
            MemoryStore::new(clock, 1_000, retention)
        }));
        let steps = steps.unwrap_or_else(|mismatch| panic!("{retention:?}: {mismatch}"));
        assert!(steps > 300, "only {steps} steps were checked");
    }
}
