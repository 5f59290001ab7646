// The client's address: that of the peer, or the one that trusted proxies report.

import net from "node:net";

import { trimAscii } from "./text.js";

/** The proxies whose reports about the client's address are trusted. */
export class TrustedProxies {
  #networks = new net.BlockList();
  #isEmpty = true;

  constructor(networks) {
    for (const network of networks) {
      this.#add(network);
      this.#isEmpty = false;
    }
  }

  /**
   * Returns the client's address. `lines` are those of `X-Forwarded-For`. If the peer is trusted,
   * it is the rightmost address that is not, or the leftmost if all are. An entry that is not an
   * address ends the search at the entry to its right.
   */
  clientAddress(peer, lines) {
    const address = canonical(peer?.replace(/%.*$/, "") ?? "");
    if (address === undefined || this.#isEmpty || !this.#trusts(address)) return address;
    let last = address;
    const hops = lines.flatMap((line) => line.split(",")).reverse();
    for (const hop of hops) {
      const text = trimAscii(hop);
      // Lists may hold empty elements.
      if (text === "") continue;
      const found = parseHop(text);
      if (found === undefined) break;
      last = found;
      if (!this.#trusts(found)) break;
    }
    return last;
  }

  #add(network) {
    const [, text, bits] = /^([^/]*)(?:\/(\d{1,3}))?$/.exec(network) ?? [];
    const address = text === undefined ? undefined : canonical(text);
    if (address === undefined) throw notANetwork(network);
    const version = net.isIP(address);
    // A network of IPv4-mapped addresses is one of IPv4.
    const mapped = version === 4 && net.isIPv6(text) ? 96 : 0;
    const size = version === 4 ? 32 : 128;
    const prefix = bits === undefined ? size : Number(bits) - mapped;
    if (prefix < 0 || prefix > size) throw notANetwork(network);
    this.#networks.addSubnet(address, prefix, version === 4 ? "ipv4" : "ipv6");
  }

  #trusts(address) {
    return this.#networks.check(address, net.isIPv4(address) ? "ipv4" : "ipv6");
  }
}

function notANetwork(text) {
  return new TypeError(`\`${text}\` is not a network such as 10.0.0.0/8 or fd00::/8, nor an address`);
}

/** Parses `1.2.3.4`, `1.2.3.4:80`, `::1`, `[::1]` or `[::1]:80`. */
function parseHop(text) {
  const bracketed = /^\[([^\]]*)\](?::(\d+))?$/.exec(text);
  if (bracketed !== null) {
    const [, address, port] = bracketed;
    return net.isIPv6(address) && isPort(port) ? canonical(address) : undefined;
  }
  const withPort = /^([^:]*):(\d+)$/.exec(text);
  if (withPort !== null) {
    const [, address, port] = withPort;
    return net.isIPv4(address) && isPort(port) ? address : undefined;
  }
  return canonical(text);
}

function isPort(text) {
  return text === undefined || Number(text) <= 65_535;
}

/** Returns an address in its usual form, and an IPv4-mapped one as IPv4; undefined if it is none. */
function canonical(text) {
  if (net.isIPv4(text)) return text;
  // The usual form of a peer: servers listen on IPv6 and IPv4 alike.
  if (text.startsWith("::ffff:") && net.isIPv4(text.slice(7))) return text.slice(7);
  // A zone belongs to an interface of this machine, and is not part of an address.
  if (!net.isIPv6(text) || text.includes("%")) return undefined;
  const { address } = new net.SocketAddress({ address: text, family: "ipv6" });
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/.exec(address);
  return mapped === null ? address : mapped[1];
}
