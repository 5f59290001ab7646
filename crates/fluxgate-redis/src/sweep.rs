//! Forgetting all keys of a rule, in steps that hold nobody up.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::StoreError;
use tokio::time::Instant;

use crate::cluster::{Cluster, slot_of};
use crate::endpoint::unexpected;
use crate::error::CallError;
use crate::node::{Node, Work};
use crate::store::count_of;

/// How many keys the server looks at in one step.
const STEP: usize = 1000;
/// A step is nothing that a request waits for.
const STEP_TIMEOUT: Duration = Duration::from_secs(1);

/// Unlinks every key of a server that fits the pattern; tells how many. On a
/// cluster a slot may move between the look and the blow, and is followed.
pub(crate) async fn sweep(
    node: &Arc<Node>,
    cluster: Option<&Arc<Cluster>>,
    pattern: &[u8],
) -> Result<u64, StoreError> {
    let mut gone = 0;
    let mut cursor = "0".to_owned();
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(&cursor)
            .arg("MATCH")
            .arg(pattern)
            .arg("COUNT")
            .arg(STEP);
        let reply = node
            .command(&scan, false, Instant::now() + STEP_TIMEOUT)
            .await;
        let reply = reply.map_err(CallError::into_store_error)?;
        let (next, keys): (String, Vec<Vec<u8>>) =
            redis::from_redis_value(reply).map_err(|_| unexpected("SCAN"))?;
        // A node of a cluster takes keys of one slot at a time.
        let mut by_slot: HashMap<u16, Vec<Vec<u8>>> = HashMap::new();
        for key in keys {
            by_slot.entry(slot_of(&key)).or_default().push(key);
        }
        for (slot, keys) in by_slot {
            let mut unlink = redis::cmd("UNLINK");
            unlink.arg(keys);
            let deadline = Instant::now() + STEP_TIMEOUT;
            let reply = match cluster {
                Some(cluster) => {
                    let work = Work::Command(&unlink);
                    cluster.perform(slot, &work, deadline).await?
                }
                None => {
                    let reply = node.command(&unlink, false, deadline).await;
                    reply.map_err(CallError::into_store_error)?
                }
            };
            gone += count_of(&reply)?;
        }
        if next == "0" {
            return Ok(gone);
        }
        cursor = next;
    }
}
