package io.fluxgate.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import io.fluxgate.client.Check;
import io.fluxgate.client.Decision;
import io.fluxgate.client.FluxGateClient;
import io.fluxgate.client.OnError;
import io.fluxgate.client.Outcome;
import io.fluxgate.client.UnavailableException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What a client logs: outages, and rule sets that do not exist. */
class LogTest {
    private static final Logger LOG = Logger.getLogger(FluxGateClient.class.getName());

    private final List<String> lines = new CopyOnWriteArrayList<>();
    private final Handler handler = new Handler() {
        @Override
        public void publish(LogRecord record) {
            lines.add(record.getLevel() + " " + record.getMessage());
        }

        @Override
        public void flush() {}

        @Override
        public void close() {}
    };

    @BeforeEach
    void listen() {
        LOG.addHandler(handler);
        LOG.setUseParentHandlers(false);
    }

    @AfterEach
    void stopListening() {
        LOG.removeHandler(handler);
        LOG.setUseParentHandlers(true);
    }

    private static FluxGateClient client(String url, OnError onError) {
        return FluxGateClient.builder(url)
                .onError(onError)
                .deadline(Duration.ofSeconds(20))
                .build();
    }

    @Test
    void theFirstFailureIsLoggedWithWhatHappensToRequests() {
        String closed = "http://127.0.0.1:1";
        try (FluxGateClient client = client(closed, OnError.ALLOW)) {
            client.check("x", it -> it);
            String why = "FluxGate at " + closed + " does not decide: the connection is refused; ";
            assertEquals(List.of("WARNING " + why + "requests are allowed (on_error=allow)"), lines);
            for (int i = 0; i < 20; i++) {
                client.check("x", it -> it);
            }
            assertEquals(1, lines.size(), lines::toString);
        }
        lines.clear();
        try (FluxGateClient client = client("http://does-not-exist.invalid:1/", OnError.RAISE)) {
            UnavailableException error =
                    assertThrows(UnavailableException.class, () -> client.check("x", it -> it));
            String why = "FluxGate at http://does-not-exist.invalid:1 does not decide: the host is unknown";
            assertEquals(why, error.getMessage());
            assertEquals(List.of("WARNING " + why + "; requests fail (on_error=raise)"), lines);
        }
    }

    @Test
    void theEndOfAnOutageIsLoggedWhereItsBeginningIs() throws Exception {
        try (Service service = Service.start(new Cases().config("main"));
                FaultProxy proxy = new FaultProxy(service.port(), "down");
                FluxGateClient client = client(proxy.url(), OnError.DENY)) {
            assertEquals(Outcome.FAILED_CLOSED, client.check("costs", it -> it).outcome());
            proxy.setMode("up");
            Leaks.await("it does not decide", () -> client.check("costs", it -> it.cost(0)).allowed());
            assertEquals(2, lines.size(), lines::toString);
            assertTrue(lines.get(0).endsWith("; requests are denied (on_error=deny)"), lines.get(0));
            assertEquals("WARNING FluxGate at " + proxy.url() + " decides again", lines.get(1));
        }
    }

    @Test
    void ruleSetsThatDoNotExistAreLoggedOnce() throws Exception {
        String message = "WARNING FluxGate at URL has no rule set `%s`: requests that it should limit %s";
        assertEquals(
                List.of(message.formatted("api-limts", "pass"), message.formatted("other", "pass")),
                logged(true, List.of("api-limts", "other", "api-limts", "other")));
        assertEquals(List.of(message.formatted("it's {0}", "are denied")), logged(false, List.of("it's {0}")));
        List<String> many = new ArrayList<>();
        IntStream.range(0, 300).forEach(i -> many.add("set-" + i % 150));
        assertEquals(100, logged(true, many).size());
    }

    @Test
    void aBatchLogsRuleSetsThatDoNotExist() throws Exception {
        try (Service service = Service.start(new Cases().config("main"));
                FluxGateClient client = client(service.url(), OnError.RAISE)) {
            List<Check> checks = Stream.of("costs", "api-limts", "other", "api-limts")
                    .map(ruleSet -> Check.of(ruleSet, it -> it.user("ann")))
                    .toList();
            List<Decision> decisions = client.checkAll(checks);
            List<Boolean> missing =
                    decisions.stream().map(Decision::isRuleSetMissing).toList();
            assertEquals(List.of(false, true, true, true), missing);
            String message =
                    "WARNING FluxGate at " + service.url() + " has no rule set `%s`: requests that it should limit pass";
            assertEquals(List.of(message.formatted("api-limts"), message.formatted("other")), lines);
        }
    }

    /** Returns what checks of these rule sets log, none of which exists. */
    private List<String> logged(boolean isAllowed, List<String> ruleSets) throws Exception {
        lines.clear();
        String outcome = isAllowed ? "no_rule" : "denied";
        byte[] body = ("{\"allowed\":" + isAllowed + ",\"outcome\":\"" + outcome + "\",\"rule\":null,\"band\":null,"
                        + "\"limit\":null,\"remaining\":null,\"retry_after_ms\":" + (isAllowed ? "0" : "null")
                        + ",\"reset_after_ms\":0,\"delay_ms\":0,\"violated\":[]}")
                .getBytes(StandardCharsets.UTF_8);
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", exchange -> {
            exchange.getRequestBody().readAllBytes();
            exchange.getResponseHeaders().set("X-FluxGate-Rule-Set", "missing");
            exchange.sendResponseHeaders(isAllowed ? 200 : 429, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
        String url = "http://127.0.0.1:" + server.getAddress().getPort();
        try (FluxGateClient client = client(url, OnError.RAISE)) {
            for (String ruleSet : ruleSets) {
                Decision decision = client.check(ruleSet, it -> it.user("ann"));
                assertEquals(isAllowed, decision.allowed());
                assertTrue(decision.isRuleSetMissing());
                String problem = decision.deniedWithoutRule().problem();
                assertTrue(problem.contains("\"detail\":\"its rule set does not exist\""), problem);
            }
        } finally {
            server.stop(0);
        }
        return lines.stream().map(it -> it.replace(url, "URL")).toList();
    }

    @Test
    void addressesThatAreNoneAreRefused() {
        for (String address : List.of("127.0.0.1:8081", "localhost:8081", "", "ftp://host", "http://", "http://host/?a=1")) {
            IllegalArgumentException error =
                    assertThrows(IllegalArgumentException.class, () -> FluxGateClient.create(address));
            String expected = "expected the address of a service, such as http://127.0.0.1:8081, found ";
            assertEquals(expected + '"' + address + '"', error.getMessage());
        }
        IllegalArgumentException error =
                assertThrows(IllegalArgumentException.class, () -> FluxGateClient.create("http://ann:secret@host"));
        assertTrue(!error.getMessage().contains("secret"), error.getMessage());
    }
}
