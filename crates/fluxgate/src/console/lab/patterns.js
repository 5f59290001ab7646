// How many requests each slot of a pattern has.

import { MOST_PER_SLOT, SLOTS } from "./settings.js";

/** @typedef {import("./settings.js").Settings} Settings */

const BURSTS = 6;

/**
 * @param {Settings} settings
 * @returns {number[]} the requests of each slot
 */
export function countsOf(settings) {
  const { pattern, requests } = settings;
  if (pattern === "drawn") return settings.drawn;
  if (pattern === "random") return randomCounts(settings);
  if (pattern === "ramp") return spread(requests, (slot) => slot + 0.5);
  if (pattern === "bursts") {
    const every = SLOTS / BURSTS;
    const wide = Math.max(2, Math.ceil(requests / BURSTS / MOST_PER_SLOT));
    return spread(requests, (slot) => (slot % every < wide ? 1 : 0));
  }
  if (pattern === "edge") {
    const edge = edgeSlot(settings);
    const wide = Math.max(3, Math.ceil(requests / 2 / MOST_PER_SLOT));
    return spread(requests, (slot) => (slot >= edge - wide && slot < edge + wide ? 1 : 0));
  }
  return spread(requests, () => 1);
}

/**
 * Returns the times of the window edges within the pattern, in milliseconds.
 * @param {Settings} settings
 */
export function edgesOf({ duration, window }) {
  const edges = [];
  for (let edge = window; edge < duration; edge += window) edges.push(edge);
  return edges;
}

/**
 * Returns the slot that starts at the window edge nearest to the middle, or the middle one.
 * @param {Settings} settings
 */
function edgeSlot(settings) {
  const middle = settings.duration / 2;
  const edges = edgesOf(settings);
  if (edges.length === 0) return SLOTS / 2;
  const nearest = edges.reduce((best, edge) =>
    Math.abs(edge - middle) < Math.abs(best - middle) ? edge : best);
  return Math.round((nearest / settings.duration) * SLOTS);
}

/**
 * Spreads requests over the slots by weight. Rounding the running sum keeps the total exact.
 * @param {number} requests
 * @param {(slot: number) => number} weight
 */
function spread(requests, weight) {
  const weights = Array.from({ length: SLOTS }, (_, slot) => weight(slot));
  const total = weights.reduce((sum, each) => sum + each, 0);
  let sum = 0;
  let given = 0;
  return weights.map((each) => {
    sum += each;
    const due = Math.round((requests * sum) / total);
    const count = Math.min(MOST_PER_SLOT, due - given);
    given = due;
    return count;
  });
}

/**
 * Independent arrivals: the count of each slot has a Poisson distribution.
 * @param {Settings} settings
 */
function randomCounts({ requests, seed }) {
  const next = generator(seed);
  const none = Math.exp(-requests / SLOTS);
  return Array.from({ length: SLOTS }, () => {
    let count = 0;
    for (let product = next(); product > none && count < MOST_PER_SLOT; product *= next()) count++;
    return count;
  });
}

/**
 * Returns a generator of numbers from 0 to 1 (mulberry32), so that a link repeats its pattern.
 * @param {number} seed
 */
function generator(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
