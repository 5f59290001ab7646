import { runCases } from "./support/conformance.js";
import { SERVERS } from "./support/servers.js";

runCases("nest", "http", SERVERS.nest);
