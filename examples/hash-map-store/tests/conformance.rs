//! The suite that every store must pass.

use fluxgate_core::conformance;
use hash_map_store::HashMapStore;

#[tokio::test(flavor = "current_thread")]
async fn the_store_passes_every_vector() {
    let steps = conformance::run(async |clock| HashMapStore::new(clock)).await;
    assert!(steps.unwrap() > 1_000);
}
