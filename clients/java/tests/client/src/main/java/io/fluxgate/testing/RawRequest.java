package io.fluxgate.testing;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** A request that is sent exactly as it stands. */
public final class RawRequest implements AutoCloseable {
    private final Socket socket;

    private RawRequest(Socket socket) {
        this.socket = socket;
    }

    /** The response, with names of headers in lower case. */
    public record Response(int status, Map<String, String> headers, String text) {}

    public static RawRequest send(int port, String method, String path, List<? extends List<?>> headers)
            throws IOException {
        StringBuilder text = new StringBuilder(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n");
        headers.forEach(it -> text.append(it.get(0)).append(": ").append(it.get(1)).append("\r\n"));
        if (method.equalsIgnoreCase("post") || method.equalsIgnoreCase("put")) {
            text.append("Content-Length: 0\r\n");
        }
        text.append("Connection: close\r\n\r\n");
        Socket socket = new Socket(InetAddress.getByName("127.0.0.1"), port);
        socket.setSoTimeout(20_000);
        socket.getOutputStream().write(text.toString().getBytes(StandardCharsets.ISO_8859_1));
        return new RawRequest(socket);
    }

    /** Reads the whole response; a status of 0 if there is none. */
    public Response finish() throws IOException {
        byte[] bytes;
        try (socket) {
            bytes = readAll(socket.getInputStream());
        }
        String all = new String(bytes, StandardCharsets.UTF_8);
        int end = all.indexOf("\r\n\r\n");
        if (end < 0) {
            return new Response(0, Map.of(), "");
        }
        String[] lines = all.substring(0, end).split("\r\n");
        Map<String, String> headers = new LinkedHashMap<>();
        for (int i = 1; i < lines.length; i++) {
            int colon = lines[i].indexOf(':');
            String name = lines[i].substring(0, colon).toLowerCase(Locale.ROOT);
            headers.merge(name, lines[i].substring(colon + 1).strip(), (one, other) -> one + ", " + other);
        }
        boolean isChunked = headers.getOrDefault("transfer-encoding", "").equalsIgnoreCase("chunked");
        String body = all.substring(end + 4);
        return new Response(
                Integer.parseInt(lines[0].split(" ")[1]), headers, isChunked ? unchunked(body) : body);
    }

    /** Leaves without reading the response. */
    @Override
    public void close() throws IOException {
        socket.setSoLinger(true, 0);
        socket.close();
    }

    private static byte[] readAll(InputStream in) throws IOException {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        byte[] buffer = new byte[8192];
        try {
            for (int count; (count = in.read(buffer)) >= 0; ) {
                all.write(buffer, 0, count);
            }
        } catch (java.net.SocketException e) {
            // A server that breaks a response off may reset the connection.
        }
        return all.toByteArray();
    }

    private static String unchunked(String text) {
        StringBuilder body = new StringBuilder();
        int at = 0;
        while (at < text.length()) {
            int line = text.indexOf("\r\n", at);
            int size = line < 0 ? 0 : Integer.parseInt(text.substring(at, line).strip(), 16);
            if (size == 0) {
                break;
            }
            body.append(text, line + 2, Math.min(text.length(), line + 2 + size));
            at = line + 2 + size + 2;
        }
        return body.toString();
    }
}
