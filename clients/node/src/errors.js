// Errors of the client. They carry the names by which frameworks choose a status.

/** The base of all errors of this package. */
export class FluxGateError extends Error {
  get name() {
    return this.constructor.name;
  }
}

/**
 * The service did not decide: it is down, slow, or answers something else than a decision.
 * `reason` says which, and `cause` has the error below.
 */
export class Unavailable extends FluxGateError {
  constructor(reason, message, cause) {
    super(message, cause === undefined ? undefined : { cause });
    this.reason = reason;
  }
}

/** The hold has ended: it was settled or released before, or has expired. */
export class HoldEnded extends FluxGateError {
  constructor() {
    super("the hold has ended: it was settled, was released or has expired");
  }
}

/** The service refuses the call itself: a field is unknown or invalid, or a name does not exist. */
export class InvalidRequest extends FluxGateError {
  constructor(problem) {
    super(`FluxGate answers ${problem.status}: ${problem.detail ?? problem.title}`);
    // Not `status`: frameworks would send it to a client that is not at fault.
    this.problem = problem;
  }
}

/** The decision is a denial. */
export class Denied extends FluxGateError {
  constructor(decision) {
    super(`FluxGate denies the request: ${decision.outcome}`);
    this.decision = decision;
    this.status = this.statusCode = decision.status;
    // Express and Koa send these with the status.
    this.headers = { ...decision.headers };
  }
}
