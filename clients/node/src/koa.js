// Middleware for Koa.

import { Filter, GONE } from "./filter.js";
import { limitHeadersOf } from "./limit_headers.js";

export { resultOf } from "./filter.js";

/** Returns middleware that limits requests. */
export function rateLimit(options) {
  const filter = new Filter(options);
  return async function rateLimit(context, next) {
    const { req, res } = context;
    const refusal = await filter.admit(req, res, context.originalUrl, context);
    if (refusal === undefined) return next().catch((error) => rethrow(error, res));
    if (refusal === GONE) {
      context.respond = false;
      return undefined;
    }
    context.status = refusal.status;
    context.set("Content-Type", refusal.contentType);
    context.body = refusal.body;
    return undefined;
  };
}

/** Koa removes all headers before it answers to an error, except those of the error. */
function rethrow(error, response) {
  if (error instanceof Error && Object.isExtensible(error)) {
    error.headers = { ...limitHeadersOf(response), ...error.headers };
  }
  throw error;
}
