import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";

import type { RateLimitOptions, RateLimitResult } from "./filter.js";

export type { RateLimitOptions, RateLimitResult };

/** A plugin, and a hook for single routes. */
export interface RateLimitPlugin {
  (instance: FastifyInstance, options?: object): Promise<void>;
  (request: FastifyRequest, reply: FastifyReply): Promise<unknown>;
}

/** Returns a plugin that limits the requests of the instance that it is registered with. */
export function rateLimit(options: RateLimitOptions<FastifyRequest>): RateLimitPlugin;
/** The plugin itself, for `register(rateLimit, options)`. */
export function rateLimit(
  instance: FastifyInstance,
  options: RateLimitOptions<FastifyRequest>,
): Promise<void>;

/** Returns the last decision about a request, and its hold; undefined if there is none. */
export function resultOf(request: FastifyRequest): RateLimitResult | undefined;
