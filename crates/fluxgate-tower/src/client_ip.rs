//! Whose request it is, where proxies stand between.

mod address;
mod forwarded;

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use smallvec::SmallVec;

use crate::head::RequestHead;

/// Where proxies say whom they forward for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientIpSource {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded`, of RFC 7239.
    Forwarded,
    /// Addresses in another header, in the form of `X-Forwarded-For`; its name in
    /// lower case.
    Header(Box<str>),
}

impl ClientIpSource {
    /// What the header of this name, in whatever case, is read as.
    pub fn header(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        match &*name {
            "x-forwarded-for" => Self::XForwardedFor,
            "forwarded" => Self::Forwarded,
            _ => Self::Header(name.into()),
        }
    }

    /// The name of the header, in lower case.
    pub fn header_name(&self) -> &str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
            Self::Header(name) => name,
        }
    }
}

/// Whose word about the client's address is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Box<[IpNet]>);

impl TrustedProxies {
    /// Everybody in these networks.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self(networks.into_iter().map(canonical).collect())
    }

    /// Whether the word of this peer is taken.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.contains(peer.to_canonical())
    }

    /// Whether this address, which is canonical, is one of them.
    fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The client's address. It is the peer's, unless the peer is trusted: then
    /// the header is walked from right to left, past those who are trusted too,
    /// to the first who is not. What is no address ends the walk at the last
    /// that was one.
    pub fn client_ip(
        &self,
        peer: Option<IpAddr>,
        source: &ClientIpSource,
        head: &impl RequestHead,
    ) -> Option<IpAddr> {
        let peer = peer?.to_canonical();
        if !self.contains(peer) {
            return Some(peer);
        }
        Some(self.forwarded_client_ip(source, head).unwrap_or(peer))
    }

    /// The client's address by the word of a peer that is trusted, whoever it is.
    /// `None` if it says nothing of it.
    pub fn forwarded_client_ip(
        &self,
        source: &ClientIpSource,
        head: &impl RequestHead,
    ) -> Option<IpAddr> {
        let lines: SmallVec<[&[u8]; 4]> = head.header_lines(source.header_name()).collect();
        let lines = lines.iter().rev();
        match source {
            ClientIpSource::Forwarded => {
                self.walk(lines.flat_map(|line| forwarded::from_right(line)))
            }
            ClientIpSource::XForwardedFor | ClientIpSource::Header(_) => {
                self.walk(lines.flat_map(|line| address::from_right(line)))
            }
        }
    }

    /// From the right; `None` is something that is no address.
    fn walk(&self, hops: impl Iterator<Item = Option<IpAddr>>) -> Option<IpAddr> {
        let mut last = None;
        for hop in hops {
            let Some(hop) = hop else {
                break;
            };
            last = Some(hop);
            if !self.contains(hop) {
                break;
            }
        }
        last
    }
}

/// A network of IPv4-mapped addresses is one of IPv4, as its addresses are.
fn canonical(network: IpNet) -> IpNet {
    const MAPPED_BITS: u8 = 96;
    let IpNet::V6(mapped) = network else {
        return network;
    };
    let v4 = mapped.addr().to_ipv4_mapped();
    let bits = mapped.prefix_len().checked_sub(MAPPED_BITS);
    let v4 = v4
        .zip(bits)
        .and_then(|(v4, bits)| Ipv4Net::new(v4, bits).ok());
    v4.map_or(network, IpNet::V4)
}
