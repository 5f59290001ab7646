// An Express application with limits.
//
// node express.mjs [PORT [URL]]

import express from "express";
import { Client } from "fluxgate";
import { rateLimit } from "fluxgate/express";

const [port = "9000", url = "http://127.0.0.1:8081"] = process.argv.slice(2);
const client = new Client(url);

const app = express();
app.use(rateLimit({ client, ruleSet: "pages", exclude: ["/health"] }));
app.get("/health", (req, res) => {
  res.send("healthy\n");
});
app.get("/", (req, res) => {
  res.send("hello\n");
});
app.listen(Number(port), "127.0.0.1", () => console.log(`listening on port ${port}`));
