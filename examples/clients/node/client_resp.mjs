// Does jobs as fast as FluxGate allows, over the Redis protocol. Needs only Node 18; any
// Redis client works as well.
//
// node client_resp.mjs [HOST:PORT [USER [JOBS]]]

import net from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

const [address = "127.0.0.1:8083", user = "ann", jobs = "5"] = process.argv.slice(2);

/** The longest timer of Node; a longer one fires at once. */
const MAX_DELAY = 2 ** 31 - 1;

/** Returns the first value in the bytes and its end; undefined if it is incomplete. */
function parse(bytes, start = 0) {
  const end = bytes.indexOf("\r\n", start);
  if (end < 0) return undefined;
  const line = bytes.toString("utf8", start + 1, end);
  let next = end + 2;
  switch (String.fromCharCode(bytes[start])) {
    case "+":
      return { value: line, next };
    case "-":
      return { value: new Error(line), next };
    case ":":
      return { value: Number(line), next };
    case "$": {
      const length = Number(line);
      if (length < 0) return { value: null, next };
      if (bytes.length < next + length + 2) return undefined;
      return { value: bytes.toString("utf8", next, next + length), next: next + length + 2 };
    }
    case "*": {
      const value = [];
      while (value.length < Number(line)) {
        const item = parse(bytes, next);
        if (item === undefined) return undefined;
        value.push(item.value);
        next = item.next;
      }
      return { value, next };
    }
    default:
      throw new Error(`not RESP: ${line}`);
  }
}

/** Sends one command over a new connection and returns the reply. */
function send(...words) {
  const colon = address.lastIndexOf(":");
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(address.slice(colon + 1)), address.slice(0, colon));
    let bytes = Buffer.alloc(0);
    const finish = (settle, value) => {
      socket.destroy();
      settle(value);
    };
    socket.setTimeout(1000, () => finish(reject, new Error("no reply in time")));
    socket.on("error", (error) => finish(reject, error));
    socket.on("close", () => finish(reject, new Error("the connection ended")));
    socket.on("data", (more) => {
      bytes = Buffer.concat([bytes, more]);
      let reply;
      try {
        reply = parse(bytes);
      } catch (error) {
        return finish(reject, error);
      }
      if (reply === undefined) return;
      finish(reply.value instanceof Error ? reject : resolve, reply.value);
    });
    const parts = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
    socket.write(`*${words.length}\r\n${parts.join("")}`);
  });
}

/** Settles the hold of a job, if it has one: its slots are free, and its charge stays. */
async function settle(hold) {
  // A job that takes longer than the hold must renew it: FG.RENEW.
  if (hold === undefined) return;
  try {
    await send("FG.SETTLE", hold);
  } catch (error) {
    console.log(`the slots expire by themselves: ${error}`);
  }
}

for (let job = 1; job <= Number(jobs); job++) {
  for (;;) {
    let decision;
    try {
      decision = await send("FG.CHECK", "jobs", "user", user);
    } catch (error) {
      // Fails open: the work matters more than the limit.
      console.log(`job ${job}: done, FluxGate unavailable: ${error}`);
      break;
    }
    const [allowed, , remaining, wait, , delay, , , , hold] = decision;
    if (allowed) {
      await sleep(Math.min(delay, MAX_DELAY));
      console.log(`job ${job}: done, ${remaining} left`);
      await settle(hold);
      break;
    }
    if (wait < 0) throw new Error(`job ${job}: denied permanently`);
    console.log(`job ${job}: denied, retrying in ${wait} ms`);
    await sleep(Math.min(wait, MAX_DELAY));
  }
}
