package io.fluxgate.client.web;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;

/** The proxies that report the client's address. */
final class TrustedProxies {
    private record Network(IpAddress address, int bits) {}

    private final List<Network> networks;

    /** Trusts networks such as {@code 10.0.0.0/8} and single addresses. */
    TrustedProxies(List<String> networks) {
        this.networks = networks.stream().map(TrustedProxies::parse).toList();
    }

    boolean isEmpty() {
        return networks.isEmpty();
    }

    /**
     * Returns the client's address: the peer's, unless the peer is trusted. Then it is the rightmost
     * in the header that is not trusted, or the leftmost if all are. An entry that is no address ends
     * the search at the entry to its right.
     *
     * @param header the name of the header, in lower case
     * @param lines its lines
     */
    IpAddress client(IpAddress peer, String header, List<String> lines) {
        if (peer == null || !contains(peer)) {
            return peer;
        }
        IpAddress last = peer;
        for (int i = lines.size() - 1; i >= 0; i--) {
            for (String entry : header.equals("forwarded") ? ForwardedHeader.nodes(lines.get(i)) : list(lines.get(i))) {
                IpAddress hop = entry == null ? null : IpAddress.parseWithPort(entry);
                if (hop == null) {
                    return last;
                }
                last = hop;
                if (!contains(hop)) {
                    return hop;
                }
            }
        }
        return last;
    }

    private boolean contains(IpAddress address) {
        return networks.stream().anyMatch(it -> address.startsLike(it.address, it.bits));
    }

    /** Returns the entries of a list, the last first. Lists may have empty entries (RFC 9110, 5.6.1). */
    private static List<String> list(String line) {
        List<String> entries = new ArrayList<>();
        for (String entry : line.split(",")) {
            if (!entry.isBlank()) {
                entries.add(entry.strip());
            }
        }
        Collections.reverse(entries);
        return entries;
    }

    private static Network parse(String text) {
        int slash = text.indexOf('/');
        String prefix = slash < 0 ? text : text.substring(0, slash);
        IpAddress address = IpAddress.parse(prefix);
        IllegalArgumentException bad = new IllegalArgumentException(
                "`" + text + "` is not a network such as 10.0.0.0/8 or fd00::/8, nor an address");
        if (address == null) {
            throw bad;
        }
        int all = address.bytes().length * 8;
        if (slash < 0) {
            return new Network(address, all);
        }
        String digits = text.substring(slash + 1);
        if (!digits.matches("[0-9]{1,3}")) {
            throw bad;
        }
        int bits = Integer.parseInt(digits);
        boolean isMapped = all == 32 && prefix.toLowerCase(Locale.ROOT).contains(":");
        if (isMapped) {
            bits -= 96;
        }
        if (bits < 0 || bits > all) {
            throw bad;
        }
        return new Network(address, bits);
    }
}
