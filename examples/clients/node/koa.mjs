// A Koa application with limits.
//
// node koa.mjs [PORT [URL]]

import { Client } from "fluxgate";
import { rateLimit } from "fluxgate/koa";
import Koa from "koa";

const [port = "9000", url = "http://127.0.0.1:8081"] = process.argv.slice(2);
const client = new Client(url);

const app = new Koa();
app.use(rateLimit({ client, ruleSet: "pages", exclude: ["/health"] }));
app.use((context) => {
  context.body = context.path === "/health" ? "healthy\n" : "hello\n";
});
app.listen(Number(port), "127.0.0.1", () => console.log(`listening on port ${port}`));
