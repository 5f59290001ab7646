//! Charges in some slots while other slots are still to decide.

use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::store::Checks;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::parts::Part;
use crate::codec::{Answer, Request};
use crate::decider::Decider;

/// How long an undo may take. The deadline of the request does not matter, for it
/// may have passed.
const UNDO_TIMEOUT: Duration = Duration::from_millis(500);

/// Charges of a request that is not decided yet. Undoes them when dropped, since
/// the caller may give up before the request is decided.
pub(super) struct PendingCharges<'p, 'r> {
    decider: &'p Arc<Decider>,
    parts: Vec<(&'p Part, Checks<'r>, Answer)>,
}

/// How the effect of a part is undone.
enum Undo {
    /// Its charges, in a slot, and the record of its hold.
    Charges(u16, Box<Request>),
    /// The record of its hold alone, at this key.
    Record(Vec<u8>),
}

impl<'p, 'r> PendingCharges<'p, 'r> {
    pub(super) fn new(decider: &'p Arc<Decider>) -> Self {
        let parts = Vec::new();
        Self { decider, parts }
    }

    pub(super) fn push(&mut self, part: &'p Part, checks: Checks<'r>, answer: Answer) {
        self.parts.push((part, checks, answer));
    }

    /// Returns the charged parts, each with the script's answer.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&'p Part, &Answer)> {
        self.parts.iter().map(|(part, _, answer)| (*part, answer))
    }

    /// Makes the charges final: the request has passed.
    pub(super) fn keep(mut self) {
        for (_, checks, _) in self.parts.drain(..) {
            self.decider.record_charge(&self.decider.charge_of(&checks));
        }
    }

    /// Undoes all charges, and waits for that until the deadline.
    pub(super) async fn undo(&mut self, deadline: Instant) {
        if let Some(task) = self.start_undo() {
            // After the deadline it goes on in the background.
            let _ = timeout_at(deadline, task).await;
        }
    }

    fn start_undo(&mut self) -> Option<JoinHandle<()>> {
        let decider = self.decider;
        let undos = self.parts.drain(..).filter_map(|(part, checks, answer)| {
            let undo = Request::undo(&checks, &answer, &decider.naming, part.hold.as_ref());
            let undo = match (undo.ok()?, &part.hold) {
                (Some(undo), _) => Undo::Charges(part.slot, Box::new(undo)),
                // Everything is charged in any case, and stays, but there is no hold.
                (None, Some(hold)) => Undo::Record(hold.key.clone()),
                (None, None) => return None,
            };
            Some((undo, decider.charge_of(&checks)))
        });
        let undos: Vec<_> = undos.collect();
        if undos.is_empty() {
            return None;
        }
        // Without a runtime nothing can be sent, and the charges stay.
        let runtime = Handle::try_current().ok()?;
        let decider = Arc::clone(decider);
        Some(runtime.spawn(async move {
            for (undo, charge) in undos {
                let deadline = Instant::now() + UNDO_TIMEOUT;
                // If it fails, too much stays charged, never too little.
                match undo {
                    Undo::Charges(slot, undo) => {
                        let _ = decider.servers.send(*undo, slot, deadline).await;
                    }
                    Undo::Record(key) => {
                        let _ = decider.servers.unlink(&[key], deadline).await;
                    }
                }
                // Denials that the charge caused may not hold any more.
                decider.record_charge(&charge);
            }
        }))
    }
}

impl Drop for PendingCharges<'_, '_> {
    fn drop(&mut self) {
        self.start_undo();
    }
}
