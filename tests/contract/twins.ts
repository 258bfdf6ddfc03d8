/**
 * A licence service with twins of the TypeScript client, driven: a request per line in, an answer
 * out. What the moods are is told in test_twins.py; twins.py is the same service in Python.
 */

import { once } from "node:events";
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

import { NoEffect, Twins } from "../../sdk-js/src/index.ts";
import { compact, type JsonObject, parseJson } from "../../sdk-js/src/protocol/canonical.ts";

const [store, journal, secrets] = process.argv.slice(2) as [string, string, string];
let mood = "well";
console.error = () => undefined;

function done(): string[] {
  return existsSync(journal) ? readFileSync(journal, "utf8").split("\n") : [];
}

const twins = new Twins(secrets.split(" "), { store }).undo("release_licence", {
  async apply(_args, target, key) {
    if (mood === "locked") throw new NoEffect("the licence is locked by billing");
    if (mood === "killed before") process.kill(process.pid, "SIGKILL");
    if (mood === "slow") {
      appendFileSync(`${journal}.begun`, "");
      while (!existsSync(`${journal}.go`)) await sleep(20);
    }
    appendFileSync(journal, `${target.id} ${key}\n`);
    if (mood === "killed after") process.kill(process.pid, "SIGKILL");
    if (mood === "dying") throw new Error("time is over");
  },
  observe(_args, target) {
    const isGone = done().some((line) => line.split(" ")[0] === target.id);
    return isGone ? null : { holder: "Mia Li", seat: 7 };
  },
  probe(_args, target, key) {
    return mood === "forgetful" ? null : done().includes(`${target.id} ${key}`);
  },
});

twins.undo("restore_seat", {
  apply(_args, _target, _key, { before }) {
    if (before === undefined) throw new NoEffect("nothing was recorded");
    appendFileSync(journal, `${compact(before).replace(":", ": ")}\n`);
  },
});

// By turns in the two ways in which it is served.
const server = createServer(twins.listener).listen(0, "127.0.0.1");
await once(server, "listening");
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
let isWeb = false;

for await (const line of createInterface({ input: process.stdin })) {
  const asked = parseJson(line) as JsonObject;
  mood = String(asked["mood"] ?? "well");
  const headers = asked["headers"] as { [name: string]: string };
  const request = new Request(url, { method: "POST", headers, body: String(asked["body"]) });
  isWeb = !isWeb;
  const answered = await (isWeb ? twins.fetch(request) : fetch(request));
  const answer = parseJson(await answered.text()) as JsonObject;
  process.stdout.write(`${compact({ status: answered.status, ...answer })}\n`);
}
server.close();
