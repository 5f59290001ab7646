// Addresses for services and proxies.

const { pid } = process;

/**
 * A loopback address of this process. On 127.0.0.1 another process could take a port that is free
 * before a service listens on it, or while it restarts.
 */
export const HOST = `127.${1 + (pid >> 16)}.${(pid >> 8) & 255}.${pid & 255}`;

let nextPort = 10_000;

/** Returns a port of `HOST` that is given to nothing else. The kernel only gives higher ones. */
export function freePort() {
  return nextPort++;
}
