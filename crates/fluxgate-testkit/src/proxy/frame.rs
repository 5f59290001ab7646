//! Splits a stream into RESP messages.

/// Splits received bytes into messages.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    buffer: Vec<u8>,
    /// Whether the stream is not RESP, so that bytes are forwarded as they arrive.
    foreign: bool,
}

/// A message, or the bytes of one read if the stream is not RESP.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    /// Whether it is a push of RESP3, which is not a reply.
    pub(super) push: bool,
}

impl FrameReader {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
    }

    /// Returns the next complete message.
    pub(super) fn next(&mut self) -> Option<Frame> {
        let length = if self.foreign {
            self.buffer.len()
        } else {
            match message_length(&self.buffer) {
                Length::Complete(length) => length,
                Length::Partial => return None,
                Length::Foreign => {
                    self.foreign = true;
                    self.buffer.len()
                }
            }
        };
        let bytes: Vec<u8> = self.buffer.drain(..length).collect();
        let push = !self.foreign && bytes.first() == Some(&b'>');
        (!bytes.is_empty()).then_some(Frame { bytes, push })
    }

    /// Returns the incomplete message.
    pub(super) fn rest(self) -> Vec<u8> {
        self.buffer
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Length {
    Complete(usize),
    Partial,
    Foreign,
}

/// Returns the length of the first message in `bytes`.
fn message_length(bytes: &[u8]) -> Length {
    let mut at = 0;
    // The number of elements that are not parsed yet.
    let mut open: u64 = 1;
    while open > 0 {
        let Some(kind) = bytes.get(at) else {
            return Length::Partial;
        };
        if !b"+-:$*_#,(!=%~>|".contains(kind) {
            return Length::Foreign;
        }
        let line = &bytes[at + 1..];
        let Some(end) = line.windows(2).position(|pair| pair == b"\r\n") else {
            return Length::Partial;
        };
        at += 1 + end + 2;
        open -= 1;
        // A negative length means null.
        let number = || {
            let text = std::str::from_utf8(&line[..end]).ok()?;
            text.parse::<i64>().ok().map(|number| number.max(-1))
        };
        match kind {
            b'$' | b'!' | b'=' => match number() {
                None => return Length::Foreign,
                Some(-1) => {}
                Some(length) => at += usize::try_from(length).unwrap_or(0) + 2,
            },
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let Some(count) = number() else {
                    return Length::Foreign;
                };
                let each = if b"%|".contains(kind) { 2 } else { 1 };
                open = open.saturating_add(u64::try_from(count).unwrap_or(0).saturating_mul(each));
                // Attributes precede the message that they belong to.
                open += u64::from(*kind == b'|');
            }
            _ => {}
        }
    }
    if at > bytes.len() {
        return Length::Partial;
    }
    Length::Complete(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_however_the_stream_is_split() {
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
            let mut frames = FrameReader::default();
            let mut found = Vec::new();
            for chunk in wire.as_bytes().chunks(size) {
                frames.add(chunk);
                while let Some(frame) = frames.next() {
                    assert_eq!(frame.push, frame.bytes.starts_with(b">"));
                    found.push(String::from_utf8(frame.bytes).unwrap());
                }
            }
            assert_eq!(found, messages, "in chunks of {size}");
            assert_eq!(frames.rest(), b"");
        }
    }

    #[test]
    fn other_protocols_are_not_split() {
        let mut frames = FrameReader::default();
        for chunk in ["HTTP/1.1 200 OK\r\n", "+OK"] {
            frames.add(chunk.as_bytes());
            let bytes = chunk.as_bytes().to_vec();
            assert_eq!(frames.next(), Some(Frame { bytes, push: false }));
            assert_eq!(frames.next(), None);
        }
    }
}
