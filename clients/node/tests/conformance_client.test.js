import { runCases } from "./support/conformance.js";

runCases("client", "client");
