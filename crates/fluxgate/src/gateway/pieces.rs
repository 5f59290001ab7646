//! A body in pieces so small that it can be seen how much of it the client takes.

use std::sync::Arc;

use bytes::Bytes;
use http_body::Frame;

use super::activity::Activity;

/// As large as a frame of HTTP/2 usually is.
const LARGEST: usize = 16 * 1024;

/// What has come and has not been asked for.
#[derive(Debug)]
pub(super) struct Pieces {
    rest: Bytes,
    activity: Arc<Activity>,
}

impl Pieces {
    pub(super) fn new(activity: Arc<Activity>) -> Self {
        Self {
            rest: Bytes::new(),
            activity,
        }
    }

    /// How much is left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next piece of what is left.
    pub(super) fn next(&mut self) -> Option<Frame<Bytes>> {
        if self.rest.is_empty() {
            return None;
        }
        self.activity.moves();
        let piece = self.rest.split_to(self.rest.len().min(LARGEST));
        Some(Frame::data(piece))
    }

    /// The first piece of a frame. Nothing may be left of the one before it.
    pub(super) fn first(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        self.activity.moves();
        match frame.into_data() {
            Ok(data) if data.len() > LARGEST => {
                self.rest = data;
                self.next().unwrap_or_else(|| Frame::data(Bytes::new()))
            }
            Ok(data) => Frame::data(data),
            Err(other) => other,
        }
    }
}
