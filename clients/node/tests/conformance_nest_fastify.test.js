import { runCases } from "./support/conformance.js";
import { SERVERS } from "./support/servers.js";

runCases("nest on fastify", "http", SERVERS["nest on fastify"]);
