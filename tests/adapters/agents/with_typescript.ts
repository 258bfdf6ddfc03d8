/** An agent without a framework, which calls its tools as docs/frameworks.md has it. */

import { GatedTools, isNotMade, notMade } from "@amends/client";

import { CALLS, DECLARED, play, TOOLS } from "./common.ts";

await play(async (desk) => {
  const tools = new GatedTools(desk, DECLARED);
  const told: string[] = [];
  for (const { tool, args, id } of CALLS) {
    try {
      const { answer } = await tools.call(tool, args, id, TOOLS[tool as keyof typeof TOOLS]);
      told.push(JSON.stringify(answer));
    } catch (error) {
      if (!isNotMade(error)) throw error;
      told.push(notMade(error));
    }
  }
  return told;
});
