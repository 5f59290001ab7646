"""The address of a client: the peer's, or the one that trusted proxies report."""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import Iterable, Iterator, List, Optional, Sequence, Union

IpAddress = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
IpNetwork = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]

_PORT = re.compile(r"[0-9]+\Z", re.ASCII)
# Python before 3.9.5 accepted leading zeros, which other programs read as octal.
_IPV4 = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}\Z", re.ASCII)


class TrustedProxies:
    """The networks of proxies whose reports are trusted; by default none."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        if isinstance(networks, str):
            raise TypeError("trusted_proxies is a list of networks, not one string")
        self._networks: List[IpNetwork] = [_network(text) for text in networks]

    def client_ip(self, peer: Optional[str], forwarded: Sequence[str]) -> Optional[str]:
        """Returns the client's address. `forwarded` are the lines of X-Forwarded-For.

        It is the peer's, unless the peer is trusted. Then it is the rightmost address that is not
        trusted, or the leftmost if all are. An entry that is no address ends the search at the
        entry to its right.
        """
        if not self._networks:
            return canonical(peer) if peer else None
        address = parse_address(peer) if peer else None
        if address is None:
            return None
        if self._trusts(address):
            for hop in _hops(forwarded):
                if hop is None:
                    break
                address = hop
                if not self._trusts(hop):
                    break
        return str(address)

    def _trusts(self, address: IpAddress) -> bool:
        return any(
            address.version == network.version and address in network for network in self._networks
        )


@functools.lru_cache(maxsize=4096)
def canonical(text: str) -> Optional[str]:
    """Returns an address in the form that is sent, or None if it is none."""
    address = parse_address(text)
    return None if address is None else str(address)


def parse_address(text: str) -> Optional[IpAddress]:
    """Parses `1.2.3.4`, `1.2.3.4:80`, `::1`, `[::1]` or `[::1]:80`. A mapped address is IPv4."""
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        is_good = bracket and (not port or (port.startswith(":") and _is_port(port[1:])))
        return _parse(host, 6) if is_good else None
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return _parse(host, 4) if _is_port(port) else None
    return _parse(text)


def _parse(text: str, version: Optional[int] = None) -> Optional[IpAddress]:
    if "%" in text or (":" not in text and not _IPV4.match(text)):
        return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if version is not None and address.version != version:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def _is_port(text: str) -> bool:
    return bool(_PORT.match(text)) and int(text) <= 65535 if len(text) <= 8 else False


def _hops(lines: Sequence[str]) -> Iterator[Optional[IpAddress]]:
    """Returns the hops, the last first. An entry that is no address is None."""
    for line in reversed(lines):
        for entry in reversed(line.split(",")):
            entry = entry.strip(" \t\r\n\f\v")
            # Lists may hold empty elements (RFC 9110, 5.6.1).
            if entry:
                yield parse_address(entry)


def _network(text: str) -> IpNetwork:
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(
            f"`{text}` is not a network such as 10.0.0.0/8 or fd00::/8, nor an address"
        ) from None
    if isinstance(network, ipaddress.IPv6Network):
        mapped = network.network_address.ipv4_mapped
        if mapped is not None and network.prefixlen >= 96:
            return ipaddress.ip_network((int(mapped), network.prefixlen - 96))
    return network
