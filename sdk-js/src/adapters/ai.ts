/**
 * The AI SDK (`ai` 7): the tools of an agent, each behind the desk.
 *
 *     const result = await generateText({ model, ...gated(desk, { updateFlight }), prompt });
 *
 * A yes that is given before a tool runs is no yes to what will run: other settings may still
 * change the input, and a history with somebody's approval in it runs the tool past every question.
 * So the tools themselves are wrapped, and ask the desk each time; `toolApproval` only ends an
 * agent that is stopped, and pauses for people where that is wanted.
 */

import { asSchema, type ToolSet } from "ai";

import type { Action } from "../actions.ts";
import type { Desk } from "../client.ts";
import { AmendsError, ApprovalTimeout, NoEffect, Stopped } from "../errors.ts";
import type { Plan } from "../plans.ts";
import { canonical } from "../protocol/canonical.ts";
import { currentRun, type Run } from "../runs.ts";
import { type Declaration, GatedTools, isNotMade, notMade } from "../tools.ts";
import { plain } from "../values.ts";

/** The call was not made; the SDK shows the model why. */
export class NotMade extends AmendsError {
  constructor(cause: AmendsError) {
    super(notMade(cause), { cause });
  }
}

/** The answer of an MCP server that says of itself that it is an error. */
class ToolError extends AmendsError {
  readonly answer: object;

  constructor(answer: { content: unknown }) {
    super(JSON.stringify(answer.content));
    this.answer = answer;
  }
}

export type GatedOptions<T extends ToolSet> = {
  /** What the desk should know of tools, by name. */
  declared?: { readonly [name in keyof T]?: Declaration };
  /** Tools that may be called twice alike in one run, and do it twice. */
  repeatable?: Iterable<keyof T & string>;
  waitSeconds?: number;
  /**
   * A call that waits for people ends the turn with a `tool-approval-request` instead of waiting.
   * Whatever is answered to it, the desk is asked anew.
   */
  pauses?: boolean;
  /** Tools that run past the desk, by your wish. */
  ungated?: Iterable<keyof T & string>;
};

type Approval = { type: "denied"; reason: string } | { type: "user-approval"; reason: string };
type Schema = PromiseLike<object>;
type Execute = (input: object, options: Options) => unknown;
type Options = { toolCallId: string; abortSignal?: AbortSignal };
type Asked = { toolCall: { toolName: string; toolCallId: string; input: unknown } };

/**
 * The tools, each asking the desk before it runs and saying how it went, and a `toolApproval`: give
 * both to `generateText`, `streamText` or `ToolLoopAgent`. The provider runs tools of its own past
 * whatever is put around them here, and a tool without `execute` is run by somebody else: such are
 * refused by name, unless `ungated` has them.
 */
export function gated<T extends ToolSet>(
  desk: Desk,
  tools: T,
  options: GatedOptions<T> = {},
): { tools: T; toolApproval: (asked: Asked) => Promise<Approval | undefined> } {
  const { declared = {}, repeatable = [], waitSeconds, pauses = false, ungated = [] } = options;
  const left = new Set<string>(ungated);
  const past = Object.keys(tools).filter((name) => !left.has(name) && !isOurs(tools[name]!));
  if (past.length > 0) {
    throw new AmendsError(
      `these would run without the desk being asked: ${past.join(", ")}. Name them in \`ungated\`` +
        " if that is what you want",
    );
  }
  warnOf(desk, Object.keys(tools), Object.keys(declared));
  const waits = pauses ? { waitSeconds: 0 } : waitSeconds === undefined ? {} : { waitSeconds };
  const known = declared as { readonly [name: string]: Declaration };
  const gate = new Gate(new GatedTools(desk, known, { repeatable, ...waits }), pauses);
  const wrapped = Object.entries(tools).map(([name, tool]) => {
    if (left.has(name)) return [name, tool];
    const execute = tool.execute as Execute;
    const schema = async () => asSchema(tool.inputSchema).jsonSchema;
    return [name, { ...tool, execute: gate.around(name, execute.bind(tool), schema) }];
  });
  const toolApproval = async ({ toolCall }: Asked) => {
    const { toolName, toolCallId, input } = toolCall;
    const isGated = !left.has(toolName) && Object.hasOwn(tools, toolName);
    return isGated ? gate.approve(toolName, input as object, toolCallId) : undefined;
  };
  return { tools: Object.fromEntries(wrapped) as T, toolApproval };
}

