package io.fluxgate.client;

/**
 * What a settlement charged.
 *
 * @param charged the units that are charged now
 * @param uncharged the units that did not fit into the limit
 */
public record Settlement(long charged, long uncharged) {}
