//! What a request has taken in some slots of a cluster while others are asked.

use std::sync::Arc;

use fluxgate_core::Checks;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::codec::{Answer, Request};
use crate::parts::Part;
use crate::store::Inner;

/// Charges of a request that is not decided yet. Dropped, it gives them back:
/// who asked may be gone before the request is decided.
pub(crate) struct Taken<'p, 'r> {
    store: &'p Arc<Inner>,
    parts: Vec<(&'p Part, Checks<'r>, Answer)>,
}

impl<'p, 'r> Taken<'p, 'r> {
    pub(crate) fn new(store: &'p Arc<Inner>) -> Self {
        let parts = Vec::new();
        Self { store, parts }
    }

    pub(crate) fn push(&mut self, part: &'p Part, checks: Checks<'r>, answer: Answer) {
        self.parts.push((part, checks, answer));
    }

    /// What was taken, and what was found there.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&'p Part, &Answer)> {
        self.parts.iter().map(|(part, _, answer)| (*part, answer))
    }

    /// The request has passed: what it took stays taken.
    pub(crate) fn keep(mut self) {
        for (_, checks, _) in self.parts.drain(..) {
            self.store.note_charge(&self.store.charge_of(&checks));
        }
    }

    /// Gives everything back, once, and waits for that if there is time.
    pub(crate) async fn give_back(&mut self, deadline: Instant) {
        if let Some(task) = self.start_giving_back() {
            // It goes on by itself when it is not waited for any more.
            let _ = timeout_at(deadline, task).await;
        }
    }

    fn start_giving_back(&mut self) -> Option<JoinHandle<()>> {
        let naming = &self.store.naming;
        let undos = self.parts.drain(..).filter_map(|(part, checks, answer)| {
            let undo = Request::undo(&checks, &answer, naming);
            let charge = self.store.charge_of(&checks);
            Some((part.slot, undo.ok().flatten()?, charge))
        });
        let undos: Vec<_> = undos.collect();
        if undos.is_empty() {
            return None;
        }
        // Without a runtime nobody can be asked; it stays charged.
        let runtime = Handle::try_current().ok()?;
        let store = Arc::clone(self.store);
        Some(runtime.spawn(async move {
            for (slot, undo, charge) in undos {
                store.undo(undo, charge, slot).await;
            }
        }))
    }
}

impl Drop for Taken<'_, '_> {
    fn drop(&mut self) {
        self.start_giving_back();
    }
}
