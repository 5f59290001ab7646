import { runCases } from "./support/conformance.js";
import { SERVERS } from "./support/servers.js";

runCases("express", "http", SERVERS.express);
