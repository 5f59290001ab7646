//! What can go wrong, and what waits to go wrong.

use std::collections::VecDeque;
use std::time::Duration;

/// What a proxy does to all bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Passes them on.
    Pass,
    /// Passes them on so much later, in each direction.
    Delay(Duration),
    /// Takes them and passes none on. A connection made meanwhile never reaches
    /// the server, not even later; one from before has lost those bytes.
    BlackHole,
    /// Breaks new connections as soon as they are made; old ones go on.
    Refuse,
}

/// What a proxy does to one reply. The request has reached the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyFault {
    /// Passes on so many of its bytes and closes the connection.
    Cut(usize),
    /// Loses it. The connection stays open, and later replies come too early.
    Swallow,
    /// Loses it and closes the connection.
    SwallowAndClose,
    /// Sends these bytes, then the reply.
    Inject(Vec<u8>),
    /// Sends these bytes in its place.
    Replace(Vec<u8>),
}

impl ReplyFault {
    /// What becomes of a reply.
    pub(super) fn apply(self, mut reply: Vec<u8>) -> Fate {
        let (bytes, close) = match self {
            Self::Cut(length) => {
                reply.truncate(length);
                (reply, true)
            }
            Self::Swallow => (Vec::new(), false),
            Self::SwallowAndClose => (Vec::new(), true),
            Self::Inject(mut bytes) => {
                bytes.append(&mut reply);
                (bytes, false)
            }
            Self::Replace(bytes) => (bytes, false),
        };
        Fate { bytes, close }
    }
}

/// What is sent for a reply, and whether the connection ends then.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) bytes: Vec<u8>,
    pub(super) close: bool,
}

/// A fault that waits for its reply.
#[derive(Debug)]
pub(super) struct Armed {
    /// What the request must have in it; empty is in every request.
    request: Vec<u8>,
    fault: ReplyFault,
}

impl Armed {
    pub(super) fn to_any(fault: ReplyFault) -> Self {
        Self::to_request(&[], fault)
    }

    pub(super) fn to_request(request: &[u8], fault: ReplyFault) -> Self {
        Self {
            request: request.to_vec(),
            fault,
        }
    }

    fn suits(&self, request: Option<&[u8]>) -> bool {
        let size = self.request.len();
        size == 0 || request.is_some_and(|it| it.windows(size).any(|part| part == self.request))
    }
}

/// The faults that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Armory(VecDeque<Armed>);

impl Armory {
    pub(super) fn push(&mut self, armed: Armed) {
        self.0.push_back(armed);
    }

    /// The fault for a reply to `request`, if one waits for it.
    pub(super) fn take(&mut self, request: Option<&[u8]>) -> Option<ReplyFault> {
        let found = self.0.iter().position(|armed| armed.suits(request))?;
        self.0.remove(found).map(|armed| armed.fault)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_waits_for_a_request_that_suits_it() {
        let mut armory = Armory::default();
        armory.push(Armed::to_request(b"EVAL", ReplyFault::Swallow));
        armory.push(Armed::to_any(ReplyFault::Cut(1)));
        armory.push(Armed::to_any(ReplyFault::Cut(2)));
        assert_eq!(armory.take(Some(b"PING")), Some(ReplyFault::Cut(1)));
        assert_eq!(armory.take(Some(b"EVALSHA x")), Some(ReplyFault::Swallow));
        assert_eq!(armory.take(None), Some(ReplyFault::Cut(2)));
        assert_eq!((armory.take(Some(b"EVAL")), armory.len()), (None, 0));
    }

    #[test]
    fn every_fault_does_what_it_says() {
        let fate = |fault: ReplyFault| {
            let Fate { bytes, close } = fault.apply(b"+OK\r\n".to_vec());
            (String::from_utf8(bytes).unwrap(), close)
        };
        assert_eq!(fate(ReplyFault::Cut(2)), ("+O".to_owned(), true));
        assert_eq!(fate(ReplyFault::Swallow), (String::new(), false));
        assert_eq!(fate(ReplyFault::SwallowAndClose), (String::new(), true));
        let injected = fate(ReplyFault::Inject(b"x".to_vec()));
        assert_eq!(injected, ("x+OK\r\n".to_owned(), false));
        let replaced = fate(ReplyFault::Replace(b"x".to_vec()));
        assert_eq!(replaced, ("x".to_owned(), false));
    }
}
