import { runCases } from "./support/conformance.js";
import { SERVERS } from "./support/servers.js";

runCases("koa", "http", SERVERS.koa);
