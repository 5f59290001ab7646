/**
 * A request that servers may read in different ways, so that another request could be counted
 * than the one that is served. It is answered with 400.
 */
export class Ambiguous extends Error {}
