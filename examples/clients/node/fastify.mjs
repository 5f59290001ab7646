// A Fastify application with limits.
//
// node fastify.mjs [PORT [URL]]

import fastify from "fastify";
import { Client } from "fluxgate";
import { rateLimit } from "fluxgate/fastify";

const [port = "9000", url = "http://127.0.0.1:8081"] = process.argv.slice(2);
const client = new Client(url);

const app = fastify();
app.register(rateLimit({ client, ruleSet: "pages", exclude: ["/health"] }));
app.addHook("onClose", () => client.close());
app.get("/health", async () => "healthy\n");
app.get("/", async () => "hello\n");
await app.listen({ port: Number(port), host: "127.0.0.1" });
console.log(`listening on port ${port}`);
