/// <reference types="node" />

/** What happens if the service does not decide. */
export type OnError = "allow" | "deny" | "raise";

export type Outcome =
  | "allowed"
  | "denied"
  | "never"
  | "forbidden"
  | "exempt"
  | "shadow_denied"
  | "no_rule"
  | "failed_open"
  | "failed_closed"
  | "fallback";

export interface ClientOptions {
  /** `"allow"` by default. */
  onError?: OnError;
  /** The time for a whole call, connecting included, in milliseconds; 100 by default. */
  deadline?: number;
  /** The most connections to the service; 64 by default. */
  maxConnections?: number;
  /** Headers of every call, such as `Authorization`. */
  headers?: Record<string, string>;
  /** The certificate authorities to trust instead of those of Node, in PEM. */
  ca?: string | Buffer | Array<string | Buffer>;
  /** The certificate of the client and its key, in PEM, for a service that asks for one. */
  cert?: string | Buffer;
  key?: string | Buffer;
  /**
   * Gets a message when the service fails, when it decides again, and when a rule set does not exist;
   * by default a warning of the process.
   */
  onWarning?: (message: string, cause?: unknown) => void;
}

/** The fields of a request that rules may read. */
export interface CheckRequest {
  ip?: string | null;
  user?: string | null;
  apiKey?: string | null;
  method?: string | null;
  path?: string | null;
  /** The normal form of the path, from a caller that knows it. */
  normalPath?: string | null;
  /** Compares path patterns without ASCII case. */
  ignoreCase?: boolean;
  headers?: Record<string, string>;
  attributes?: Record<string, string | number | boolean>;
  /** Replaces the cost of every rule. */
  cost?: number | null;
  /** Decides without charging. */
  peek?: boolean;
  /** `false` denies a request that would have to wait; `true` makes its reservation cancellable. */
  wait?: boolean;
  /** The request was denied before and is sent once more. */
  again?: boolean;
  /** Holds the charge for this time: milliseconds, or a text such as `"60s"`. */
  hold?: number | string;
}

export interface BatchRequest extends CheckRequest {
  ruleSet?: string;
}

export interface ConsumeRequest {
  /** The name of the bucket, or `SET/RULE` of a configured rule. */
  ruleId: string;
  /** One value, or several for a composite key. */
  identity?: string | string[];
  cost?: number;
  capacity?: number;
  refillTokensPerSecond?: number;
}

/** What the service says about one request. */
export class Decision {
  private constructor();
  readonly allowed: boolean;
  readonly outcome: Outcome;
  /** The rule and the band that are reported. */
  readonly rule: string | null;
  readonly band: string | null;
  readonly limit: number | null;
  readonly remaining: number | null;
  /** After how long the same request would pass, in milliseconds and in seconds; null: never. */
  readonly retryAfterMs: number | null;
  readonly retryAfter: number | null;
  /** How long until the band is full again. */
  readonly resetAfterMs: number;
  readonly resetAfter: number;
  /** How long an allowed request has to wait. */
  readonly delayMs: number;
  readonly delay: number;
  /** Every band that denied, as `rule/band`; of an allowed request those of shadow rules. */
  readonly violated: string[];
  /** The id of the hold, and the time in which to renew it. */
  readonly hold: string | null;
  readonly holdMs: number | null;
  /** The reservation of a request that has to wait. */
  readonly reservation: string | null;
  /** The status with which the gateway would answer. */
  readonly status: number;
  /** The limit headers of the answer, by their names in lower case. */
  readonly headers: Record<string, string>;
  /** Why the service did not decide, if it did not. */
  readonly error: Unavailable | null;
}

export interface Settlement {
  /** Replaces the cost of every rule. */
  cost?: number;
  /** Replaces the cost of the rules that count these attributes. */
  attributes?: Record<string, string | number>;
}

export interface Settled {
  charged: number;
  uncharged: number;
}

/** A charge that is not final. It is renewed until it is settled, released or left. */
export class Hold implements AsyncDisposable {
  private constructor();
  /** Null if nothing was charged. */
  readonly id: string | null;
  readonly decision: Decision;
  /** Whether it is still held, as far as is known here. */
  readonly isHeld: boolean;
  /**
   * Settles with the real cost and frees the slots; without an argument the charge stays as
   * reserved. Throws `HoldEnded`, or `Unavailable` if the service fails; then it may be called
   * again, or is when the hold is left.
   */
  settle(settlement?: number | Settlement): Promise<Settled>;
  /** Returns all units and slots. Resolves to whether this call has done so. */
  release(): Promise<boolean>;
  /** Extends it to this time from now, in milliseconds. Resolves to whether it is still held. */
  renew(holdFor?: number): Promise<boolean>;
  /** Ends it. What fails is tried again in the background. */
  leave(): Promise<boolean>;
  /** Stops renewing it, and leaves it as it is. */
  forget(): void;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface WaitOptions {
  /** The longest delay to accept, in milliseconds. */
  maxWait?: number;
  signal?: AbortSignal;
}

export interface HoldOptions {
  /** How long the hold lives without renewal: milliseconds, or a text such as `"60s"`; 60 s by default. */
  holdFor?: number | string;
  signal?: AbortSignal;
}

export class Client implements AsyncDisposable {
  constructor(url: string | URL, options?: ClientOptions);
  readonly onError: OnError;
  /** Decides a request, and charges it if it is allowed. */
  check(ruleSet: string | undefined, request?: CheckRequest): Promise<Decision>;
  /** Decides a request without charging it. */
  peek(ruleSet: string | undefined, request?: CheckRequest): Promise<Decision>;
  /** Decides up to 1,000 requests in one call, separately and in order. */
  batch(requests: BatchRequest[]): Promise<Decision[]>;
  /** Charges one bucket whose limit comes with the call, or one configured rule. */
  consume(request: ConsumeRequest): Promise<Decision>;
  /** Decides a request and sleeps for the delay of the decision. */
  wait(ruleSet: string | undefined, request?: CheckRequest, options?: WaitOptions): Promise<Decision>;
  /** Takes slots, or charges units that are settled later. Throws `Denied`. */
  hold(ruleSet: string | undefined, request?: CheckRequest, options?: HoldOptions): Promise<Hold>;
  /** Runs `work` while it holds, and leaves the hold when `work` has ended in any way. */
  withHold<T>(
    ruleSet: string | undefined,
    request: CheckRequest,
    work: (hold: Hold) => T | Promise<T>,
    options?: HoldOptions,
  ): Promise<T>;
  /** Renews the hold of a decision until it is settled, released or left. */
  keep(decision: Decision): Hold;
  /** Cancels the reservation of a decision with a delay. Resolves to whether it did. */
  cancel(decision: Decision): Promise<boolean>;
  /** Ends all holds, and closes all connections. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** The base of all errors of this package. */
export class FluxGateError extends Error {}

/** The service did not decide. */
export class Unavailable extends FluxGateError {
  readonly reason:
    | "deadline"
    | "connection"
    | "bad_response"
    | "circuit_open"
    | "invalid_request"
    | "closed";
}

/** The service refuses the call itself: a field is unknown or invalid, or a name does not exist. */
export class InvalidRequest extends FluxGateError {
  readonly problem: { type?: string; title?: string; status: number; detail?: string };
}

/** The decision is a denial. */
export class Denied extends FluxGateError {
  readonly decision: Decision;
  readonly status: number;
  readonly statusCode: number;
  readonly headers: Record<string, string>;
}

/** The hold was settled or released before, or has expired. */
export class HoldEnded extends FluxGateError {}
