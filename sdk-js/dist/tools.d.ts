/** Tools: functions whose every call is an action of the current run. */
import type { Action } from "./actions.ts";
import { AmendsError } from "./errors.ts";
import type { Link } from "./link.ts";
import type { Args, CallOptions, Check, Plan, Undo } from "./plans.ts";
import { type Run } from "./runs.ts";
import { type Targets } from "./values.ts";
type Callback<A, T> = (args: A) => T | PromiseLike<T>;
type ResultCallback<A, R, T> = (result: R, args: A) => T | PromiseLike<T>;
/**
 * What the desk should know of a tool.
 *
 * `target` is a type and a template over the arguments (`["reservation", "{reservation}"]`) or a
 * function of them. `before` and `undo` are given the arguments; `after`, `verify` and
 * `undoOfResult` the result first: such an undo is suggested once the call has succeeded. `verify`
 * reads back and gives checks, as for `Action.verified`.
 */
export type Declaration<A extends object = any, R = any> = Omit<Plan<A>, "target" | "args" | "before" | "undo"> & {
    target?: readonly [type: string, template: string] | ((args: A) => Targets | null);
    before?: Callback<A, unknown>;
    after?: ResultCallback<A, R, unknown>;
    verify?: ResultCallback<A, R, readonly Check[]>;
    undo?: Undo | ((args: A) => Undo | undefined);
    undoOfResult?: (result: R, args: A) => Undo | undefined;
};
export type Call<A extends object, R> = (args: A, options: CallOptions) => R | PromiseLike<R>;
/** What a call answered: now, or in its masked form when it was first made. */
export type Performed<R> = {
    answer: R;
    isFirst: boolean;
};
/** One action of a run, asked for as it is declared. */
export declare function beginDeclared<A extends object, R>(run: Run, name: string, declared: Declaration<A, R>, args: A, how?: Partial<Plan<A>>): Promise<Action<A>>;
/**
 * The rest of it: call, read what is there now, and say it. Throws ArgumentsChanged where an
 * approver has changed the arguments so that the call would change something else.
 */
export declare function finishDeclared<A extends object, R>(act: Action<A>, { target, after, verify, undo, undoOfResult }: Declaration<A, R>, call: Call<A, R>): Promise<Performed<R>>;
/**
 * A tool whose every call is an action of the current run. A call that was made before gives its
 * first result and runs nothing. Of `tries`, only those that end in a retryable `NoEffect` are
 * followed by another.
 */
export declare function tool<A extends object, R>(name: string, { tries, ...declared }: Declaration<A, R> & {
    tries?: number;
}, call: Call<A, R>): (args: A) => Promise<R>;
/** The twin of an action: `connection.operation` and JSON arguments known before the call. */
export declare function undo(operation: string, args?: Args): Undo;
/** Say that nothing undoes this action, and why; people read it before they allow it. */
export declare function noUndo(reason: string): Undo;
/**
 * Whether the error means that this call was not made, and that the model may go on without it.
 * Stopped does not: the run is over, and no message to a model is of use.
 */
export declare function isNotMade(error: unknown): error is AmendsError;
/** Whether the desk has stopped the run. */
export declare function isOver(error: unknown): boolean;
/** For the model: that the call was not made, and why. */
export declare function notMade(error: AmendsError): string;
/**
 * The tools of one framework, behind one desk.
 *
 * `declared` says of tools, by name, what the desk should know of them; a tool that is not declared
 * is asked for all the same, without a target. `repeatable` names tools that may be called twice
 * with the same arguments in one run and do it twice: of all others that have an effect the second
 * such call is answered with the first one's result, since a model that says it again is far more
 * often repeating itself.
 */
export declare class GatedTools {
    #private;
    constructor(desk: Link, declared?: {
        readonly [name: string]: Declaration;
    }, { repeatable, waitSeconds }?: {
        repeatable?: Iterable<string>;
        waitSeconds?: number;
    });
    /**
     * One call of a tool in the current run. Throws what `isNotMade` knows, Stopped, NoRun, and
     * whatever the tool throws. `callId` is the framework's own name of the call.
     */
    call<A extends object, R>(name: string, args: A, callId: string, call: Call<A, R>, how?: Partial<Plan<A>>): Promise<Performed<R>>;
    /** The first half of it: ask whether the call may be made. */
    begin<A extends object>(name: string, args: A, callId: string, how?: Partial<Plan<A>>): Promise<Action<A>>;
    /** The second half: make the call, and say how it went. */
    finish<A extends object, R>(act: Action<A>, call: Call<A, R>): Promise<Performed<R>>;
}
export {};
