import type { Client, Decision, Hold } from "./index.js";

type MaybePromise<T> = T | Promise<T>;

/** How requests are limited. `Source` is the request of the framework. */
export interface RateLimitOptions<Source> {
  client: Client;
  /** The rule set that decides. Without one nothing is limited, and a warning says so. */
  ruleSet?: string;
  /** The paths to limit; by default all. */
  include?: string[];
  /** The paths to skip, even if they are included. */
  exclude?: string[];
  /** Compares path patterns without ASCII case. */
  ignoreCase?: boolean;
  /** The user; by default the header `X-User-Id`. */
  user?: (source: Source) => MaybePromise<string | number | null | undefined>;
  /** The API key; by default the header `X-API-Key`. */
  apiKey?: (source: Source) => MaybePromise<string | null | undefined>;
  /** The client's address; by default that of the connection, or what `trustedProxies` report. */
  ip?: (source: Source) => MaybePromise<string | null | undefined>;
  attributes?: (
    source: Source,
  ) => MaybePromise<Record<string, string | number | boolean | null | undefined>>;
  /** Replaces the cost of every rule. */
  cost?: number | ((source: Source) => MaybePromise<number | undefined>);
  /** The headers that the rules read; by default all but secrets are sent to the service. */
  headers?: string[];
  /** The networks of proxies whose `X-Forwarded-For` is trusted; none by default. */
  trustedProxies?: string[];
  /** How many requests may wait at a time; 100 by default. */
  maxConcurrentWaits?: number;
}

export interface RateLimitResult {
  decision: Decision;
  /** The hold of the request, to settle it with the real cost; null if it has none. */
  hold: Hold | null;
}
