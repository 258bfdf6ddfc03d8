/** Each error finishes the sentence "we stopped because ..." and says what to do about it. */
import { type JsonObject } from "./protocol/canonical.ts";
export type Problem = JsonObject;
/** A problem (RFC 9457) as one line: what it is, and what the desk says of this case. */
export declare function inWords(problem: Problem): string;
/** The parent of everything this package throws, but for NotProven of protocol/proofs.ts. */
export declare class AmendsError extends Error {
    constructor(message?: string, options?: ErrorOptions);
}
/** Later than every one before it in this process. */
export declare function moment(): number;
/**
 * An action that began at `began` ends in the error, and says it of itself; where it is another
 * action's, asked for within this one, or this one was made, it has passed it. Whether that is so.
 */
export declare function saidBy(error: unknown, began: number, isMade?: boolean): boolean;
/** Whether another action has said it of itself since then: of this one it says nothing. */
export declare function isAnothers(error: AmendsError, began: number): boolean;
/** Whether it has gone through an action of which it says nothing. */
export declare function hasPassed(error: AmendsError): boolean;
/**
 * Throw it in a tool where it *knows* that nothing happened: a documented refusal.
 *
 * Everything else that goes wrong, a time-out above all, counts as an unknown outcome.
 */
export declare class NoEffect extends AmendsError {
    readonly retryable: boolean;
    constructor(message?: string, { retryable, ...options }?: NoEffectOptions);
}
type NoEffectOptions = ErrorOptions & {
    retryable?: boolean;
};
/** The arguments are no longer those that were asked for. The call was not made; ask anew. */
export declare class ArgumentsChanged extends NoEffect {
}
/** The desk does not allow the call. Do not make it; `reason` is for the model or a person. */
export declare class Denied extends AmendsError {
    readonly reason: string;
    readonly answer: JsonObject;
    constructor(reason: string, answer?: JsonObject, happened?: string);
}
/** The desk has told this run to stop. Leave the run; its work is recovered by the desk. */
export declare class Stopped extends Denied {
    constructor(reason: string, answer?: JsonObject);
}
/** Nobody has decided within the caller's deadline. Ask again later under the same key. */
export declare class ApprovalTimeout extends AmendsError {
    readonly approval: string;
    readonly url: string;
    constructor(approval: string, url: string);
}
/** An earlier try of this call may have happened. A probe or a person settles it; wait. */
export declare class InDoubt extends AmendsError {
    constructor(action: string, options?: ErrorOptions);
}
/** This call succeeded once and was undone since. Its key is dead; `nextKey` is a new one. */
export declare class Compensated extends AmendsError {
    readonly nextKey: string;
    constructor(message: string, nextKey: string);
}
/** Another try of this call is under way. Wait for it, or until its lease is over. */
export declare class InProgress extends AmendsError {
}
/** Other arguments were sent under a used key. A second operation needs an `op` of its own. */
export declare class KeyReused extends AmendsError {
}
/** The desk cannot be reached and the call needs it. Try again when it is back. */
export declare class DeskUnreachable extends AmendsError {
    readonly retryAfterSeconds: number;
    constructor(message: string, { retryAfterSeconds, ...options }?: AwayOptions);
}
type AwayOptions = ErrorOptions & {
    retryAfterSeconds?: number;
};
/**
 * Something else answers in the desk's place, such as a network's log-in page or a filter. No call
 * is made that would have to ask. Is AMENDS_URL right, and the way to it open?
 */
export declare class NotTheDesk extends DeskUnreachable {
}
/**
 * The desk is there, and this agent asks faster than it may. Ask less often, or have the operator
 * of the desk raise the limit: it stands on the page *Agents and keys*.
 */
export declare class Throttled extends DeskUnreachable {
}
/** The desk does not know this API key, or it lacks the scope. Make a new one in the console. */
export declare class KeyRefused extends AmendsError {
    /** It is a 403 that does not read like the desk's, such as a proxy's. */
    readonly bySomebodyElse: boolean;
    constructor(message: string, { bySomebodyElse }?: {
        bySomebodyElse?: boolean | undefined;
    });
}
/** The spool is another agent's. Give each agent a file of its own, with `AMENDS_SPOOL`. */
export declare class WrongSpool extends KeyRefused {
}
/** The desk does not accept what was sent (RFC 9457). `problem` says which part and why. */
export declare class Refused extends AmendsError {
    readonly status: number;
    readonly problem: Problem;
    constructor(status: number, problem: Problem);
    /** Whether the desk itself says so: a proxy's page names no kind of problem. */
    get isTheDesks(): boolean;
}
/** A statement is above the limits of the wire format. Name large values by reference. */
export declare class TooLarge extends AmendsError {
}
/** The value is none that the ledger keeps; the text says why. Give it as a text or a BigInt. */
export declare class Unfit extends AmendsError {
}
/** Too much waits to be sent. Nothing more is done, since it could not be recorded. */
export declare class SpoolFull extends AmendsError {
}
/** The body of an action ended without saying how it went. Call `succeeded` or `failed`. */
export declare class MissingOutcome extends AmendsError {
}
/** A tool was called outside any run, or in one that has ended. Open one with `desk.run(...)`. */
export declare class NoRun extends AmendsError {
}
/** The call has taken longer than its limit. Its outcome is unknown: it may still happen. */
export declare class TimedOut extends AmendsError {
}
/** The process ends: open calls and runs say so on their way out. */
export declare class Terminated extends AmendsError {
}
/** What somebody threw, as an error. */
export declare function asError(thrown: unknown): Error;
export {};
