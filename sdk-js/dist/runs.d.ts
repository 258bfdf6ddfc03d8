/** A run: what one agent does for one request, from the first call to one of its endings. */
import { Action } from "./actions.ts";
import { Stopped } from "./errors.ts";
import type { Link } from "./link.ts";
import { type Args, type Plan } from "./plans.ts";
import { type Json, type JsonObject } from "./protocol/canonical.ts";
import { Record } from "./record.ts";
import { type Target } from "./values.ts";
/** The run that this code runs in. Throws NoRun outside any. */
export declare function currentRun(): Run;
/** What is said of a run as it begins. */
export type About = {
    /** An id of your own, where a restarted process must find its calls again. */
    run?: string | undefined;
    /** The affected person: `id`, `name`, `contact`, a mail address, and `language` (`de-AT`). */
    onBehalfOf?: Args | undefined;
    goal?: string | undefined;
    model?: string | undefined;
    labels?: Args | undefined;
    trace?: Args | undefined;
};
export type Checkpoint = {
    /** What the run needs to go on from here without asking a model where it was. */
    state?: unknown;
    completed?: readonly string[];
    pending?: readonly string[];
    summary?: string;
    instructions?: string;
    recoveryMode?: string;
};
/**
 * Made by `desk.run(request, about, body)`: completed at the end, failed by an error, cancelled by
 * `cancel` or as the desk says. Or by `desk.open`, and ended by `complete`, `fail` or `cancel`.
 *
 * `directive` is what the desk wants of a resumed run, `state` what its checkpoint held; both are
 * known once it is started.
 */
export declare class Run extends Record {
    #private;
    state: Json;
    /** The desk's word to stop, where a framework may have taken it for an error of a tool. */
    stopped: Stopped | null;
    /** Told as the run is completed. */
    summary: string;
    /** `told` is what is said as the run begins; null for one that is resumed. */
    constructor(desk: Link, id: string, told: JsonObject | null, { trace, directiveSeconds }?: {
        trace?: Args | undefined;
        directiveSeconds?: number;
    });
    /**
     * Say that the run begins, or that it goes on. `desk.run` and `desk.open` do it for you.
     *
     * Of a run that is resumed it throws Stopped where the desk wants it to stop, and AmendsError
     * where it wants nothing of it.
     */
    start(): Promise<this>;
    /** `body` with this run as the current one; the run ends as it ends. */
    within<T>(body: (run: this) => T | PromiseLike<T>): Promise<T>;
    /**
     * One call of a tool. The desk is asked, and `body` runs where the call may be made or was made
     * before: it makes it with `act.perform` and says how it went. What it throws is a failure.
     */
    action<T, A extends object = Args>(tool: string, plan: Plan<A>, body: (act: Action<A>) => T | PromiseLike<T>): Promise<T>;
    /** The same in two halves: `await using act = await run.begin(tool, plan)`. */
    begin<A extends object = Args>(tool: string, plan?: Plan<A>): Promise<Action<A>>;
    /**
     * What the desk would answer to such a call now, and under `explain` why: the rule, each
     * condition with what it came to, the grants that do not cover it. Nothing is begun, and nobody
     * is asked.
     */
    explain<A extends object = Args>(tool: string, plan?: Plan<A>): Promise<JsonObject>;
    /** Mark a safe place to pause and to come back to. Throws Stopped if the desk wants a stop. */
    checkpoint(name: string, about?: Checkpoint): Promise<void>;
    /** Ask what the desk wants of this run. Throws Stopped; does nothing if it is away. */
    heed(): Promise<void>;
    /** In a resumed run: whether the desk says that this call is done and to be skipped. */
    isDone(tool: string, { target }?: {
        target?: Target;
    }): boolean;
    /** End the run well. `desk.run` does it for you, with `run.summary`. */
    complete(summary?: string): Promise<void>;
    /**
     * End the run as failed. `desk.run` does it for you.
     *
     * A call is named where you name one, or where it failed, was refused, or is unknown.
     */
    fail(error: unknown, { failedAction }?: {
        failedAction?: string;
    }): Promise<void>;
    /** End the run because somebody wants it to end; no further call is made in it. */
    cancel({ by, reason }: {
        by: string;
        reason?: string;
    }): Promise<void>;
    /**
     * Say that this run did wrong, ended or not, so that people look at it; the case's number.
     *
     * What is still to be sent goes first. Throws DeskUnreachable where the desk is away.
     */
    report(text: string): Promise<number>;
    /** Make this the current run of what follows, for a run that `desk.open` has given. */
    enter(): this;
    /**
     * For `await using run = await desk.open(...)`. What was thrown is not told to it, so a run that
     * was not ended by `complete`, `fail` or `cancel` has failed.
     */
    [Symbol.asyncDispose](): Promise<void>;
    /** The process ends: say on disk, at once, that the run and its open calls are left. */
    abandon(why: Error): void;
}
/**
 * The desk's word to stop, also where a framework has wrapped it in an error of its own, or in one
 * of several.
 */
export declare function stoppedBy(error: unknown): Stopped | null;
/** What is worth saying: the members that say something. */
export declare function withoutEmpty(said: {
    [name: string]: unknown;
}): {
    [name: string]: unknown;
};
