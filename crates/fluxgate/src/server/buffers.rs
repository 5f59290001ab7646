//! Memory for those who have something to do; who waits holds none.

use std::cell::RefCell;

/// How much is read at once.
pub(super) const INPUT: usize = 16 * 1024;
/// How many are kept for the next.
const KEPT: usize = 8;
/// What has grown beyond this is not kept.
const MOST_KEPT: usize = 256 * 1024;

thread_local! {
    static FREE: RefCell<Vec<Buffers>> = const { RefCell::new(Vec::new()) };
}

/// What is read, and what is to be written.
pub(super) struct Buffers {
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
    pub(super) json: Vec<u8>,
}

impl Buffers {
    /// Buffers with nothing to be written.
    pub(super) fn take() -> Self {
        let free = FREE.with_borrow_mut(Vec::pop);
        free.unwrap_or_else(|| Self {
            input: vec![0; INPUT],
            output: Vec::new(),
            json: Vec::new(),
        })
    }

    /// Leaves them to the next.
    pub(super) fn give(mut self) {
        if self.output.capacity() + self.json.capacity() <= MOST_KEPT {
            self.output.clear();
            FREE.with_borrow_mut(|free| {
                if free.len() < KEPT {
                    free.push(self);
                }
            });
        }
    }
}
