//! Networks of IP addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use foldhash::HashMap;
use smallvec::SmallVec;

/// The addresses that begin with the same bits. A bare address is a network of one.
/// IPv4-mapped IPv6 addresses are IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IpNetwork {
    family: Family,
    first: u128,
    /// The number of bits that its addresses share.
    prefix: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Family {
    V4,
    V6,
}

impl Family {
    const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

/// Why a text is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NetworkError {
    #[error("`{0}` is not a network, such as 10.0.0.0/8 or 2001:db8::/32")]
    NotANetwork(String),
    /// The prefix may be too short, and would match too many addresses.
    #[error("`{given}` has bits set beyond its prefix; did you mean {meant}?")]
    BeyondPrefix { given: String, meant: IpNetwork },
}

fn numbers(ip: IpAddr) -> (Family, u128) {
    match ip.to_canonical() {
        IpAddr::V4(ip) => (Family::V4, u32::from(ip).into()),
        IpAddr::V6(ip) => (Family::V6, ip.into()),
    }
}

impl IpNetwork {
    fn last(&self) -> u128 {
        let host_bits = u32::from(self.family.bits() - self.prefix);
        self.first
            | u128::MAX
                .checked_shl(host_bits)
                .map_or(u128::MAX, |mask| !mask)
    }

    /// Returns the first address of the network with this prefix around an address.
    fn first_of(family: Family, address: u128, prefix: u8) -> u128 {
        let host_bits = u32::from(family.bits() - prefix);
        address
            .checked_shr(host_bits)
            .unwrap_or(0)
            .checked_shl(host_bits)
            .unwrap_or(0)
    }

    fn contains(&self, family: Family, address: u128) -> bool {
        self.family == family && self.first <= address && address <= self.last()
    }

    /// Returns whether all addresses of another network are in this one.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        self.prefix <= other.prefix && self.contains(other.family, other.first)
    }
}

impl FromStr for IpNetwork {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let error = || NetworkError::NotANetwork(text.into());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let written_bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => written_bits,
            // No sign, and no zero that a reader could take for octal.
            Some(digits) if !digits.starts_with(['+', '0']) || digits == "0" => {
                digits.parse().map_err(|_| error())?
            }
            Some(_) => return Err(error()),
        };
        if prefix > written_bits {
            return Err(error());
        }
        let shared = match address {
            IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() && prefix < 96 => {
                // More than the mapped addresses.
                (Family::V6, u128::from(ip), prefix)
            }
            _ => {
                let (family, number) = numbers(address);
                (family, number, prefix - (written_bits - family.bits()))
            }
        };
        let (family, number, prefix) = shared;
        let network = Self {
            family,
            first: Self::first_of(family, number, prefix),
            prefix,
        };
        if network.first != number {
            return Err(NetworkError::BeyondPrefix {
                given: text.into(),
                meant: network,
            });
        }
        Ok(network)
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.family {
            Family::V4 => write!(f, "{}/{}", Ipv4Addr::from(self.first as u32), self.prefix),
            Family::V6 => write!(f, "{}/{}", Ipv6Addr::from(self.first), self.prefix),
        }
    }
}

/// Finds the networks that contain an address, among many.
///
/// Two networks are disjoint, or one contains the other. So the first addresses of all
/// networks, and those after the last ones, divide all addresses into ranges that each lie
/// in one innermost network and in those around it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NetworkIndex {
    /// The networks, each once and after those around it.
    networks: Vec<IpNetwork>,
    /// The network around each.
    parents: Vec<Option<u32>>,
    /// The first address of each range, and the innermost network.
    ranges: Vec<(Family, u128, Option<u32>)>,
}

impl NetworkIndex {
    pub(crate) fn new(networks: impl IntoIterator<Item = IpNetwork>) -> Self {
        let mut networks: Vec<_> = networks.into_iter().collect();
        // If two start at the same address, the larger comes first.
        networks.sort_unstable();
        networks.dedup();
        let mut index = Self::default();
        let mut open: Vec<u32> = Vec::new();
        for (number, network) in networks.iter().enumerate() {
            let IpNetwork { family, first, .. } = *network;
            index.close(&mut open, &networks, |outer| !outer.contains(family, first));
            index.parents.push(open.last().copied());
            index.begin_range(family, first, Some(number as u32));
            open.push(number as u32);
        }
        index.close(&mut open, &networks, |_| true);
        index.networks = networks;
        index
    }

