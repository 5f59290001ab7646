// A guard for NestJS, on Express or on Fastify.

import { HttpException } from "@nestjs/common";

import { Filter, GONE } from "./filter.js";

export { resultOf } from "./filter.js";

/** Returns a guard that limits requests. */
export function rateLimit(options) {
  return new RateLimitGuard(options);
}

/** Refuses a request. Filters of the application may change the response. */
export class RateLimitException extends HttpException {
  constructor(problem, decision) {
    super(problem, problem.status);
    this.decision = decision;
  }
}

export class RateLimitGuard {
  #filter;

  constructor(options) {
    this.#filter = new Filter(options);
  }

  async canActivate(context) {
    // Messages and subscriptions have no request that could be limited.
    if (context.getType() !== "http") return true;
    const http = context.switchToHttp();
    const source = http.getRequest();
    // Fastify wraps the objects of Node, Express extends them.
    const request = source.raw ?? source;
    const response = http.getResponse();
    const rawResponse = response.raw ?? response;
    const target = source.originalUrl ?? request.url;
    const refusal = await this.#filter.admit(request, rawResponse, target, source);
    if (refusal === undefined) return true;
    if (refusal !== GONE) setContentType(rawResponse, refusal.contentType);
    const problem = refusal === GONE ? { title: "Client Closed Request", status: 499 } : refusal.problem;
    throw new RateLimitException(problem, refusal.decision ?? null);
  }
}

/** Sets the content type of the exception's body. The frameworks would send that of plain JSON. */
function setContentType(response, contentType) {
  const { writeHead } = response;
  response.writeHead = function (...args) {
    response.writeHead = writeHead;
    const explicit = args.find((it) => typeof it === "object" && !Array.isArray(it));
    const type = explicit?.["content-type"] ?? response.getHeader("content-type");
    // Another type is that of a filter of the application.
    if (/^application\/json\b/.test(type)) {
      if (explicit?.["content-type"] !== undefined) explicit["content-type"] = contentType;
      else response.setHeader("Content-Type", contentType);
    }
    return writeHead.apply(response, args);
  };
}
