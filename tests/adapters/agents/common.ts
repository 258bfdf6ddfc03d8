/**
 * What the agents on Node share, as common.py has it for the others: their tools, what goes wrong
 * with them, and what is told of them afterwards as one line of JSON.
 */

import { appendFileSync } from "node:fs";

import { connect, type Declaration, type Desk, NoEffect } from "@amends/client";

type Calls = [tool: string, args: Record<string, string>, id?: string][];
export const ASKED = JSON.parse(process.argv[2]!) as {
  url: string;
  key: string;
  spool: string;
  run: string;
  calls: Calls;
  service?: string;
  wait_seconds?: number;
  interrupts?: boolean;
  resumes?: unknown[];
  is_away?: boolean;
  fault?: string;
  journal?: string;
};
export const CALLS = ASKED.calls.map(([tool, args, id], at) => ({
  tool,
  args,
  id: id ?? `call_${at}`,
}));
const OTHER = "L-99";
const ran: [string, string][] = [];

/** While the gate waits for people. */
function inTheHook(): void {
  if (ASKED.fault === "exception") throw new Error("a mistake in the hook");
  if (ASKED.fault === "killed hook") process.kill(process.pid, "SIGKILL");
  if (ASKED.fault === "changed") CALLS[0]!.args["licence"] = OTHER;
}

export const TOOLS = {
  /** Give a licence to somebody. */
  async assign_licence({ licence, holder }: Record<string, string>): Promise<object> {
    ran.push(["assign_licence", licence!]);
    if (ASKED.journal) {
      appendFileSync(ASKED.journal, `${JSON.stringify(["assign_licence", licence])}\n`);
    }
    if (ASKED.fault === "dies in the tool") process.kill(process.pid, "SIGKILL");
    if (ASKED.service) {
      const body = JSON.stringify({ id: licence, holder, seat: 1 });
      await fetch(`${ASKED.service}/hold`, { method: "POST", body });
    }
    if (ASKED.fault === "fails at its server") {
      return { content: [{ type: "text", text: "no seat is free" }], isError: true };
    }
    return { licence, holder };
  },
  /** Send a letter of welcome. */
  async send_welcome({ to }: Record<string, string>): Promise<string> {
    ran.push(["send_welcome", to!]);
    throw new NoEffect("the mail server does not take it");
  },
  /** Look somebody up. */
  async look_up({ name }: Record<string, string>): Promise<string> {
    ran.push(["look_up", name!]);
    return `${name} is seen for the ${ran.length}. time`;
  },
};

export const DECLARED: { [name in keyof typeof TOOLS]: Declaration } = {
  assign_licence: {
    target: ["licence", "{licence}"],
    before: () => null,
    after: (_result, { holder }) => ({ holder, seat: 1 }),
    effectClass: "internal_update",
  },
  send_welcome: { target: ["mail", "{to}"], effectClass: "internal_update" },
  look_up: { effectClass: "read_only" },
};

/** `agent` makes the calls and returns what the model was told of each. */
export async function play(agent: (desk: Desk) => Promise<string[]>): Promise<void> {
  const { url, key, spool, run: id, wait_seconds: waitSeconds = 30 } = ASKED;
  const desk = connect({ url, key, spool, waitSeconds, onWait: inTheHook });
  const onBehalfOf = { id: "mia", name: "Mia Li" };
  let told: string[] = [];
  let error = "";
  try {
    await desk.run("Onboard Mia and Tom", { run: id, onBehalfOf }, async (run) => {
      told = await agent(desk);
      if (ran.some(([tool]) => tool === "send_welcome")) {
        await run.fail(new Error("the welcome could not be sent"));
      }
    });
  } catch (wrong) {
    error = String(wrong); // it is what the test asks about
  }
  await desk.close({ seconds: ASKED.is_away ? 0 : 20 });
  process.stdout.write(`${JSON.stringify({ ran, told, error })}\n`);
}
