//! Values by network.

use std::net::IpAddr;

use foldhash::HashMap;

use super::{Family, IpNetwork, numbers};

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
