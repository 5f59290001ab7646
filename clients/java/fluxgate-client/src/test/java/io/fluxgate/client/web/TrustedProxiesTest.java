package io.fluxgate.client.web;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.net.InetAddress;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class TrustedProxiesTest {
    private static final TrustedProxies PROXIES =
            new TrustedProxies(List.of("10.0.0.0/8", "192.168.1.1", "fd00::/8", "::ffff:172.16.0.0/108"));

    private static String client(String peer, String header, String... lines) {
        IpAddress client = PROXIES.client(IpAddress.parse(peer), header, List.of(lines));
        return client == null ? null : client.toString();
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "10.0.0.1    | 192.0.2.7                          | 192.0.2.7",
                "10.0.0.1    | 198.51.100.1, 192.0.2.7            | 192.0.2.7",
                "10.0.0.1    | 192.0.2.7, 10.0.0.2, 192.168.1.1   | 192.0.2.7",
                "10.0.0.1    | 10.0.0.3, 10.0.0.2                 | 10.0.0.3",
                "10.0.0.1    | 192.0.2.1, unknown, 10.0.0.3       | 10.0.0.3",
                "10.0.0.1    | unknown                            | 10.0.0.1",
                "10.0.0.1    | ''                                 | 10.0.0.1",
                "10.0.0.1    | [2001:db8::1]:80                   | 2001:db8:0:0:0:0:0:1",
                "172.31.0.1  | 192.0.2.7:80                       | 192.0.2.7",
                "::ffff:a00:1| 192.0.2.7                          | 192.0.2.7",
                "fd00::1     | 192.0.2.7                          | 192.0.2.7",
                "192.0.2.9   | 192.0.2.7                          | 192.0.2.9",
                "172.32.0.1  | 192.0.2.7                          | 172.32.0.1",
                "192.168.1.2 | 192.0.2.7                          | 192.168.1.2",
            })
    void theLastUntrustedHopIsTheClient(String peer, String line, String expected) {
        assertEquals(expected, client(peer, "x-forwarded-for", line));
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "for=192.0.2.7                                   | 192.0.2.7",
                "for=192.0.2.7;proto=https, for=10.0.0.2         | 192.0.2.7",
                "FOR=\"[2001:db8::1]:80\"                        | 2001:db8:0:0:0:0:0:1",
                "for=192.0.2.7:_x                                | 192.0.2.7",
                "for=192.0.2.1, for=unknown, for=10.0.0.2        | 10.0.0.2",
                "for=192.0.2.1;for=192.0.2.2                     | 10.0.0.1",
                "for=\"192.0.2.1, for=192.0.2.7                  | 192.0.2.7",
                "by=10.0.0.1                                     | 10.0.0.1",
            })
    void forwardedIsReadTheSameWay(String line, String expected) {
        assertEquals(expected, client("10.0.0.1", "forwarded", line));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "", "1", "1.2.3", "1.2.3.4.5", "1.2.3.256", "01.2.3.4", "0x1.2.3.4", "1.2.3.4 ", ":", ":::", "1::2::3",
                "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7:8::", "::1.2.3", "1.2.3.4::", "12345::", "g::",
                "fe80::1%eth0", "localhost"
            })
    void whatIsNoAddressIsNone(String text) {
        assertNull(IpAddress.parse(text));
    }

    @Test
    void addressesAreReadAsTheJdkWritesThem() throws Exception {
        Random random = new Random(1);
        for (int i = 0; i < 5000; i++) {
            byte[] bytes = new byte[random.nextBoolean() ? 4 : 16];
            for (int at = 0; at < bytes.length; at++) {
                bytes[at] = (byte) (random.nextInt(3) == 0 ? random.nextInt() : 0);
            }
            String text = InetAddress.getByAddress(bytes).getHostAddress();
            IpAddress parsed = IpAddress.parse(text);
            assertNotNull(parsed, text);
            assertEquals(Arrays.toString(InetAddress.getByName(text).getAddress()), Arrays.toString(parsed.bytes()));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "::/129", "proxy", "10.0.0.0/-1", "::ffff:1.2.3.4/95"})
    void whatIsNoNetworkIsRefused(String text) {
        assertThrows(IllegalArgumentException.class, () -> new TrustedProxies(List.of(text)));
    }
}
