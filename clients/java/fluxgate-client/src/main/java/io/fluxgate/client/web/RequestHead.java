package io.fluxgate.client.web;

import java.util.List;
import java.util.Map;

/**
 * The head of a request as the server received it.
 *
 * @param method the method as sent
 * @param path the path as sent, neither decoded nor normalized, without the query
 * @param headers every header line in order, with its name as sent; values as bytes in Latin-1, the
 *     way servers report them
 * @param peer the address of the connection's other end, or null if it is unknown
 */
public record RequestHead(String method, String path, List<Map.Entry<String, String>> headers, String peer) {}
