import type { Context, Middleware } from "koa";

import type { RateLimitOptions, RateLimitResult } from "./filter.js";

export type { RateLimitOptions, RateLimitResult };

/** Returns middleware that limits requests. */
export function rateLimit(options: RateLimitOptions<Context>): Middleware;

/** Returns the last decision about a request, and its hold; undefined if there is none. */
export function resultOf(context: Pick<Context, "req">): RateLimitResult | undefined;