    /// Ends the open networks, from the innermost on, as long as they are over.
    fn close(
        &mut self,
        open: &mut Vec<u32>,
        networks: &[IpNetwork],
        is_over: impl Fn(&IpNetwork) -> bool,
    ) {
        while let Some(innermost) = open.last()
            && let network = &networks[*innermost as usize]
            && is_over(network)
        {
            open.pop();
            // The last network of a family may end with the last address.
            let after = network.last().checked_add(1);
            if let Some(after) =
                after.filter(|after| *after >> (network.family.bits() - 1) >> 1 == 0)
            {
                self.begin_range(network.family, after, open.last().copied());
            }
        }
    }

    fn begin_range(&mut self, family: Family, first: u128, innermost: Option<u32>) {
        // A later network at the same address is further in, or follows immediately.
        if let Some(last) = self.ranges.last_mut()
            && (last.0, last.1) == (family, first)
        {
            last.2 = innermost;
            return;
        }
        self.ranges.push((family, first, innermost));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// Returns the number of a network that is in the index.
    pub(crate) fn number_of(&self, network: &IpNetwork) -> Option<u32> {
        let found = self.networks.binary_search(network).ok()?;
        Some(found as u32)
    }

    /// Returns the numbers of all networks that contain an address.
    pub(crate) fn containing(&self, ip: IpAddr) -> SmallVec<[u32; 8]> {
        let mut found = SmallVec::new();
        let mut next = self.innermost(ip);
        while let Some(network) = next {
            found.push(network);
            next = self.parents[network as usize];
        }
        found
    }

    /// Returns whether a network contains an address.
    pub(crate) fn contains(&self, ip: IpAddr) -> bool {
        self.innermost(ip).is_some()
    }

    fn innermost(&self, ip: IpAddr) -> Option<u32> {
        let (family, address) = numbers(ip);
        let after = self
            .ranges
            .partition_point(|(of, first, _)| (*of, *first) <= (family, address));
        let (of, _, innermost) = self.ranges.get(after.checked_sub(1)?)?;
        innermost.filter(|_| *of == family)
    }
}

/// A map from networks to values, searched by an address in them. There is one hash table for
/// each length of prefix, so the cost of a search depends on the number of different lengths (33
/// of IPv4 and 129 of IPv6 at most) and not on the number of networks.
#[derive(Clone, Debug)]
pub(crate) struct PrefixMap<V> {
    tables: Vec<PrefixTable<V>>,
}

#[derive(Clone, Debug)]
struct PrefixTable<V> {
    family: Family,
    prefix: u8,
    /// By the first address of the network.
    values: HashMap<u128, V>,
}

impl<V> Default for PrefixMap<V> {
    fn default() -> Self {
        Self { tables: Vec::new() }
    }
}

impl<V: Default> PrefixMap<V> {
    /// Returns the value of a network, and inserts an empty one if there is none.
    pub(crate) fn get_or_default(&mut self, network: &IpNetwork) -> &mut V {
        let IpNetwork {
            family,
            first,
            prefix,
        } = *network;
        let mut tables = self.tables.iter();
        let known = tables.position(|table| (table.family, table.prefix) == (family, prefix));
        let table = known.unwrap_or_else(|| {
            self.tables.push(PrefixTable {
                family,
                prefix,
                values: HashMap::default(),
            });
            self.tables.len() - 1
        });
        self.tables[table].values.entry(first).or_default()
    }
}

impl<V> PrefixMap<V> {
    /// Calls `found` with the value of every network that contains an address.
    pub(crate) fn for_each_containing(&self, ip: IpAddr, mut found: impl FnMut(&V)) {
        let (family, address) = numbers(ip);
        let tables = self.tables.iter().filter(|table| table.family == family);
        for table in tables {
            let first = IpNetwork::first_of(family, address, table.prefix);
            if let Some(value) = table.values.get(&first) {
                found(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> IpNetwork {
        text.parse().unwrap()
    }

    #[test]
    fn networks_are_written_in_one_way() {
        for (text, written) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
            ("2001:DB8:0::/32", "2001:db8::/32"),
            ("::1", "::1/128"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.1.2.3", "10.1.2.3/32"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::/80", "::/80"),
        ] {
            assert_eq!(network(text).to_string(), written);
        }
        for text in [
            "",
            "/",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "10.0.0/8",
            "::/129",
            "::1/-1",
            "10.0.0.0/8/8",
            " 10.0.0.0/8",
            "fe80::1%eth0",
            "example.com",
        ] {
            let error = text.parse::<IpNetwork>().unwrap_err();
            assert_eq!(error, NetworkError::NotANetwork(text.into()), "{text:?}");
        }
        for (text, meant) in [
            ("10.0.0.1/8", "10.0.0.0/8"),
            ("2001:db8::1/32", "2001:db8::/32"),
            ("::ffff:10.0.0.1/104", "10.0.0.0/8"),
            ("::ffff:0:0/90", "::ffc0:0:0/90"),
        ] {
            let error = text.parse::<IpNetwork>().unwrap_err();
            let message = format!("`{text}` has bits set beyond its prefix; did you mean {meant}?");
            assert_eq!(error.to_string(), message);
        }
    }

    /// All sets of up to four of these networks, against asking each network.
    #[test]
    fn the_index_finds_all_networks_around_an_address() {
        let networks: Vec<_> = [
            "0.0.0.0/0",
            "128.0.0.0/1",
            "10.0.0.0/8",
            "10.0.0.0/9",
            "10.128.0.0/9",
            "10.128.0.0/32",
            "255.255.255.255",
            "::/0",
            "2001:db8::/32",
            "2001:db8::/64",
            "ffff::/16",
            "0.0.0.0",
        ]
        .map(network)
        .into();
        let addresses: Vec<IpAddr> = [
            "0.0.0.0",
            "0.0.0.1",
            "9.255.255.255",
            "10.0.0.0",
            "10.127.255.255",
            "10.128.0.0",
            "10.128.0.1",
            "11.0.0.0",
            "127.255.255.255",
            "128.0.0.0",
            "255.255.255.255",
            "::ffff:10.0.0.1",
            "::",
            "2001:db7:ffff::",
            "2001:db8::1",
            "2001:db8:1::",
            "2001:db9::",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ]
        .map(|text| text.parse().unwrap())
        .into();
        for chosen in 0_u32..1 << networks.len() {
            if chosen.count_ones() > 4 {
                continue;
            }
            let chosen: Vec<_> = (0..networks.len())
                .filter(|number| chosen >> number & 1 == 1)
                .map(|number| networks[number])
                .collect();
            let index = NetworkIndex::new(chosen.iter().copied());
            for ip in &addresses {
                let (family, address) = numbers(*ip);
                let mut expected: Vec<_> = chosen
                    .iter()
                    .filter(|network| network.contains(family, address))
                    .map(|network| index.number_of(network).unwrap())
                    .collect();
                expected.sort_unstable();
                let mut found = index.containing(*ip).to_vec();
                found.sort_unstable();
                assert_eq!(found, expected, "{ip} in {chosen:?}");
                assert_eq!(index.contains(*ip), !expected.is_empty());
            }
        }
    }

    #[test]
    fn an_address_finds_the_values_of_all_networks_around_it() {
        let networks = [
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.2.3",
            "::/0",
            "2001:db8::/32",
            "2001:db8::1",
        ];
        let mut map: PrefixMap<usize> = PrefixMap::default();
        for (number, network) in networks.iter().enumerate() {
            *map.get_or_default(&network.parse().unwrap()) = number;
        }
        for (ip, expected) in [
            ("10.1.2.3", &[0, 1, 2, 3][..]),
            ("::ffff:10.1.2.4", &[0, 1, 2]),
            ("11.0.0.0", &[0]),
            ("255.255.255.255", &[0]),
            ("2001:db8::1", &[4, 5, 6]),
            ("2001:db9::1", &[4]),
        ] {
            let mut found = Vec::new();
            map.for_each_containing(ip.parse().unwrap(), |number| found.push(*number));
            found.sort_unstable();
            assert_eq!(found, expected, "{ip}");
        }
    }
}
