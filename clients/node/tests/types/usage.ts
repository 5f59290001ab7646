// Compiled, not run: the declarations allow what they should, and nothing else.

import { Controller, Get, UseGuards, type INestApplication } from "@nestjs/common";
import express, { type Request } from "express";
import fastify from "fastify";
import Koa from "koa";

import { Client, Denied, type Decision, type Hold, type Outcome } from "fluxgate";
import { rateLimit, resultOf, type RateLimitOptions } from "fluxgate/express";
import * as forFastify from "fluxgate/fastify";
import * as forKoa from "fluxgate/koa";
import * as forNest from "fluxgate/nest";

const client = new Client("http://127.0.0.1:8081", { onError: "allow", deadline: 100 });

export async function calls(): Promise<void> {
  const decision: Decision = await client.check("api", { user: "ann", attributes: { n: 1 } });
  const outcome: Outcome = decision.outcome;
  const retry: number | null = decision.retryAfter;
  const batch: Decision[] = await client.batch([{ ruleSet: "api", user: "ann" }]);
  const consumed = await client.consume({ ruleId: "mail", identity: ["a", "b"], capacity: 5 });
  await client.wait("api", {}, { maxWait: 1_000, signal: AbortSignal.timeout(5_000) });
  const count: number = await client.withHold("exports", { user: "ann" }, async (hold) => {
    await hold.settle({ attributes: { tokens: 3 } });
    return 1;
  });
  {
    await using hold: Hold = await client.hold("exports", { user: "ann" }, { holdFor: "10s" });
    await hold.renew();
  }
  try {
    await client.hold("exports");
  } catch (error) {
    if (error instanceof Denied) console.log(error.decision.violated, error.status);
  }
  console.log(outcome, retry, batch, consumed.remaining, count);
  await client.close();
  // @ts-expect-error: there is no such field
  await client.check("api", { usr: "ann" });
  // @ts-expect-error: there is no such value
  new Client("http://127.0.0.1:8081", { onError: "open" });
}

export function applications(nest: INestApplication): void {
  const app = express();
  app.use(rateLimit({ client, ruleSet: "api-limits", user: (req) => req.get("x-user-id") }));
  const options: RateLimitOptions<Request> = { client, ruleSet: "a", trustedProxies: ["10.0.0.0/8"] };
  app.get("/x", rateLimit(options), (req, res) => {
    res.json(resultOf(req)?.decision.remaining);
  });
  // @ts-expect-error: a client is needed
  rateLimit({ ruleSet: "api-limits" });

  const server = fastify();
  server.register(forFastify.rateLimit({ client, ruleSet: "api", user: (request) => request.ip }));
  server.register(forFastify.rateLimit, { client, ruleSet: "api" });
  server.addHook("onRequest", forFastify.rateLimit({ client, ruleSet: "api" }));
  server.get("/x", { onRequest: forFastify.rateLimit({ client, ruleSet: "api" }) }, async (request) => {
    await forFastify.resultOf(request)?.hold?.settle(2);
  });

  const koa = new Koa();
  koa.use(forKoa.rateLimit({ client, ruleSet: "api", user: (context) => context.get("x-user-id") }));
  koa.use((context) => {
    context.body = forKoa.resultOf(context)?.decision;
  });

  nest.useGlobalGuards(forNest.rateLimit({ client, ruleSet: "api" }));
  nest.useGlobalGuards(new forNest.RateLimitGuard<Request>({ client, user: (req) => req.ip }));
}

@Controller()
export class Routes {
  @UseGuards(forNest.rateLimit({ client, ruleSet: "api" }))
  @Get()
  get(): string {
    return "ok";
  }
}
