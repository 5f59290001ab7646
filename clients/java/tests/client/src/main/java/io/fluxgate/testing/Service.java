package io.fluxgate.testing;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.HttpURLConnection;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.net.URLConnection;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** A running service. */
public final class Service implements AutoCloseable {
    private final Process process;
    private final Path folder;
    private final int port;

    private Service(Process process, Path folder, int port) {
        this.process = process;
        this.folder = folder;
        this.port = port;
    }

    /** Starts a service with a config in which <code>${API}</code> is its address. */
    public static Service start(List<String> config) throws IOException {
        Path folder = Files.createTempDirectory("fluxgate-java");
        int port = freePort();
        String text = String.join("\n", config).replace("${API}", "127.0.0.1:" + port);
        Path file = Files.writeString(folder.resolve("fluxgate.yaml"), text);
        Path log = folder.resolve("log");
        Process process = new ProcessBuilder(Repository.program().toString(), "run", "--config", file.toString())
                .redirectErrorStream(true)
                .redirectOutput(log.toFile())
                .start();
        Service service = new Service(process, folder, port);
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!service.isLive()) {
            if (!process.isAlive() || System.nanoTime() > end) {
                process.destroyForcibly();
                throw new IOException("the service does not start: " + Files.readString(log));
            }
            sleep(10);
        }
        return service;
    }

    public int port() {
        return port;
    }

    public String url() {
        return "http://127.0.0.1:" + port;
    }

    /** Returns how many slots the service holds, of all rules together. */
    public long slotsHeld() throws IOException {
        URLConnection connection = URI.create(url() + "/metrics").toURL().openConnection();
        connection.setConnectTimeout(1000);
        connection.setReadTimeout(1000);
        connection.setRequestProperty("Connection", "close");
        try (InputStream body = connection.getInputStream()) {
            return new String(body.readAllBytes(), StandardCharsets.UTF_8)
                    .lines()
                    .filter(line -> line.startsWith("fluxgate_slots_held{"))
                    .mapToLong(line -> Long.parseLong(line.substring(line.lastIndexOf(' ') + 1)))
                    .sum();
        }
    }

    /** Returns for how many nanoseconds each thread of the service has waited for a processor. */
    Map<String, Long> waits() {
        Map<String, Long> waits = new HashMap<>();
        try (Stream<Path> threads = Files.list(Path.of("/proc/" + process.pid() + "/task"))) {
            for (Path thread : threads.toList()) {
                String[] times = Files.readString(thread.resolve("schedstat")).split(" ");
                waits.put(thread.getFileName().toString(), Long.parseLong(times[1]));
            }
        } catch (IOException | UncheckedIOException e) {
            // The service, or a thread of it, has ended.
        }
        return waits;
    }

    @Override
    public void close() throws IOException {
        process.destroyForcibly();
        try {
            process.waitFor();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        for (String file : List.of("log", "fluxgate.yaml")) {
            Files.deleteIfExists(folder.resolve(file));
        }
        Files.delete(folder);
    }

    private boolean isLive() {
        try {
            HttpURLConnection connection =
                    (HttpURLConnection) URI.create(url() + "/livez").toURL().openConnection();
            connection.setConnectTimeout(1000);
            connection.setReadTimeout(1000);
            boolean isLive = connection.getResponseCode() == 200;
            connection.disconnect();
            return isLive;
        } catch (IOException e) {
            return false;
        }
    }

    public static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }

    public static void sleep(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
