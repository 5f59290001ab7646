package head

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Proxies are the networks whose reports about the client's address are trusted.
type Proxies []netip.Prefix

// ParseProxies parses networks such as 10.0.0.0/8, and single addresses.
func ParseProxies(networks []string) (Proxies, error) {
	proxies := make(Proxies, 0, len(networks))
	for _, text := range networks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			address, addressErr := netip.ParseAddr(text)
			if addressErr != nil || address.Zone() != "" {
				return nil, fmt.Errorf("%q is not a network such as 10.0.0.0/8 or fd00::/8, nor an address", text)
			}
			network = netip.PrefixFrom(address, address.BitLen())
		}
		if network.Addr().Is4In6() && network.Bits() >= 96 {
			network = netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-96)
		}
		proxies = append(proxies, network.Masked())
	}
	return proxies, nil
}

func (p Proxies) contains(address netip.Addr) bool {
	for _, network := range p {
		if network.Contains(address) {
			return true
		}
	}
	return false
}

// clientIP returns the client's address: the peer's, unless the peer is trusted. Then it is the
// rightmost address of the header that is not trusted, or the leftmost if all are. An entry that is
// not an address ends the search at the entry to its right.
func (p Proxies) clientIP(peer netip.Addr, lines []string) netip.Addr {
	client := peer
	if !peer.IsValid() || !p.contains(peer) {
		return client
	}
	for i := len(lines) - 1; i >= 0; i-- {
		entries := strings.Split(lines[i], ",")
		for j := len(entries) - 1; j >= 0; j-- {
			entry := trimASCII(entries[j])
			if entry == "" {
				continue
			}
			address, ok := parseAddress(entry)
			if !ok {
				return client
			}
			client = address
			if !p.contains(address) {
				return client
			}
		}
	}
	return client
}

// PeerAddress returns the address in "host:port" or "host", if there is one.
func PeerAddress(text string) netip.Addr {
	if port, err := netip.ParseAddrPort(text); err == nil {
		return port.Addr().Unmap().WithZone("")
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return address.Unmap().WithZone("")
}

// parseAddress parses 1.2.3.4, 1.2.3.4:80, ::1, [::1] and [::1]:80.
func parseAddress(text string) (netip.Addr, bool) {
	if rest, found := strings.CutPrefix(text, "["); found {
		inner, port, closed := strings.Cut(rest, "]")
		if !closed || !strings.Contains(inner, ":") {
			return netip.Addr{}, false
		}
		if port != "" && !isPort(strings.TrimPrefix(port, ":"), port[0] == ':') {
			return netip.Addr{}, false
		}
		return plainAddress(inner)
	}
	if host, port, found := strings.Cut(text, ":"); found && !strings.Contains(port, ":") {
		if !isPort(port, true) || strings.Contains(host, ":") {
			return netip.Addr{}, false
		}
		return plainAddress(host)
	}
	return plainAddress(text)
}

func plainAddress(text string) (netip.Addr, bool) {
	address, err := netip.ParseAddr(text)
	if err != nil || address.Zone() != "" {
		return netip.Addr{}, false
	}
	return address.Unmap(), true
}

func isPort(text string, hasColon bool) bool {
	for i := 0; i < len(text); i++ {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	_, err := strconv.ParseUint(text, 10, 16)
	return hasColon && err == nil
}
