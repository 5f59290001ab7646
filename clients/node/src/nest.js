// A guard for NestJS, on Express or on Fastify.

import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

import { Filter, GONE } from "./filter.js";

export { resultOf } from "./filter.js";

const HttpException = findHttpException();

/** Returns a guard that limits requests. */
export function rateLimit(options) {
  return new RateLimitGuard(options);
}

/** Refuses a request. Filters of the application may change the response. */
export class RateLimitException extends (HttpException ?? Error) {
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
    const reply = http.getResponse();
    // Fastify wraps the objects of Node, Express extends them.
    const request = source.raw ?? source;
    const response = reply.raw ?? reply;
    const target = source.originalUrl ?? request.url;
    const refusal = await this.#filter.admit(request, response, target, source);
    if (refusal === undefined) return true;
    if (refusal === GONE) {
      throw new RateLimitException({ title: "Client Closed Request", status: 499 }, null);
    }
    if (HttpException === undefined) answer(reply, response, refusal);
    else setContentType(response, refusal.contentType);
    throw new RateLimitException(refusal.problem, refusal.decision);
  }
}

/**
 * Returns the class of exceptions that filters know. It must be that of the application, which a
 * plain import does not find if this package is a link to a folder elsewhere.
 */
function findHttpException() {
  const places = [
    import.meta.url,
    pathToFileURL(process.argv[1] ?? ""),
    pathToFileURL(path.join(process.cwd(), "app.js")),
  ];
  for (const place of places) {
    try {
      return createRequire(place)("@nestjs/common").HttpException;
    } catch {
      // It is not there, or this version of Node cannot load ES modules in this way.
    }
  }
  return undefined;
}

/** Answers by itself. NestJS leaves a response as it is that has been sent. */
function answer(reply, response, { status, contentType, body }) {
  // Only Fastify has replies that must be taken over.
  reply.hijack?.();
  const headers = { "Content-Type": contentType, "Content-Length": body.length };
  response.writeHead(status, headers).end(body);
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
