// Holds: charges that are not final, and slots that are taken while something runs.

import { HoldEnded, InvalidRequest, Unavailable } from "./errors.js";

/** How many holds the service renews in one call. */
const MAX_RENEWED = 1_000;
/** How long to wait before calls that failed are repeated, in milliseconds. */
const RETRY = 250;
/** How many calls are repeated at a time. */
const MAX_REPEATED = 8;

/** Returns all units and slots. */
export const RELEASE = { cost: 0 };
/** Leaves the charge as it was reserved, and frees the slots. */
export const AS_RESERVED = {};

/** A hold that is renewed until it is settled, released or left. */
export class Hold {
  #keeper;
  /** How it is settled when it is left. */
  #settlement;
  /** Resolves when a settlement in progress has ended. */
  #settling = undefined;

  constructor(keeper, decision, settlement) {
    this.#keeper = keeper;
    this.#settlement = settlement;
    this.id = decision.hold;
    this.decision = decision;
    if (this.id !== null) keeper.keep(this);
  }

  /** Whether it is still held, as far as is known here. */
  get isHeld() {
    return this.id !== null && this.#keeper.keeps(this);
  }

  /**
   * Settles with the real cost and frees the slots. Without an argument the charge stays as
   * reserved. If that fails, it may be tried again; if it is not, it is when the hold is left.
   */
  async settle(settlement = AS_RESERVED) {
    // Nothing was charged: there was no rule, or no service.
    if (this.id === null) return { charged: 0, uncharged: 0 };
    if (!this.isHeld) throw new HoldEnded();
    this.#settlement = typeof settlement === "number" ? { cost: settlement } : settlement;
    const settled = this.#keeper.settle(this, this.#settlement);
    this.#settling = settled.catch(() => {});
    return settled;
  }

  /** Returns all units and slots. Resolves to whether this call has done so. */
  release() {
    this.#settlement = RELEASE;
    return this.leave();
  }

  /** Extends it to this time from now. Resolves to whether it is still held. */
  async renew(holdFor = this.decision.holdMs) {
    return this.isHeld && this.#keeper.renewOne(this, holdFor);
  }

  /**
   * Ends it: settles it if a settlement has failed before, and releases it otherwise. What fails
   * is tried again in the background. Resolves to whether it has ended now.
   */
  async leave() {
    await this.#settling;
    return this.isHeld && this.#keeper.end(this, this.#settlement);
  }

  /** Stops renewing it, and leaves it as it is. */
  forget() {
    this.#keeper.forget(this);
  }

  [Symbol.asyncDispose]() {
    return this.leave();
  }
}

/** Renews the holds of a client in one call, and repeats the calls that end them if they fail. */
export class HoldKeeper {
  #call;
  /** The holds that are renewed, by their ids. */
  #kept = new Map();
  /** Calls that failed and give something back, by the ids of holds and reservations. */
  #unfinished = new Map();
  #renewal = undefined;
  #renewalDue = Infinity;
  #retry = undefined;
  #isClosed = false;

  /** `call(path, body)` resolves to the JSON of the answer. */
  constructor(call) {
    this.#call = call;
  }

  keep(hold) {
    const span = hold.decision.holdMs;
    this.#kept.set(hold.id, { hold, span, endsAt: performance.now() + span });
    this.#scheduleRenewal();
  }

  keeps(hold) {
    return this.#kept.has(hold.id);
  }

  forget(hold) {
    this.#kept.delete(hold.id);
  }

  async renewOne(hold, holdFor) {
    const sentAt = performance.now();
    try {
      await this.#call("/v1/renew", { hold: hold.id, hold_for: duration(holdFor) });
    } catch (error) {
      if (!isNotFound(error)) throw error;
      this.#kept.delete(hold.id);
      return false;
    }
    const kept = this.#kept.get(hold.id);
    if (kept !== undefined && typeof holdFor === "number") {
      kept.span = Math.min(kept.span, holdFor);
      kept.endsAt = sentAt + holdFor;
      this.#scheduleRenewal();
    }
    return true;
  }

  /** Settles a hold. It stays if that fails. */
  async settle(hold, settlement) {
    try {
      const { charged, uncharged } = await this.#settleNow(hold.id, settlement);
      this.#kept.delete(hold.id);
      return { charged, uncharged };
    } catch (error) {
      if (!isNotFound(error)) throw error;
      this.#kept.delete(hold.id);
      throw new HoldEnded();
    }
  }

  /** Settles a hold, now or in the background. Returns whether it has ended by this. */
  async end(hold, settlement) {
    const { endsAt } = this.#kept.get(hold.id);
    this.#kept.delete(hold.id);
    try {
      await this.#settleNow(hold.id, settlement);
      return true;
    } catch (error) {
      if (!isNotFound(error)) {
        this.#repeat(hold.id, () => this.#settleNow(hold.id, settlement), endsAt, RETRY);
      }
      return false;
    }
  }

