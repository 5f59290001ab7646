import { HttpException, type CanActivate, type ExecutionContext } from "@nestjs/common";

import type { Decision } from "./index.js";
import type { RateLimitOptions, RateLimitResult } from "./filter.js";

export type { RateLimitOptions, RateLimitResult };

/** Limits the requests of routes. `Request` is that of the platform: Express or Fastify. */
export class RateLimitGuard<Request = any> implements CanActivate {
  constructor(options: RateLimitOptions<Request>);
  canActivate(context: ExecutionContext): Promise<boolean>;
}

/** Returns a guard that limits requests. */
export function rateLimit<Request = any>(
  options: RateLimitOptions<Request>,
): RateLimitGuard<Request>;

/** Refuses a request. Exception filters of the application may change the response. */
export class RateLimitException extends HttpException {
  /** The decision; null if the request is ambiguous. */
  readonly decision: Decision | null;
}

/** Returns the last decision about a request, and its hold; undefined if there is none. */
export function resultOf(request: object): RateLimitResult | undefined;
