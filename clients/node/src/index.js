export { Client } from "./client.js";
export { Decision } from "./decision.js";
export { Denied, FluxGateError, HoldEnded, InvalidRequest, Unavailable } from "./errors.js";
export { Hold } from "./holds.js";
