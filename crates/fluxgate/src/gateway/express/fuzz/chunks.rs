//! What the reading of chunks promises of any bytes.

use super::super::chunks::{BadChunk, Chunks};

/// The content, how much was read, and whether the end was reached.
pub(in crate::gateway::express) type Read = Result<(Vec<u8>, usize, bool), BadChunk>;

/// The same is read however the bytes are cut, and what is read to its end is what
/// a slow reader finds.
pub(crate) fn chunks(bytes: &[u8]) {
    let whole = read(bytes, usize::MAX);
    for size in [1, 2, 7] {
        assert_eq!(read(bytes, size), whole, "in pieces of {size}");
    }
    let Ok((content, length, has_ended)) = whole else {
        return;
    };
    assert_eq!(has_ended, slowly(bytes) == Some((content.clone(), length)));
    match has_ended {
        true => assert_eq!(read(&bytes[..length], 1), Ok((content, length, true))),
        false => assert_eq!(length, bytes.len(), "it could have read on"),
    }
}

/// In pieces of this size.
pub(in crate::gateway::express) fn read(bytes: &[u8], size: usize) -> Read {
    let (mut chunks, mut content, mut all) = (Chunks::new(), Vec::new(), 0);
    for piece in bytes.chunks(size) {
        let read = chunks.read(piece, |bytes| content.extend_from_slice(bytes))?;
        all += read;
        if read < piece.len() {
            break;
        }
    }
    Ok((content, all, chunks.has_ended()))
}

/// Line by line, without bounds: the content, and where it all ends. `None` if it
/// does not end.
fn slowly(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
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