  /** Cancels a reservation, now or in the background. Returns whether it is cancelled by this. */
  async cancel({ reservation, delayMs }) {
    const call = () => this.#call("/v1/cancel", { reservation });
    const endsAt = performance.now() + delayMs;
    try {
      await call();
      return true;
    } catch (error) {
      if (error instanceof Unavailable) this.#repeat(reservation, call, endsAt, RETRY);
      else if (!(error instanceof InvalidRequest)) throw error;
      return false;
    }
  }

  /** Gives back, in the background, what a decision has taken that came too late. */
  abandon(decision) {
    const { hold, holdMs, reservation, delayMs } = decision;
    const now = performance.now();
    if (reservation !== null) {
      const call = () => this.#call("/v1/cancel", { reservation });
      this.#repeat(reservation, call, now + delayMs, 0);
    } else if (hold !== null) {
      this.#repeat(hold, () => this.#settleNow(hold, RELEASE), now + holdMs, 0);
    }
  }

  /** Stops renewing, and tries once to end what is still held. */
  async close() {
    this.#isClosed = true;
    clearTimeout(this.#renewal);
    clearTimeout(this.#retry);
    const ended = Array.from(this.#kept.values(), ({ hold }) => hold.leave());
    await Promise.all([...ended, this.#repeatAll()]);
    this.#kept.clear();
    this.#unfinished.clear();
  }

  #settleNow(id, settlement) {
    if (settlement === RELEASE) return this.#call("/v1/release", { hold: id });
    return this.#call("/v1/settle", { hold: id, ...settlement });
  }

  /** Makes a call after a pause, again and again until it is answered or has no use any more. */
  #repeat(id, call, endsAt, pause) {
    if (this.#isClosed) return;
    this.#unfinished.set(id, { call, endsAt });
    this.#scheduleRetry(pause);
  }

  /** Renews after a third of the shortest hold: two more tries are left then. */
  #scheduleRenewal() {
    if (this.#isClosed || this.#kept.size === 0) return;
    let shortest = Infinity;
    for (const { span } of this.#kept.values()) shortest = Math.min(shortest, span);
    const due = performance.now() + shortest / 3;
    // Once set it only comes sooner: a short hold that comes and goes must not put off others.
    if (due >= this.#renewalDue) return;
    clearTimeout(this.#renewal);
    this.#renewalDue = due;
    this.#renewal = setTimeout(() => this.#renewAll(), shortest / 3).unref();
  }

  async #renewAll() {
    const all = [...this.#kept.entries()];
    for (let at = 0; at < all.length; at += MAX_RENEWED) {
      await this.#renewSome(all.slice(at, at + MAX_RENEWED));
    }
    this.#renewalDue = Infinity;
    this.#scheduleRenewal();
  }

  async #renewSome(some) {
    const sentAt = performance.now();
    const span = Math.max(...some.map(([, kept]) => kept.span));
    const holds = some.map(([id]) => id);
    let renewed;
    try {
      ({ renewed } = await this.#call("/v1/renew", { holds, hold_for: duration(span) }));
    } catch {
      // The next try may be in time.
      return;
    }
    some.forEach(([id, kept], at) => {
      if (renewed?.[at] === true) kept.endsAt = sentAt + kept.span;
      // It has expired, or was ended by something else.
      else if (renewed?.[at] === false) this.#kept.delete(id);
    });
  }

  #scheduleRetry(pause = RETRY) {
    if (this.#isClosed || this.#retry !== undefined || this.#unfinished.size === 0) return;
    const retry = async () => {
      await this.#repeatAll();
      this.#retry = undefined;
      this.#scheduleRetry();
    };
    this.#retry = setTimeout(retry, pause).unref();
  }

  /** Makes the calls that failed once more, until the service fails again. */
  async #repeatAll() {
    let isFailing = false;
    const left = this.#unfinished.entries();
    const next = async () => {
      for (const [id, { call, endsAt }] of left) {
        if (isFailing) return;
        try {
          if (performance.now() < endsAt) await call();
          this.#unfinished.delete(id);
        } catch (error) {
          if (error instanceof Unavailable) isFailing = true;
          else this.#unfinished.delete(id);
        }
      }
    };
    await Promise.all(Array.from({ length: MAX_REPEATED }, next));
  }
}

/** Returns a time as the service reads it. Takes milliseconds, or a text such as `60s`. */
export function duration(time) {
  return typeof time === "number" ? `${Math.ceil(time)}ms` : time;
}

function isNotFound(error) {
  return error instanceof InvalidRequest && error.problem.status === 404;
}
