// Middleware for Express.

import { Filter, GONE } from "./filter.js";

export { resultOf } from "./filter.js";

/** Returns middleware that limits requests. */
export function rateLimit(options) {
  const filter = new Filter(options);
  return function rateLimit(request, response, next) {
    // Express shortens `url` in routers that are mounted on a path.
    filter.admit(request, response, request.originalUrl ?? request.url, request).then((refusal) => {
      if (refusal === undefined) next();
      else if (refusal !== GONE) refuse(response, refusal);
    }, next);
  };
}

function refuse(response, { status, contentType, body }) {
  response.statusCode = status;
  response.setHeader("Content-Type", contentType);
  response.setHeader("Content-Length", body.length);
  response.end(body);
}
