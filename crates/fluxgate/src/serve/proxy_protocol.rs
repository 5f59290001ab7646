//! The PROXY protocol, versions 1 and 2: load balancers that forward TCP say in a header before the
//! first byte where a connection comes from.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fluxgate_http::TrustedProxies;
use fluxgate_http::server::until_closing;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::telemetry::Telemetry;

/// What version 2 begins with. Version 1 begins with `PROXY `.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const PREFIX_V1: &[u8] = b"PROXY ";
/// The longest header of version 1, with its line end.
const MAX_V1: usize = 107;
/// The longest header of version 2 after its length: far more than load balancers send.
const MAX_V2: usize = 4096;

/// Reads the header of every connection of a listener.
#[derive(Clone, Debug)]
pub(crate) struct ProxyProtocol {
    /// Who may send a header.
    trusted: Arc<TrustedProxies>,
    /// How long the header may take.
    timeout: Duration,
    telemetry: Arc<Telemetry>,
}

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
enum HeaderError {
    #[error("the peer is not in `gateway.trusted_proxies`")]
    Untrusted,
    #[error("the header was not received in time")]
    Late,
    #[error("the connection ended within the header: {0}")]
    Truncated(#[from] io::Error),
    #[error("the header is malformed: {0}")]
    Malformed(&'static str),
}

impl ProxyProtocol {
    /// Returns how the gateway reads headers, if its config says so.
    pub(crate) fn of_gateway(config: &Config, telemetry: &Arc<Telemetry>) -> Option<Self> {
        let gateway = &config.gateway;
        gateway.proxy_protocol.then(|| Self {
            trusted: Arc::new(TrustedProxies::new(gateway.trusted_proxies.iter().copied())),
            timeout: gateway.timeouts.headers,
            telemetry: Arc::clone(telemetry),
        })
    }

    /// Reads the header of a connection and returns the address of the client. Without a valid
    /// header of a trusted peer it returns `None`, and so it does if the service shuts down.
    pub(crate) async fn accept(
        &self,
        stream: &mut TcpStream,
        peer: SocketAddr,
        closing: &CancellationToken,
    ) -> Option<SocketAddr> {
        let read = async {
            if !self.trusted.trusts(peer.ip()) {
                return Err(HeaderError::Untrusted);
            }
            let header = tokio::time::timeout(self.timeout, read_header(stream)).await;
            header.unwrap_or(Err(HeaderError::Late))
        };
        match until_closing(read, closing).await? {
            // A connection of the load balancer itself, such as a health check.
            Ok(None) => Some(peer),
            Ok(source) => source,
            Err(error) => {
                if self.telemetry.record_proxy_failure() {
                    tracing::info!(%error, "a connection has no valid PROXY header");
                }
                None
            }
        }
    }
}

/// Reads a header and nothing after it. Returns the client, if the header names one.
async fn read_header(stream: &mut TcpStream) -> Result<Option<SocketAddr>, HeaderError> {
    let mut start = [0; SIGNATURE.len()];
    let mut filled = 0;
    while filled < start.len() {
        let read = stream.read(&mut start[filled..]).await?;
        if read == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        filled += read;
        // What a client sends that knows of no header is refused at once.
        let is_v1 = PREFIX_V1.iter().zip(&start[..filled]).all(|(a, b)| a == b);
        if !is_v1 && !SIGNATURE.starts_with(&start[..filled]) {
            return Err(HeaderError::Malformed("it has no known signature"));
        }
    }
    if start == *SIGNATURE {
        return read_v2(stream).await;
    }
    let mut line = start.to_vec();
    read_line(stream, &mut line).await?;
    parse_v1(&line)
}

/// Reads up to the first line feed.
async fn read_line(stream: &mut TcpStream, line: &mut Vec<u8>) -> Result<(), HeaderError> {
    while line.last() != Some(&b'\n') {
        let mut peeked = [0; MAX_V1];
        let room = MAX_V1 - line.len();
        if room == 0 {
            return Err(HeaderError::Malformed("the line is too long"));
        }
        let count = stream.peek(&mut peeked[..room]).await?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let end = peeked[..count].iter().position(|byte| *byte == b'\n');
        // What follows the line belongs to the client.
        let length = end.map_or(count, |end| end + 1);
        let before = line.len();
        line.resize(before + length, 0);
        stream.read_exact(&mut line[before..]).await?;
    }
    Ok(())
}

/// Parses `PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n`.
fn parse_v1(line: &[u8]) -> Result<Option<SocketAddr>, HeaderError> {
    let malformed = HeaderError::Malformed;
    let text = std::str::from_utf8(line).map_err(|_| malformed("it is not ASCII"))?;
    let text = text.strip_suffix("\r\n");
    let text = text.ok_or(malformed("the line does not end with CR and LF"))?;
    let mut words = text.split(' ').skip(1);
    let family = words.next().unwrap_or_default();
    if family == "UNKNOWN" {
        return Ok(None);
    }
    let mut address = || -> Option<IpAddr> {
        let word = words.next()?;
        match family {
            "TCP4" => word.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            "TCP6" => word.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    let (source, destination) = (address(), address());
    let mut port = || {
        let word = words.next()?;
        let is_plain = word == "0" || !word.starts_with(['0', '+']);
        word.parse::<u16>().ok().filter(|_| is_plain)
    };
    let (source_port, destination_port) = (port(), port());
    match (source, source_port, words.next()) {
        (Some(ip), Some(port), None) if destination.is_some() && destination_port.is_some() => {
            Ok(Some(SocketAddr::new(ip, port)))
        }
        _ => Err(malformed("it has no two addresses and ports")),
    }
}

async fn read_v2(stream: &mut TcpStream) -> Result<Option<SocketAddr>, HeaderError> {
    let mut fields = [0; 4];
    stream.read_exact(&mut fields).await?;
    let [command, family, high, low] = fields;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_V2 {
        return Err(HeaderError::Malformed("it is too long"));
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    parse_v2(command, family, &rest)
}

/// Parses what follows the signature. Extensions after the addresses are ignored.
fn parse_v2(command: u8, family: u8, rest: &[u8]) -> Result<Option<SocketAddr>, HeaderError> {
    const LOCAL: u8 = 0x20;
    const PROXY: u8 = 0x21;
    const UNSPECIFIED: u8 = 0x00;
    const TCP4: u8 = 0x11;
    const TCP6: u8 = 0x21;
    let short = HeaderError::Malformed("it is too short for its addresses");
    match (command, family) {
        (LOCAL, _) | (PROXY, UNSPECIFIED) => Ok(None),
        (PROXY, TCP4) => {
            let Some((addresses, _)) = rest.split_first_chunk::<12>() else {
                return Err(short);
            };
            let [a, b, c, d, _, _, _, _, high, low, _, _] = *addresses;
            let port = u16::from_be_bytes([high, low]);
            Ok(Some(SocketAddr::new([a, b, c, d].into(), port)))
        }
        (PROXY, TCP6) => {
            let Some((addresses, _)) = rest.split_first_chunk::<36>() else {
                return Err(short);
            };
            let mut source = [0; 16];
            source.copy_from_slice(&addresses[..16]);
            let port = u16::from_be_bytes([addresses[32], addresses[33]]);
            Ok(Some(SocketAddr::new(Ipv6Addr::from(source).into(), port)))
        }
        (PROXY, _) => Err(HeaderError::Malformed("it is not about TCP")),
        _ => Err(HeaderError::Malformed("unknown version or command")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v1(line: &str) -> Result<Option<String>, String> {
        let parsed = parse_v1(line.as_bytes());
        parsed
            .map(|source| source.map(|it| it.to_string()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn version_1_names_the_client() {
        for (line, source) in [
            (
                "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n",
                Some("192.0.2.1:56324"),
            ),
            (
                "PROXY TCP6 2001:db8::1 ::1 0 65535\r\n",
                Some("[2001:db8::1]:0"),
            ),
            ("PROXY UNKNOWN\r\n", None),
            ("PROXY UNKNOWN ffff::1 ::1 1 2\r\n", None),
        ] {
            assert_eq!(v1(line), Ok(source.map(str::to_owned)), "{line}");
        }
        for line in [
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443 \r\n",
            "PROXY TCP4  192.0.2.1 192.0.2.2 56324 443\r\n",
            "PROXY TCP4 192.0.2.1 x 56324 443\r\n",
            "PROXY TCP4 2001:db8::1 ::1 1 2\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 65536 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +1 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 01 443\r\n",
            "PROXY UDP4 192.0.2.1 192.0.2.2 1 443\r\n",
            "PROXY \r\n",
        ] {
            assert!(v1(line).is_err(), "{line}");
        }
    }

    #[test]
    fn version_2_names_the_client() {
        let tcp4 = [192, 0, 2, 1, 192, 0, 2, 2, 0x12, 0x34, 0, 80];
        let source = parse_v2(0x21, 0x11, &tcp4).unwrap().unwrap();
        assert_eq!(source.to_string(), "192.0.2.1:4660");
        // An extension follows.
        assert!(parse_v2(0x21, 0x11, &[&tcp4[..], &[3, 0, 1, 9]].concat()).is_ok());
        assert!(parse_v2(0x21, 0x11, &tcp4[..11]).is_err());
        let mut tcp6 = [0; 36];
        (tcp6[15], tcp6[33]) = (1, 9);
        let source = parse_v2(0x21, 0x21, &tcp6).unwrap().unwrap();
        assert_eq!(source.to_string(), "[::1]:9");
        assert!(parse_v2(0x21, 0x21, &tcp6[..35]).is_err());
        for (command, family) in [(0x20, 0x11), (0x20, 0xff), (0x21, 0)] {
            assert!(matches!(parse_v2(command, family, &[]), Ok(None)));
        }
        for (command, family) in [(0x21, 0x12), (0x21, 0x31), (0x22, 0x11), (0x11, 0x11)] {
            assert!(parse_v2(command, family, &[0; 216]).is_err());
        }
    }
}
