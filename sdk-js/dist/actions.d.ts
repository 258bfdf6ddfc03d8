/** An action: one call of one tool, announced before and recorded after. */
import { type Approval } from "./gate.ts";
import { type Args, type CallOptions, type Check, type Outcome, type Plan, type Told } from "./plans.ts";
import { type Json, type JsonObject } from "./protocol/canonical.ts";
import { type EffectClass } from "./protocol/vocabulary.ts";
import type { Record as RunRecord } from "./record.ts";
import type { KeyRow } from "./spool.ts";
import { type NamedTarget } from "./values.ts";
/**
 * Made by `run.action(tool, plan, body)`, which begins it and leaves it, or by `run.begin`.
 *
 * `replayed` is true if this call was made before: then `result` is what it answered, and the body
 * should do nothing. `perform` keeps that rule by itself. `args` are the arguments to make the
 * call with: those that were given, or what an approver has made of them.
 */
export declare class Action<A extends object = Args> {
    #private;
    readonly run: RunRecord;
    readonly tool: string;
    readonly targets: NamedTarget[];
    effectClass: EffectClass;
    constructor(run: RunRecord, tool: string, plan: Plan<A>);
    /** What is known of the call: its key, id, number, attempt and state. */
    get row(): KeyRow;
    get id(): string;
    get args(): A;
    /** Whether an approver has changed the arguments. */
    get isChanged(): boolean;
    /** The yes that let it proceed; null where nobody was asked. */
    get approval(): Approval | null;
    get settled(): boolean;
    get replayed(): boolean;
    /** What the call answered, in its masked form. */
    get result(): Json;
    /** Ask whether the call may be made. See `Gate.begin` for what it throws; and SpoolFull. */
    begin(): Promise<this>;
    /** What the desk would answer now, and under `explain` why; it begins nothing. */
    explain(): Promise<JsonObject>;
    /**
     * Make the call, unless it was made before: then give its first (masked) result. `call` is handed
     * the arguments, which an approver may have changed, and a signal for the time limit.
     *
     * If nothing else is said before the body ends, what it returns is recorded as the result. Throws
     * TimedOut where it takes longer than `timeLimitSeconds`.
     */
    perform<T>(call: (args: A, options: CallOptions) => T | PromiseLike<T>): Promise<T>;
    /**
     * Record the success. `before` and `after` are snapshots of the target, one per target.
     *
     * A call that was made before has been recorded already.
     */
    succeeded(result?: unknown, told?: Told): Promise<void>;
    /**
     * Record the failure. Say `no_effect` only where you know that nothing happened.
     *
     * A call that was made before has been recorded already, and what fails now is not it.
     */
    failed(error: unknown, { outcome, retryable }?: {
        outcome?: Outcome;
        retryable?: boolean;
    }): Promise<void>;
    /** Record a read-back. Whether all of the checks hold. */
    verified(checks: readonly Check[]): Promise<boolean>;
    /** `body` makes the call and says how it went; what it leaves unsaid is said when it is over. */
    within<T>(body: (act: this) => T | PromiseLike<T>): Promise<T>;
    /** What is left to say when the body of the action is over. `within` does it for you. */
    leave(error?: unknown): Promise<void>;
    /**
     * For `await using act = await run.begin(...)`. What was thrown is not told to it: a call that
     * ended without a word of yours has failed as `perform` did, or its outcome is unknown.
     */
    [Symbol.asyncDispose](): Promise<void>;
    /** The process ends: say on disk, at once, that nobody knows how the call goes on. */
    abandon(why: Error): void;
}
