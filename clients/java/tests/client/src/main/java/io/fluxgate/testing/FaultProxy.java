package io.fluxgate.testing;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** Stands between a client and a service, and fails in the ways that networks and services do. */
public final class FaultProxy implements AutoCloseable {
    private static final int SLOW_MILLIS = 1000;
    private static final int RESTART_MILLIS = 200;

    private final int port;
    private final Set<Socket> connections = ConcurrentHashMap.newKeySet();
    private final AtomicInteger asked = new AtomicInteger();
    private final AtomicInteger lost = new AtomicInteger();
    private final int target;
    private volatile String mode;
    private ServerSocket listener;
    private boolean isClosed;

    public FaultProxy(int target, String mode) throws IOException {
        this.target = target;
        port = Service.freePort();
        setMode(mode);
    }

    public String url() {
        return "http://127.0.0.1:" + port;
    }

    public void setMode(String to) throws IOException {
        mode = to;
        if (to.equals("down") || to.equals("restart")) {
            stop();
        }
        if (to.equals("restart")) {
            start("fault-proxy-restart", () -> {
                Service.sleep(RESTART_MILLIS);
                setMode("up");
            });
        } else if (!to.equals("down")) {
            listen();
        }
    }

    /** Returns how many calls have arrived since the last time. */
    public int takeAsked() {
        return asked.getAndSet(0);
    }

    /** Returns how many calls have arrived since the last {@link #takeAsked}. */
    public int asked() {
        return asked.get();
    }

    /** Returns how many calls the service has got whose answer the client has not: it may have taken slots. */
    public int lost() {
        return lost.get();
    }

    /** Returns how many connections are open. */
    public int connectionCount() {
        return connections.size();
    }

    @Override
    public synchronized void close() throws IOException {
        isClosed = true;
        stop();
    }

    private synchronized void stop() throws IOException {
        if (listener != null) {
            listener.close();
            listener = null;
        }
        closeConnections();
    }

    private synchronized void listen() throws IOException {
        // A restart may end after the test.
        if (listener != null || isClosed) {
            return;
        }
        ServerSocket socket = new ServerSocket();
        socket.setReuseAddress(true);
        socket.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 1024);
        listener = socket;
        start("fault-proxy-accept", () -> {
            while (true) {
                Socket client = socket.accept();
                start("fault-proxy", () -> serve(client));
            }
        });
    }

    private void closeConnections() {
        for (Socket connection : connections) {
            closeQuietly(connection);
        }
    }

    private void serve(Socket client) throws IOException {
        connections.add(client);
        Socket service = null;
        try {
            client.setTcpNoDelay(true);
            InputStream in = new BufferedInputStream(client.getInputStream());
            OutputStream out = client.getOutputStream();
            while (true) {
                HttpMessage request = HttpMessage.read(in);
                if (request == null) {
                    return;
                }
                String now = mode;
                if (request.isCall()) {
                    asked.incrementAndGet();
                }
                switch (now) {
                    // A closed listener may have accepted one more.
                    case "down", "restart" -> {
                        return;
                    }
                    case "reset" -> {
                        client.setSoLinger(true, 0);
                        return;
                    }
                    case "garbage" -> {
                        out.write(ascii("garbage\n\n"));
                        return;
                    }
                    case "cut" -> {
                        out.write(ascii("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"allowed\""));
                        return;
                    }
                    case "error" -> {
                        out.write(ascii("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops"));
                        continue;
                    }
                    case "slow" -> Service.sleep(SLOW_MILLIS);
                    default -> {}
                }
                if (service == null) {
                    service = new Socket(InetAddress.getLoopbackAddress(), target);
                    service.setTcpNoDelay(true);
                    connections.add(service);
                }
                lost.incrementAndGet();
                service.getOutputStream().write(request.bytes());
                HttpMessage answer = HttpMessage.read(service.getInputStream());
                if (answer == null || now.equals("swallow")) {
                    return;
                }
                out.write(answer.bytes());
                lost.decrementAndGet();
            }
        } finally {
            for (Socket socket : service == null ? new Socket[] {client} : new Socket[] {client, service}) {
                closeQuietly(socket);
                connections.remove(socket);
            }
        }
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    private static void closeQuietly(Socket socket) {
        try {
            socket.close();
        } catch (IOException e) {
            // It is closed.
        }
    }

    private interface Task {
        void run() throws IOException;
    }

    private static void start(String name, Task task) {
        Thread thread = new Thread(
                () -> {
                    try {
                        task.run();
                    } catch (IOException e) {
                        // The connection or the listener was closed.
                    }
                },
                name);
        thread.setDaemon(true);
        thread.start();
    }
}
