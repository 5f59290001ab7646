//! Where one RESP message ends and the next begins.

/// Bytes that are cut into messages as they come in.
#[derive(Debug, Default)]
pub(super) struct Frames {
    buffer: Vec<u8>,
    /// Once it was something else, it is passed on as it comes.
    foreign: bool,
}

/// A message, or a piece of something that is not RESP.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    /// Sent by the server on its own, in answer to nothing.
    pub(super) push: bool,
}

impl Frames {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
    }

    /// The next whole message.
    pub(super) fn next(&mut self) -> Option<Frame> {
        let length = if self.foreign {
            self.buffer.len()
        } else {
            match measure(&self.buffer) {
                Measure::Whole(length) => length,
                Measure::Part => return None,
                Measure::Foreign => {
                    self.foreign = true;
                    self.buffer.len()
                }
            }
        };
        let bytes: Vec<u8> = self.buffer.drain(..length).collect();
        let push = !self.foreign && bytes.first() == Some(&b'>');
        (!bytes.is_empty()).then_some(Frame { bytes, push })
    }

    /// What has no end yet.
    pub(super) fn rest(self) -> Vec<u8> {
        self.buffer
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Measure {
    Whole(usize),
    Part,
    Foreign,
}

/// How long the message is with which `bytes` begin.
fn measure(bytes: &[u8]) -> Measure {
    let mut at = 0;
    // Messages that belong to the first and are not measured yet.
    let mut open: u64 = 1;
    while open > 0 {
        let Some(kind) = bytes.get(at) else {
            return Measure::Part;
        };
        if !b"+-:$*_#,(!=%~>|".contains(kind) {
            return Measure::Foreign;
        }
        let line = &bytes[at + 1..];
        let Some(end) = line.windows(2).position(|pair| pair == b"\r\n") else {
            return Measure::Part;
        };
        at += 1 + end + 2;
        open -= 1;
        // Nothing for a length below zero, which stands for null.
        let number = || {
            let text = std::str::from_utf8(&line[..end]).ok()?;
            text.parse::<i64>().ok().map(|number| number.max(-1))
        };
        match kind {
            b'$' | b'!' | b'=' => match number() {
                None => return Measure::Foreign,
                Some(-1) => {}
                Some(length) => at += usize::try_from(length).unwrap_or(0) + 2,
            },
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let Some(count) = number() else {
                    return Measure::Foreign;
                };
                let each = if b"%|".contains(kind) { 2 } else { 1 };
                open = open.saturating_add(u64::try_from(count).unwrap_or(0).saturating_mul(each));
                // Attributes stand before the message to which they belong.
                open += u64::from(*kind == b'|');
            }
            _ => {}
        }
    }
    if at > bytes.len() {
        return Measure::Part;
    }
    Measure::Whole(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_ends_where_it_ends_however_it_is_cut() {
        let messages = [
            "+OK\r\n",
            "$-1\r\n",
            "$4\r\n\r\n\r\n\r\n",
            "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
            "*0\r\n",
            "*-1\r\n",
            "%1\r\n+a\r\n,1.5\r\n",
            "|1\r\n+ttl\r\n:1\r\n#t\r\n",
            ">2\r\n+message\r\n_\r\n",
            "=5\r\ntxt:x\r\n",
        ];
        let wire = messages.concat();
        for size in 1..wire.len() {
            let mut frames = Frames::default();
            let mut found = Vec::new();
            for piece in wire.as_bytes().chunks(size) {
                frames.add(piece);
                while let Some(frame) = frames.next() {
                    assert_eq!(frame.push, frame.bytes.starts_with(b">"));
                    found.push(String::from_utf8(frame.bytes).unwrap());
                }
            }
            assert_eq!(found, messages, "in pieces of {size}");
            assert_eq!(frames.rest(), b"");
        }
    }

    #[test]
    fn what_is_not_resp_comes_as_it_came() {
        let mut frames = Frames::default();
        for piece in ["HTTP/1.1 200 OK\r\n", "+OK"] {
            frames.add(piece.as_bytes());
            let bytes = piece.as_bytes().to_vec();
            assert_eq!(frames.next(), Some(Frame { bytes, push: false }));
            assert_eq!(frames.next(), None);
        }
    }
}
