//! What the chunk decoder guarantees for any bytes.

use crate::exchange::ChunkDecoder;

/// The content, how much was read, and whether the end was reached; `None` for an error.
type Decoded = Option<(Vec<u8>, usize, bool)>;

/// The result does not depend on how the bytes are split, and is what a slow decoder finds.
pub fn chunks(bytes: &[u8]) {
    let whole = decode(bytes, usize::MAX);
    for size in [1, 2, 7] {
        assert_eq!(decode(bytes, size), whole, "in pieces of {size}");
    }
    let Some((content, length, has_ended)) = whole else {
        return;
    };
    assert_eq!(
        has_ended,
        decode_slowly(bytes) == Some((content.clone(), length))
    );
    if has_ended {
        assert_eq!(decode(&bytes[..length], 1), Some((content, length, true)));
    } else {
        assert_eq!(length, bytes.len(), "it stopped early");
    }
}

/// Decodes in pieces of this size.
pub(crate) fn decode(bytes: &[u8], size: usize) -> Decoded {
    let (mut decoder, mut content, mut all) = (ChunkDecoder::new(true), Vec::new(), 0);
    for piece in bytes.chunks(size) {
        let read = decoder.read(piece, |bytes| content.extend_from_slice(bytes));
        let read = read.ok()?;
        all += read;
        if read < piece.len() {
            break;
        }
    }
    Some((content, all, decoder.has_ended()))
}

/// Decodes line by line, without limits: the content, and where the body ends. `None` if it
/// does not end.
fn decode_slowly(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut content = Vec::new();
    let mut rest = bytes;
    loop {
        let line = line(&mut rest)?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
        let digits = std::str::from_utf8(&line[..digits.count()]).ok()?;
        let size = usize::from_str_radix(digits, 16).ok()?;
        if size == 0 {
            break;
        }
        content.extend_from_slice(rest.split_off(..size)?);
        if !line_is_empty(&mut rest)? {
            return None;
        }
    }
    while !line_is_empty(&mut rest)? {}
    Some((content, bytes.len() - rest.len()))
}

fn line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let line = rest.split_off(..end + 2)?;
    Some(&line[..end])
}

fn line_is_empty(rest: &mut &[u8]) -> Option<bool> {
    line(rest).map(<[u8]>::is_empty)
}
