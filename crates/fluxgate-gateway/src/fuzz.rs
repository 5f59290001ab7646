//! What the parsers guarantee for any bytes.

mod chunks;
mod mcp;
mod request;
mod response;

pub use chunks::chunks;
#[cfg(test)]
pub(crate) use chunks::decode as decode_chunks;
pub use mcp::McpRequest;
pub use request::{request, target};
pub use response::response;

/// The headers of a head that the gateway has written, as another parser reads them. Names
/// are in lower case.
struct WrittenHead<'a>(Vec<(String, &'a [u8])>);

impl<'a> WrittenHead<'a> {
    /// Checks that every line of a head ends in the same way.
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

    /// Returns the values of a header.
    fn all(&self, name: &str) -> Vec<&'a [u8]> {
        let named = self.0.iter().filter(|(known, _)| known == name);
        named.map(|(_, value)| *value).collect()
    }

    /// Returns the declared length; there is at most one.
    fn length(&self) -> Option<u64> {
        let lengths = self.all("content-length");
        assert!(lengths.len() <= 1, "{lengths:?}");
        let length = std::str::from_utf8(lengths.first()?).expect("a length is text");
        Some(length.parse().expect("a length is a number"))
    }

    /// Checks that no header is hop-by-hop.
    fn check_end_to_end(&self) {
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
            assert!(self.all(name).is_empty(), "{name} is forwarded");
        }
    }
}
