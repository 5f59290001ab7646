// A NestJS application with limits.
//
// npx tsc && node dist/nest.js [PORT [URL]]

import "reflect-metadata";
import { Controller, Get, Module, UseGuards } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { Client } from "fluxgate";
import { rateLimit } from "fluxgate/nest";

const [port = "9000", url = "http://127.0.0.1:8081"] = process.argv.slice(2);
const client = new Client(url);

@Controller()
class Pages {
  @Get("health")
  health(): string {
    return "healthy\n";
  }

  @UseGuards(rateLimit({ client, ruleSet: "pages" }))
  @Get()
  hello(): string {
    return "hello\n";
  }
}

@Module({ controllers: [Pages] })
class App {
  // Called after `app.enableShutdownHooks()`.
  onApplicationShutdown(): Promise<void> {
    return client.close();
  }
}

const app = await NestFactory.create(App, { logger: ["warn", "error"] });
app.enableShutdownHooks();
await app.listen(Number(port), "127.0.0.1");
console.log(`listening on port ${port}`);
