/**
 * The TypeScript client, driven: one step per line in, what came of it per line out. What the steps
 * are is told in test_contract.py; driver.py does the same with the Python client.
 */

import { appendFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

import { type Action, connect, type Desk, NoEffect, type Run } from "../../sdk-js/src/index.ts";
import { compact, type Json, parseJson } from "../../sdk-js/src/protocol/canonical.ts";
import type { JsonObject } from "../../sdk-js/src/protocol/canonical.ts";
import { plain } from "../../sdk-js/src/values.ts";

const [url, key, spool, outside, workspace] = process.argv.slice(2) as [string, ...string[]];
let desk: Desk;
let run: Run;
let lines: AsyncIterator<string>;
let waited: string[] = [];

function planned(step: JsonObject): object {
  const { target, args, before, key, op, risk, saga } = step as any;
  const { effect_class: effectClass, wait_seconds: waitSeconds } = step as any;
  const { time_limit_seconds: timeLimitSeconds } = step as any;
  const { accepts_changed_arguments: acceptsChangedArguments } = step as any;
  const { schema } = step as any;
  const limits = { waitSeconds, timeLimitSeconds, acceptsChangedArguments, schema };
  const how = { key, op, risk, saga, effectClass, ...limits };
  return { target, args, before, ...how };
}

async function act(step: JsonObject): Promise<JsonObject> {
  const { tool, after } = step as any;
  return run.action(tool, planned(step), async (action: Action) => {
    if (step["changes"]) setTimeout(() => Object.assign(step["args"]!, step["changes"]), 900);
    await sleep(Number(step["thinks"] ?? 0) * 1000);
    const made = () => action.perform((given) => call(step, given as JsonObject));
    const isTriedAgain = (no: Error) => step["tries_again"] && no instanceof NoEffect;
    const result = await made().catch((no) => (isTriedAgain(no) ? made() : Promise.reject(no)));
    if (!action.replayed && "after" in step) await action.succeeded(result, { after });
    const found = action.approval && [action.approval.id, action.approval.url];
    return { came: action.replayed ? "replayed" : "made", result: plain(result), waited, found };
  });
}

/** The outside world: a line in a journal. */
async function call(step: JsonObject, given: JsonObject): Promise<Json> {
  appendFileSync(outside!, `${String(step["tool"])} ${compact(given)}\n`);
  if (step["hangs"]) {
    say({ came: "hangs" });
    await sleep(60_000);
  }
  await sleep(Number(step["lasts"] ?? 0) * 1000);
  if (step["pauses"]) {
    say({ came: "pauses" });
    await lines.next();
  }
  if (step["fails"] === "no_effect") throw new NoEffect("sold out");
  if (step["fails"]) throw new Error("time is over");
  return step["result"] ?? null;
}

const steps: { [name: string]: (step: JsonObject) => Promise<JsonObject> } = {
  async connect(step) {
    const waitSeconds = Number(step["wait_seconds"] ?? 20);
    const named = step["workspace"] ? { workspace: workspace! } : {};
    waited = [];
    const onWait = ({ approval }: JsonObject): void => void waited.push(String(approval));
    const own = String(step["key"] ?? key);
    desk = connect({ url, key: own, spool, waitSeconds, onWait, log: () => undefined, ...named });
    return {};
  },
  async start(step) {
    run = await desk.open(String(step["request"] ?? "Move it"), { run: String(step["run"]) });
    return {};
  },
  async resume(step) {
    return desk.resume(String(step["run"]), {}, async (resumed) => {
      run = resumed;
      const mailed = run.isDone("send_mail", { target: ["mail", "mia"] });
      const done = [mailed, run.isDone("update_flight")];
      return { found: resumed.state, done, came: (await act(step)).came! };
    });
  },
  act,
  async explain(step) {
    return { found: await run.explain(String(step["tool"]), planned(step)) };
  },
  async checkpoint(step) {
    await run.checkpoint(String(step["name"]), { state: step["state"] });
    return {};
  },
  async fail(step) {
    await run.fail(new Error(String(step["because"])));
    return {};
  },
  async complete() {
    await run.complete();
    return {};
  },
  async fetch_policy() {
    await desk.fetchPolicy();
    return {};
  },
  async two_minutes_later() {
    const now = performance.now.bind(performance);
    performance.now = () => now() + 120_000;
    return {};
  },
  async say_poison(step) {
    await run.say("run.checkpoint", { name: step["name"], poison: step["name"] });
    return {};
  },
  async flush(step) {
    return { sent: await desk.flush(Number(step["seconds"] ?? 5)) };
  },
  async parked() {
    const aside = desk.parked();
    return { parked: aside.map(({ event, problem }) => [event.type, problem["title"] ?? ""]) };
  },
  async close() {
    await desk.close();
    return {};
  },
};

function say(what: JsonObject): void {
  process.stdout.write(`${compact(what)}\n`);
}

lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
for (let line = await lines.next(); !line.done; line = await lines.next()) {
  const step = parseJson(line.value) as JsonObject;
  try {
    say({ came: "done", ...(await steps[String(step["do"])]!(step)) });
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    say({ came: error.name, words: error.message });
  }
}
