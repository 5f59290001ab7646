package io.fluxgate.testing;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;

/** A request or a response as it is on the wire. */
final class HttpMessage {
    private final String head;
    private final byte[] body;

    private HttpMessage(String head, byte[] body) {
        this.head = head;
        this.body = body;
    }

    /** Reads a message whose body has a {@code Content-Length}. Returns null at the end of the stream. */
    static HttpMessage read(InputStream in) throws IOException {
        ByteArrayOutputStream head = new ByteArrayOutputStream();
        int matched = 0;
        while (matched < 4) {
            int c = in.read();
            if (c < 0) {
                if (head.size() == 0) {
                    return null;
                }
                throw new EOFException();
            }
            head.write(c);
            matched = c == "\r\n\r\n".charAt(matched) ? matched + 1 : c == '\r' ? 1 : 0;
        }
        String text = head.toString(StandardCharsets.ISO_8859_1);
        int length = Integer.parseInt(header(text, "content-length", "0"));
        byte[] body = in.readNBytes(length);
        if (body.length < length) {
            throw new EOFException();
        }
        return new HttpMessage(text, body);
    }

    static String header(String head, String name, String otherwise) {
        for (String line : head.split("\r\n")) {
            int colon = line.indexOf(':');
            if (colon > 0 && line.substring(0, colon).equalsIgnoreCase(name)) {
                return line.substring(colon + 1).strip();
            }
        }
        return otherwise;
    }

    boolean isCall() {
        return head.startsWith("POST /v1/");
    }

    byte[] bytes() {
        byte[] start = head.getBytes(StandardCharsets.ISO_8859_1);
        ByteArrayOutputStream all = new ByteArrayOutputStream(start.length + body.length);
        all.writeBytes(start);
        all.writeBytes(body);
        return all.toByteArray();
    }
}
