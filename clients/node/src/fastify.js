// A plugin and hook for Fastify.

import { Filter, GONE } from "./filter.js";

export { resultOf } from "./filter.js";

/**
 * Returns a plugin that limits the requests of the instance that it is registered with. It is also
 * a hook, for single routes. `register(rateLimit, options)` works too.
 */
export function rateLimit(instanceOrOptions, options) {
  if (isInstance(instanceOrOptions)) return register(instanceOrOptions, rateLimit(options));
  const filter = new Filter(instanceOrOptions);
  const hook = async (requestOrInstance, reply) => {
    if (isInstance(requestOrInstance)) return register(requestOrInstance, hook);
    return limit(filter, requestOrInstance, reply);
  };
  return markAsPlugin(hook);
}

markAsPlugin(rateLimit);

function isInstance(value) {
  return typeof value?.addHook === "function";
}

/** Makes a plugin apply to the instance that registers it, and not to a new one below it. */
function markAsPlugin(plugin) {
  plugin[Symbol.for("skip-override")] = true;
  plugin[Symbol.for("fastify.display-name")] = "fluxgate";
  return plugin;
}

async function register(instance, hook) {
  instance.addHook("onRequest", hook);
}

async function limit(filter, request, reply) {
  // Fastify may rewrite `url`; rules see the request as it was sent.
  const target = request.originalUrl ?? request.raw.url;
  const refusal = await filter.admit(request.raw, reply.raw, target, request);
  if (refusal === undefined) return undefined;
  if (refusal === GONE) {
    reply.hijack();
    return reply;
  }
  reply.code(refusal.status).header("Content-Type", refusal.contentType);
  // Fastify leaves the content type of a buffer as it is.
  return reply.send(refusal.body);
}
