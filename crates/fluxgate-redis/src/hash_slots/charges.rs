//! Charges in some hash slots while others have not decided yet.

use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::store::Checks;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::parts::RequestPart;
use crate::codec::{Answer, Request};
use crate::decider::Decider;

/// How long an undo may take, even after the deadline of the request.
const UNDO_TIMEOUT: Duration = Duration::from_millis(500);

/// Charges of a request that is not decided yet. They are undone on drop, since the caller may
/// drop the request before it is decided.
pub(super) struct PendingCharges<'p, 'r> {
    decider: &'p Arc<Decider>,
    parts: Vec<(&'p RequestPart, Checks<'r>, Answer)>,
}

/// Undoes the effects of a part.
enum PartUndo {
    /// Undoes the charges, and deletes the record of the hold.
    Charges(Box<Request>),
    /// Deletes only the record of the hold, at this key.
    Record(Vec<u8>),
}

impl<'p, 'r> PendingCharges<'p, 'r> {
    pub(super) fn new(decider: &'p Arc<Decider>) -> Self {
        let parts = Vec::new();
        Self { decider, parts }
    }

    pub(super) fn push(&mut self, part: &'p RequestPart, checks: Checks<'r>, answer: Answer) {
        self.parts.push((part, checks, answer));
    }

    /// Returns the charged parts, each with the script's answer.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&'p RequestPart, &Answer)> {
        self.parts.iter().map(|(part, _, answer)| (*part, answer))
    }

    /// Makes the charges final: the request has passed.
    pub(super) fn keep(mut self) {
        for (_, checks, _) in self.parts.drain(..) {
            self.decider.record_charge(&self.decider.charge_of(&checks));
        }
    }

    /// Undoes all charges. Waits until the deadline; after that, the undo goes on in the
    /// background.
    pub(super) async fn undo(&mut self, deadline: Instant) {
        if let Some(task) = self.start_undo() {
            let _ = timeout_at(deadline, task).await;
        }
    }

    fn start_undo(&mut self) -> Option<JoinHandle<()>> {
        let decider = self.decider;
        let undos = self.parts.drain(..).filter_map(|(part, checks, answer)| {
            let request = Request::undo(&checks, &answer, &decider.naming, part.hold.as_ref());
            let undo = match (request.ok()?, &part.hold) {
                (Some(request), _) => PartUndo::Charges(Box::new(request)),
                // All its charges are made always, so they stay, but there is no hold.
                (None, Some(hold)) => PartUndo::Record(hold.key.clone()),
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
                    PartUndo::Charges(request) => {
                        let _ = decider.servers.send(*request, deadline).await;
                    }
                    PartUndo::Record(key) => {
                        let _ = decider.servers.unlink(&[key], deadline).await;
                    }
                }
                // Denials that the charge caused may no longer hold.
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
