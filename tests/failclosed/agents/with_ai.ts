/**
 * The AI SDK's own gates, as its documentation builds them: `user-approval`, which pauses and goes
 * on from the messages that were stored, and a function as `toolApproval`, which asks by itself.
 *
 *     node with_ai.ts '{"approver": …, "journal": …, "state": …, "fault": …, "gate": …}'
 *
 * It makes one call of `assign_licence`, as common.py tells of the other agents.
 */

import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";

import { generateText, isStepCount, type ModelMessage, tool } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { z } from "zod";

const ASKED = JSON.parse(process.argv[2]!) as {
  approver: string;
  journal: string;
  state: string;
  fault: string;
  gate: "pause" | "hook";
};
const TOOL = "assign_licence";
const ARGS = { licence: "L-21", holder: "mia" };
const OTHER = "L-99";
const LIMIT_MILLISECONDS = 2000;

const assignLicence = tool({
  inputSchema: z.object({ licence: z.string(), holder: z.string() }),
  execute: async (args) => {
    appendFileSync(ASKED.journal, `${JSON.stringify([TOOL, args])}\n`);
    if (ASKED.fault === "dies in the tool") process.kill(process.pid, "SIGKILL");
    return args;
  },
});

/** What goes wrong where the SDK asks our own code whether to ask. */
function inTheHook(): void {
  if (ASKED.fault === "exception") throw new Error("a mistake in the hook");
  if (ASKED.fault === "killed hook") process.kill(process.pid, "SIGKILL");
}

/** What the approver says. Whatever is not a yes throws, as fetch does. */
async function approved(): Promise<boolean> {
  const body = JSON.stringify({ run: "run_1", tool: TOOL, args: ARGS });
  const signal = AbortSignal.timeout(LIMIT_MILLISECONDS);
  const answer = await fetch(`${ASKED.approver}/ask`, { method: "POST", body, signal });
  return ((await answer.json()) as { approved: boolean }).approved;
}

const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};

/** The model asks for the call once, and is done. */
function model(asks: boolean): MockLanguageModelV4 {
  let left = asks;
  return new MockLanguageModelV4({
    async doGenerate() {
      const input = JSON.stringify(ARGS);
      const content = left
        ? { type: "tool-call" as const, toolCallId: "call_1", toolName: TOOL, input }
        : { type: "text" as const, text: "Done." };
      const unified = left ? ("tool-calls" as const) : ("stop" as const);
      left = false;
      return { content: [content], finishReason: { unified, raw: undefined }, usage, warnings: [] };
    },
  });
}

const tools = { [TOOL]: assignLicence };
const stopWhen = isStepCount(5);
const messages: ModelMessage[] = [{ role: "user", content: "Onboard Mia" }];

/** What is stored of the paused run. */
async function start(): Promise<string> {
  const toolApproval = () => {
    inTheHook();
    return "user-approval" as const;
  };
  const done = await generateText({ model: model(true), tools, messages, stopWhen, toolApproval });
  messages.push(...done.response.messages);
  return JSON.stringify(messages);
}

async function goOn(stored: string, yes: boolean): Promise<void> {
  const told = JSON.parse(stored) as ModelMessage[];
  const asked = told
    .flatMap(({ content }) => (typeof content === "string" ? [] : content))
    .filter((part) => part.type === "tool-approval-request");
  const answers = asked.map(({ approvalId }) => ({
    type: "tool-approval-response" as const,
    approvalId,
    approved: yes,
  }));
  const toolApproval = () => "user-approval" as const;
  told.push({ role: "tool", content: answers });
  await generateText({ model: model(false), tools, messages: told, stopWhen, toolApproval });
}

if (ASKED.gate === "pause") {
  if (!existsSync(ASKED.state)) writeFileSync(ASKED.state, await start());
  if (ASKED.fault !== "pauses") {
    const stored = readFileSync(ASKED.state, "utf-8");
    const yes = await approved();
    const changed = ASKED.fault === "changed";
    await goOn(changed ? stored.replaceAll(ARGS.licence, OTHER) : stored, yes);
  }
} else {
  const toolApproval = async () => {
    inTheHook();
    const yes = await approved();
    return yes ? ("approved" as const) : ("denied" as const);
  };
  // Another setting of the SDK that may change what the model has asked for.
  const refine = ({ licence, holder }: typeof ARGS) => ({
    licence: ASKED.fault === "changed" ? OTHER : licence,
    holder,
  });
  await generateText({
    model: model(true),
    tools,
    messages,
    stopWhen,
    toolApproval,
    experimental_refineToolInput: { [TOOL]: refine },
  });
}
