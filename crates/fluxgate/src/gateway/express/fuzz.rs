//! What the readers of the express way promise of any bytes.

mod answer;
mod chunks;
mod request;

pub(crate) use answer::answer;
pub(crate) use chunks::chunks;
#[cfg(test)]
pub(super) use chunks::read as read_chunks;
pub(crate) use request::{request, target};

/// The headers of what we have written, as another reader sees them; names in lower
/// case.
struct Seen<'a>(Vec<(String, &'a [u8])>);

impl<'a> Seen<'a> {
    /// Of a whole head, whose lines are all as they should be.
    fn new(head: &'a [u8], headers: &[httparse::Header<'a>]) -> Self {
        let is_lone = |at: usize, byte: u8| match byte {
            b'\r' => head.get(at + 1) != Some(&b'\n'),
            b'\n' => at == 0 || head[at - 1] != b'\r',
            0 => true,
            _ => false,
        };
        let lone = head
            .iter()
            .enumerate()
            .find(|(at, byte)| is_lone(*at, **byte));
        assert_eq!(lone, None, "{}", head.escape_ascii());
        // The first line, the headers, and the end.
        let lines = head.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(lines, headers.len() + 2, "{}", head.escape_ascii());
        let headers = headers.iter();
        Self(
            headers
                .map(|it| (it.name.to_ascii_lowercase(), it.value))
                .collect(),
        )
    }

    /// The values under this name.
    fn all(&self, name: &str) -> Vec<&'a [u8]> {
        let named = self.0.iter().filter(|(known, _)| known == name);
        named.map(|(_, value)| *value).collect()
    }

    /// The length that is told, if one is; no more than one is.
    fn length(&self) -> Option<u64> {
        let told = self.all("content-length");
        assert!(told.len() <= 1, "{told:?}");
        let told = std::str::from_utf8(told.first()?).expect("a length is text");
        Some(told.parse().expect("a length is a number"))
    }

    /// Nothing is told that is about one connection alone.
    fn has_nothing_of_connections(&self) {
        const NAMES: [&str; 9] = [
            "connection",
            "keep-alive",
            "proxy",
            "proxy-authenticate",
            "proxy-authorization",
            "proxy-connection",
            "te",
            "trailer",
            "upgrade",
        ];
        for name in NAMES {
            assert!(self.all(name).is_empty(), "{name} is passed on");
        }
    }
}
