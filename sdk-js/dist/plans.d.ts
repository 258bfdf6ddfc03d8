/** What an agent says of a call: before it is made, and of what came of it. */
import { type JsonObject } from "./protocol/canonical.ts";
import { type EffectClass, type Risk } from "./protocol/vocabulary.ts";
import { type Targets } from "./values.ts";
export declare const MASKED_KEY: JsonObject;
export type Args = {
    readonly [name: string]: unknown;
};
export type Outcome = "no_effect" | "unknown";
export type Retry = "model" | "tool" | "workflow" | "human";
export type Reversibility = "exact" | "compensable" | "irreversible" | "unknown";
/** What is said of a call before it is made. */
export type Plan<A extends object = Args> = {
    /** What the call changes: `["reservation", "XEHM4B"]`, or several of these. */
    target?: Targets | null | undefined;
    args?: A | undefined;
    /** The target as it was (null: it was not there; a list for several targets). */
    before?: unknown;
    effectClass?: EffectClass | undefined;
    /** The logical operation, where one tool does several on one target in one run. */
    op?: string | undefined;
    key?: string | undefined;
    /** `undo(...)` or `noUndo(...)`. */
    undo?: Undo | undefined;
    saga?: "pivot" | "retriable" | undefined;
    risk?: Risk | undefined;
    /** `goal`, `reason`, `confidence` and `model`: shown to approvers, apart from the facts. */
    intent?: Args | undefined;
    retry?: Retry | undefined;
    /** Bounds the wait for an approval. */
    waitSeconds?: number | undefined;
    /** Bounds the call: after it the outcome is unknown, and the call may still happen. */
    timeLimitSeconds?: number | undefined;
    /**
     * Whether an approver may correct arguments: then the call is made with those that it is handed,
     * which are `Action.args`.
     */
    acceptsChangedArguments?: boolean | undefined;
    /** The JSON Schema of the tool's arguments: the desk hears it once, and of each change. */
    schema?: object | undefined;
    /** Ends the wait for the desk, and is handed to the call. */
    signal?: AbortSignal | undefined;
};
/** Throws AmendsError where a plan says what nobody would read: a class that is misspelled, say. */
export declare function mustBePlan(plan: object, tool: string): void;
/** Whoever misspells a member hears of it: the desk would keep it, and nobody read it. */
export declare function mustBeKnown(said: object, what: string, known: readonly string[]): void;
export type Undo = {
    connection: string;
    operation: string;
    args: JsonObject;
} | {
    none: string;
};
/** What is said of each effect beside its snapshots. */
export type EffectWords = {
    summary?: string;
    reversibility?: Reversibility;
    undo_until?: string;
    affects?: unknown;
};
export type Effect = EffectWords & {
    target: Targets;
    before?: unknown;
    after?: unknown;
};
export type Told = EffectWords & {
    before?: unknown;
    after?: unknown;
    /** For effects that differ, instead of the others. */
    effects?: readonly Effect[] | undefined;
    /** What only the result tells how to undo; what was planned comes first. */
    undo?: Undo | undefined;
};
/** Throws AmendsError where what is said of a success is nothing that anybody would read. */
export declare function mustBeTold(told: Told): void;
/**
 * Whether a call has effects on its targets: of a draft, where something is `said` of what it left
 * or of how that is put away.
 */
export declare function leavesSomething(effectClass: EffectClass, said: readonly unknown[]): boolean;
/** A read-back: a triple of name, expected and actual, or an object of these. */
export type Check = readonly [name: string, expected: unknown, actual: unknown] | {
    name: string;
    expected?: unknown;
    actual?: unknown;
    ok?: boolean;
};
/** What a call is handed beside the arguments. */
export type CallOptions = {
    signal: AbortSignal;
};
/** The signal of the call that is made, for one within it that is the same; and `own`, if any. */
export declare function signalWithin(own: AbortSignal | undefined): AbortSignal;
/** Call it; where it has a limit, it is left to itself when the time is over. */
export declare function callWithin<A extends object, T>({ timeLimitSeconds: limit, signal: given }: Plan<A>, args: A, call: (args: A, options: CallOptions) => T | PromiseLike<T>): Promise<T>;
/** The digest of a schema and itself; none that the desk would not show to anybody. */
export declare function shapeOf(schema: object | undefined): {
    digest: string;
    schema: JsonObject;
} | null;
/** A read-back as it is told, with whether it holds. */
export declare function check(one: Check): JsonObject;
/**
 * What is wrong with a generator function, and with the generator (or what `map` makes of one) that
 * a call answers: what it does would be done after it was told. null for all else.
 */
export declare function bitByBit(found: unknown): TypeError | null;
