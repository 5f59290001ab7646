// Requests over a raw socket, sent exactly as they stand.

import net from "node:net";

import { HOST } from "./host.js";

/** Sends a request. `finish` resolves to the response, `abort` closes the connection. */
export function start(port, { method = "GET", path, headers = [] }) {
  const socket = net.connect(port, HOST);
  const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join("");
  socket.write(`${method} ${path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n${lines}\r\n`);
  const chunks = [];
  const ended = new Promise((resolve, reject) => {
    socket.on("data", (chunk) => chunks.push(chunk));
    // A response that breaks off is a response, too.
    socket.on("error", () => {});
    socket.on("close", () => {
      try {
        resolve(parse(Buffer.concat(chunks)));
      } catch (error) {
        reject(error);
      }
    });
  });
  ended.catch(() => {});
  return { finish: () => ended, abort: () => socket.destroy() };
}

function parse(bytes) {
  const end = bytes.indexOf("\r\n\r\n");
  if (end < 0) throw new Error(`no response: ${JSON.stringify(bytes.toString())}`);
  const [first, ...lines] = bytes.toString("latin1", 0, end).split("\r\n");
  const headers = {};
  for (const line of lines) {
    const colon = line.indexOf(":");
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    headers[name] = name in headers ? `${headers[name]}, ${value}` : value;
  }
  const isChunked = /chunked/i.test(headers["transfer-encoding"] ?? "");
  const body = bytes.subarray(end + 4);
  const text = (isChunked ? unchunk(body) : body).toString("utf8");
  return { status: Number(first.split(" ")[1]), headers, text };
}

function unchunk(bytes) {
  const parts = [];
  for (;;) {
    const end = bytes.indexOf("\r\n");
    const size = Number.parseInt(bytes.toString("latin1", 0, Math.max(end, 0)), 16);
    if (!(size > 0)) return Buffer.concat(parts);
    parts.push(bytes.subarray(end + 2, end + 2 + size));
    bytes = bytes.subarray(end + 2 + size + 2);
  }
}
