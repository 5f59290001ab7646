// Stops asking a service that fails, so that not every request pays for the deadline.

/** So many failures in a row open the circuit. */
const FAILURES = 3;
/** For so long the service is not asked, in milliseconds. */
const PAUSE = 500;

/** A circuit breaker: closed, open, or half open with one probe at a time. */
export class Circuit {
  #failures = 0;
  /** The end of the pause, while the circuit is open. */
  #openUntil = undefined;
  #isProbing = false;

  /** Returns a permit to ask the service, or undefined if it must not be asked now. */
  admit(now = performance.now()) {
    if (this.#openUntil === undefined) return { isProbe: false };
    if (this.#isProbing || now < this.#openUntil) return undefined;
    this.#isProbing = true;
    return { isProbe: true };
  }

  /** Records that the service has answered. */
  succeeded() {
    this.#failures = 0;
    this.#openUntil = undefined;
    this.#isProbing = false;
  }

  /** Records that the service has failed. */
  failed(permit, now = performance.now()) {
    if (permit.isProbe) this.#isProbing = false;
    // Calls from before the circuit opened must not prolong the pause.
    else if (this.#openUntil !== undefined) return;
    this.#failures += 1;
    if (this.#failures >= FAILURES) this.#openUntil = now + PAUSE;
  }
}
