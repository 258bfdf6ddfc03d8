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
import { asSchema } from "ai";
import { AmendsError, ApprovalTimeout, NoEffect, Stopped } from "../errors.js";
import { canonical } from "../protocol/canonical.js";
import { currentRun } from "../runs.js";
import { GatedTools, isNotMade, notMade } from "../tools.js";
import { plain } from "../values.js";
/** The call was not made; the SDK shows the model why. */
export class NotMade extends AmendsError {
    constructor(cause) {
        super(notMade(cause), { cause });
    }
}
/** The answer of an MCP server that says of itself that it is an error. */
class ToolError extends AmendsError {
    answer;
    constructor(answer) {
        super(JSON.stringify(answer.content));
        this.answer = answer;
    }
}
/**
 * The tools, each asking the desk before it runs and saying how it went, and a `toolApproval`: give
 * both to `generateText`, `streamText` or `ToolLoopAgent`. The provider runs tools of its own past
 * whatever is put around them here, and a tool without `execute` is run by somebody else: such are
 * refused by name, unless `ungated` has them.
 */
export function gated(desk, tools, options = {}) {
    const { declared = {}, repeatable = [], waitSeconds, pauses = false, ungated = [] } = options;
    const left = new Set(ungated);
    const past = Object.keys(tools).filter((name) => !left.has(name) && !isOurs(tools[name]));
    if (past.length > 0) {
        throw new AmendsError(`these would run without the desk being asked: ${past.join(", ")}. Name them in \`ungated\`` +
            " if that is what you want");
    }
    warnOf(desk, Object.keys(tools), Object.keys(declared));
    const waits = pauses ? { waitSeconds: 0 } : waitSeconds === undefined ? {} : { waitSeconds };
    const known = declared;
    const gate = new Gate(new GatedTools(desk, known, { repeatable, ...waits }), pauses);
    const wrapped = Object.entries(tools).map(([name, tool]) => {
        if (left.has(name))
            return [name, tool];
        const execute = tool.execute;
        const schema = async () => asSchema(tool.inputSchema).jsonSchema;
        return [name, { ...tool, execute: gate.around(name, execute.bind(tool), schema) }];
    });
    const toolApproval = async ({ toolCall }) => {
        const { toolName, toolCallId, input } = toolCall;
        const isGated = !left.has(toolName) && Object.hasOwn(tools, toolName);
        return isGated ? gate.approve(toolName, input, toolCallId) : undefined;
    };
    return { tools: Object.fromEntries(wrapped), toolApproval };
}
/** What is declared may be shared by agents of other tools; a name that is misspelled is told. */
function warnOf(desk, tools, declared) {
    const strange = declared.filter((name) => !tools.includes(name));
    for (const name of tools.filter((one) => !declared.includes(one))) {
        const meant = strange.find((one) => near(one, name));
        if (meant === undefined)
            continue;
        desk.log("warn", `nothing is declared of ${name}: is it “${meant}”, misspelled?`);
    }
}
/** Whether they differ in two letters at most, which stand together. */
function near(one, other) {
    const end = Math.min(one.length, other.length);
    let [head, tail] = [0, 0];
    while (head < end && one[head] === other[head])
        head += 1;
    while (tail < end - head && one.at(-1 - tail) === other.at(-1 - tail))
        tail += 1;
    return Math.max(one.length, other.length) - head - tail <= 2;
}
function isOurs(tool) {
    return typeof tool.execute === "function" && tool.isProviderExecuted !== true;
}
class Gate {
    #tools;
    #pauses;
    /** Calls that the desk has allowed and that the SDK has not made yet. */
    #allowed = new WeakMap();
    constructor(tools, pauses) {
        this.#tools = tools;
        this.#pauses = pauses;
    }
    around(name, execute, schema) {
        return async (input, options) => {
            const { toolCallId, abortSignal } = options;
            const how = { schema: await schema(), signal: abortSignal };
            try {
                const act = this.#take(name, input, toolCallId) ??
                    (await this.#tools.begin(name, input, toolCallId, how));
                const done = await this.#tools.finish(act, (args, { signal }) => {
                    if (abortSignal?.aborted)
                        throw new NoEffect("the turn was aborted before the call");
                    const heeds = abortSignal ? AbortSignal.any([abortSignal, signal]) : signal;
                    return heard(execute(args, { ...options, abortSignal: heeds }));
                });
                return done.answer;
            }
            catch (error) {
                if (error instanceof ToolError)
                    return error.answer;
                throw isNotMade(error) ? new NotMade(error) : error;
            }
        };
    }
    /**
     * What the SDK is to do with a call before it makes it. Throws Stopped, which ends the agent: of
     * what a tool throws the SDK makes a message to the model.
     */
    async approve(name, input, callId) {
        const run = currentRun();
        if (run.stopped)
            throw run.stopped;
        if (!this.#pauses)
            return undefined;
        try {
            this.#keep(run, nameOf(name, input, callId), await this.#tools.begin(name, input, callId));
            return undefined;
        }
        catch (error) {
            if (error instanceof Stopped)
                throw error;
            if (error instanceof ApprovalTimeout) {
                const { approval, url } = error;
                return { type: "user-approval", reason: `waits for ${approval}, to be decided at ${url}` };
            }
            return { type: "denied", reason: notMade(error) };
        }
    }
    /** One that the SDK never makes is told as not made when the run ends. */
    #keep(run, name, act) {
        let kept = this.#allowed.get(run);
        if (kept === undefined) {
            const all = (kept = new Map());
            this.#allowed.set(run, all);
            run.atEnd.push(async () => {
                for (const one of all.values())
                    await one.leave(new NoEffect("the call was never made"));
            });
        }
        kept.set(name, act);
    }
    #take(name, input, callId) {
        const kept = this.#allowed.get(currentRun());
        const at = nameOf(name, input, callId);
        const act = kept?.get(at);
        kept?.delete(at);
        return act;
    }
}
/** With its input: what was allowed is made, and nothing else. */
function nameOf(name, input, callId) {
    return canonical([name, callId, plain(input)]);
}
/** Throws ToolError where the answer says that it is an error. */
async function heard(given) {
    const answer = (await answerOf(given));
    if (answer?.isError === true && Array.isArray(answer.content))
        throw new ToolError(answer);
    return answer;
}
/** Of a tool that streams, what it said last. */
async function answerOf(given) {
    if (typeof given !== "object" || given === null || !(Symbol.asyncIterator in given))
        return given;
    let last;
    for await (const one of given)
        last = one;
    return last;
}
