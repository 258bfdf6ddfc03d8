/** An agent of the AI SDK, with its own mock model. */

import { generateText, isStepCount, type ModelMessage, tool } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { z } from "zod";

import { gated } from "@amends/client/ai";

import { ASKED, CALLS, DECLARED, play, TOOLS } from "./common.ts";

const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};
const partOf = ({ id, tool: toolName, args }: (typeof CALLS)[number]) => ({
  type: "tool-call" as const,
  toolCallId: id,
  toolName,
  input: JSON.stringify(args),
});
let step = 0;
const model = new MockLanguageModelV4({
  async doGenerate() {
    const call = CALLS[step++];
    const content = call ? partOf(call) : { type: "text" as const, text: "Done." };
    const unified = call ? ("tool-calls" as const) : ("stop" as const);
    return { content: [content], finishReason: { unified, raw: undefined }, usage, warnings: [] };
  },
});
const tools = {
  assign_licence: tool({
    inputSchema: z.object({ licence: z.string(), holder: z.string() }),
    execute: TOOLS.assign_licence,
  }),
  send_welcome: tool({ inputSchema: z.object({ to: z.string() }), execute: TOOLS.send_welcome }),
  look_up: tool({ inputSchema: z.object({ name: z.string() }), execute: TOOLS.look_up }),
};

await play(async (desk) => {
  const told: string[] = [];
  const behind = gated(desk, tools, { declared: DECLARED, pauses: ASKED.interrupts ?? false });
  const messages: ModelMessage[] = [{ role: "user", content: "Onboard Mia and Tom" }];
  for (let resumed = 0; ; resumed += 1) {
    const done = await generateText({ model, ...behind, messages, stopWhen: isStepCount(9) });
    messages.push(...done.response.messages);
    for (const { content } of done.steps) {
      for (const part of content) {
        if (part.type === "tool-result") told.push(JSON.stringify(part.output));
        if (part.type === "tool-error") told.push(String(part.error));
        if (part.type === "tool-approval-request") told.push(String(part.reason).split(",")[0]!);
      }
    }
    const waiting = done.content.filter((part) => part.type === "tool-approval-request");
    if (waiting.length === 0 || resumed >= (ASKED.resumes ?? []).length) return told;
    const approved = waiting.map(({ approvalId }) => ({
      type: "tool-approval-response" as const,
      approvalId,
      approved: true,
    }));
    messages.push({ role: "tool", content: approved });
  }
});
