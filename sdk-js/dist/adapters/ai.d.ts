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
import { type ToolSet } from "ai";
import type { Desk } from "../client.ts";
import { AmendsError } from "../errors.ts";
import { type Declaration } from "../tools.ts";
/** The call was not made; the SDK shows the model why. */
export declare class NotMade extends AmendsError {
    constructor(cause: AmendsError);
}
export type GatedOptions<T extends ToolSet> = {
    /** What the desk should know of tools, by name. */
    declared?: {
        readonly [name in keyof T]?: Declaration;
    };
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
type Approval = {
    type: "denied";
    reason: string;
} | {
    type: "user-approval";
    reason: string;
};
type Asked = {
    toolCall: {
        toolName: string;
        toolCallId: string;
        input: unknown;
    };
};
/**
 * The tools, each asking the desk before it runs and saying how it went, and a `toolApproval`: give
 * both to `generateText`, `streamText` or `ToolLoopAgent`. The provider runs tools of its own past
 * whatever is put around them here, and a tool without `execute` is run by somebody else: such are
 * refused by name, unless `ungated` has them.
 */
export declare function gated<T extends ToolSet>(desk: Desk, tools: T, options?: GatedOptions<T>): {
    tools: T;
    toolApproval: (asked: Asked) => Promise<Approval | undefined>;
};
export {};
