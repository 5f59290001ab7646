package io.fluxgate.client.web;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.Arrays;

/**
 * An address of IPv4 or IPv6. {@link InetAddress} resolves other texts as host names, and takes
 * {@code 1.2.3} for an address.
 */
final class IpAddress {
    private static final int MAPPED_PREFIX = 12;

    /** 4 or 16 bytes. An IPv4 address that is mapped into IPv6 has 4. */
    private final byte[] bytes;

    private IpAddress(byte[] bytes) {
        this.bytes = bytes;
    }

    byte[] bytes() {
        return bytes;
    }

    /** Parses an address, or returns null. */
    static IpAddress parse(String text) {
        byte[] parsed = text.indexOf(':') < 0 ? v4(text) : v6(text);
        return parsed == null ? null : new IpAddress(canonical(parsed));
    }

    /** Parses {@code 1.2.3.4}, {@code 1.2.3.4:80}, {@code ::1}, {@code [::1]} or {@code [::1]:80}. */
    static IpAddress parseWithPort(String text) {
        if (text.startsWith("[")) {
            int end = text.indexOf(']');
            String port = end < 0 ? "?" : text.substring(end + 1);
            boolean isGood = port.isEmpty() || port.startsWith(":") && isPort(port.substring(1));
            // The brackets are for IPv6 only.
            String inner = isGood ? text.substring(1, end) : "";
            return inner.indexOf(':') < 0 ? null : parse(inner);
        }
        int colon = text.indexOf(':');
        if (colon >= 0 && colon == text.lastIndexOf(':')) {
            return isPort(text.substring(colon + 1)) ? parse(text.substring(0, colon)) : null;
        }
        return parse(text);
    }

    /** Returns whether the first bits are those of another address of the same family. */
    boolean startsLike(IpAddress network, int bits) {
        if (bytes.length != network.bytes.length) {
            return false;
        }
        int whole = bits / 8;
        int rest = bits % 8;
        if (!Arrays.equals(bytes, 0, whole, network.bytes, 0, whole)) {
            return false;
        }
        return rest == 0 || ((bytes[whole] ^ network.bytes[whole]) & 0xff) >> (8 - rest) == 0;
    }

    @Override
    public String toString() {
        try {
            return InetAddress.getByAddress(bytes).getHostAddress();
        } catch (UnknownHostException e) {
            throw new IllegalStateException(e);
        }
    }

    static boolean isMapped(byte[] bytes) {
        for (int i = 0; i < MAPPED_PREFIX; i++) {
            if (bytes[i] != (i < 10 ? 0 : -1)) {
                return false;
            }
        }
        return true;
    }

    private static byte[] canonical(byte[] bytes) {
        return bytes.length == 16 && isMapped(bytes) ? Arrays.copyOfRange(bytes, MAPPED_PREFIX, 16) : bytes;
    }

    private static boolean isPort(String text) {
        return text.matches("[0-9]{1,5}") && Integer.parseInt(text) <= 0xffff;
    }

    private static byte[] v4(String text) {
        String[] parts = text.split("\\.", -1);
        if (parts.length != 4) {
            return null;
        }
        byte[] bytes = new byte[4];
        for (int i = 0; i < 4; i++) {
            // Some read a leading zero as octal.
            if (!parts[i].matches("0|[1-9][0-9]{0,2}") || Integer.parseInt(parts[i]) > 255) {
                return null;
            }
            bytes[i] = (byte) Integer.parseInt(parts[i]);
        }
        return bytes;
    }

    static byte[] v6(String text) {
        int gap = text.indexOf("::");
        if (gap >= 0 && text.indexOf("::", gap + 1) >= 0) {
            return null;
        }
        byte[] front = groups(gap < 0 ? text : text.substring(0, gap), gap < 0);
        byte[] back = gap < 0 ? new byte[0] : groups(text.substring(gap + 2), true);
        if (front == null || back == null) {
            return null;
        }
        int length = front.length + back.length;
        if (gap < 0 ? length != 16 : length > 14) {
            return null;
        }
        byte[] bytes = Arrays.copyOf(front, 16);
        System.arraycopy(back, 0, bytes, 16 - back.length, back.length);
        return bytes;
    }

    /** Parses groups of hexadecimal digits; the last may be an IPv4 address where the address ends. */
    private static byte[] groups(String text, boolean mayEndInV4) {
        if (text.isEmpty()) {
            return new byte[0];
        }
        String[] parts = text.split(":", -1);
        byte[] bytes = new byte[parts.length * 2 + 2];
        int length = 0;
        for (int i = 0; i < parts.length; i++) {
            if (mayEndInV4 && i == parts.length - 1 && parts[i].indexOf('.') >= 0) {
                byte[] v4 = v4(parts[i]);
                if (v4 == null) {
                    return null;
                }
                System.arraycopy(v4, 0, bytes, length, 4);
                length += 4;
            } else if (parts[i].matches("[0-9a-fA-F]{1,4}")) {
                int group = Integer.parseInt(parts[i], 16);
                bytes[length++] = (byte) (group >> 8);
                bytes[length++] = (byte) group;
            } else {
                return null;
            }
        }
        return length > 16 ? null : Arrays.copyOf(bytes, length);
    }
}