/** What is declared may be shared by agents of other tools; a name that is misspelled is told. */
function warnOf(desk: Desk, tools: readonly string[], declared: readonly string[]): void {
  const strange = declared.filter((name) => !tools.includes(name));
  for (const name of tools.filter((one) => !declared.includes(one))) {
    const meant = strange.find((one) => near(one, name));
    if (meant === undefined) continue;
    desk.log("warn", `nothing is declared of ${name}: is it “${meant}”, misspelled?`);
  }
}

/** Whether they differ in two letters at most, which stand together. */
function near(one: string, other: string): boolean {
  const end = Math.min(one.length, other.length);
  let [head, tail] = [0, 0];
  while (head < end && one[head] === other[head]) head += 1;
  while (tail < end - head && one.at(-1 - tail) === other.at(-1 - tail)) tail += 1;
  return Math.max(one.length, other.length) - head - tail <= 2;
}

function isOurs(tool: ToolSet[string]): boolean {
  return typeof tool.execute === "function" && tool.isProviderExecuted !== true;
}

class Gate {
  readonly #tools: GatedTools;
  readonly #pauses: boolean;
  /** Calls that the desk has allowed and that the SDK has not made yet. */
  readonly #allowed = new WeakMap<Run, Map<string, Action<object>>>();

  constructor(tools: GatedTools, pauses: boolean) {
    this.#tools = tools;
    this.#pauses = pauses;
  }

  around(name: string, execute: Execute, schema: () => Schema): Execute {
    return async (input, options) => {
      const { toolCallId, abortSignal } = options;
      const how: Partial<Plan<object>> = { schema: await schema(), signal: abortSignal };
      try {
        const act =
          this.#take(name, input, toolCallId) ??
          (await this.#tools.begin(name, input, toolCallId, how));
        const done = await this.#tools.finish(act, (args, { signal }) => {
          if (abortSignal?.aborted) throw new NoEffect("the turn was aborted before the call");
          const heeds = abortSignal ? AbortSignal.any([abortSignal, signal]) : signal;
          return heard(execute(args, { ...options, abortSignal: heeds }));
        });
        return done.answer;
      } catch (error) {
        if (error instanceof ToolError) return error.answer;
        throw isNotMade(error) ? new NotMade(error) : error;
      }
    };
  }

  /**
   * What the SDK is to do with a call before it makes it. Throws Stopped, which ends the agent: of
   * what a tool throws the SDK makes a message to the model.
   */
  async approve(name: string, input: object, callId: string): Promise<Approval | undefined> {
    const run = currentRun();
    if (run.stopped) throw run.stopped;
    if (!this.#pauses) return undefined;
    try {
      this.#keep(run, nameOf(name, input, callId), await this.#tools.begin(name, input, callId));
      return undefined;
    } catch (error) {
      if (error instanceof Stopped) throw error;
      if (error instanceof ApprovalTimeout) {
        const { approval, url } = error;
        return { type: "user-approval", reason: `waits for ${approval}, to be decided at ${url}` };
      }
      return { type: "denied", reason: notMade(error as AmendsError) };
    }
  }

  /** One that the SDK never makes is told as not made when the run ends. */
  #keep(run: Run, name: string, act: Action<object>): void {
    let kept = this.#allowed.get(run);
    if (kept === undefined) {
      const all = (kept = new Map<string, Action<object>>());
      this.#allowed.set(run, all);
      run.atEnd.push(async () => {
        for (const one of all.values()) await one.leave(new NoEffect("the call was never made"));
      });
    }
    kept.set(name, act);
  }

  #take(name: string, input: object, callId: string): Action<object> | undefined {
    const kept = this.#allowed.get(currentRun());
    const at = nameOf(name, input, callId);
    const act = kept?.get(at);
    kept?.delete(at);
    return act;
  }
}

/** With its input: what was allowed is made, and nothing else. */
function nameOf(name: string, input: object, callId: string): string {
  return canonical([name, callId, plain(input)]);
}

/** Throws ToolError where the answer says that it is an error. */
async function heard(given: unknown): Promise<unknown> {
  const answer = (await answerOf(given)) as { content: unknown; isError?: unknown } | null;
  if (answer?.isError === true && Array.isArray(answer.content)) throw new ToolError(answer);
  return answer;
}

/** Of a tool that streams, what it said last. */
async function answerOf(given: unknown): Promise<unknown> {
  if (typeof given !== "object" || given === null || !(Symbol.asyncIterator in given)) return given;
  let last: unknown;
  for await (const one of given as AsyncIterable<unknown>) last = one;
  return last;
}
