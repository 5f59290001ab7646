import type { Request, RequestHandler } from "express";

import type { RateLimitOptions, RateLimitResult } from "./filter.js";

export type { RateLimitOptions, RateLimitResult };

/** Returns middleware that limits requests. */
export function rateLimit(options: RateLimitOptions<Request>): RequestHandler;

/** Returns the last decision about a request, and its hold; undefined if there is none. */
export function resultOf(request: Request): RateLimitResult | undefined;
