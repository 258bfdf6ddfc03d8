/**
 * The words that are written down: types of events, classes and risks of actions, globs over tools.
 *
 * Their spelling is the wire's and the ledger's, and stays.
 */
/** What agents say; everything else is the desk's (docs/events.md). */
export type EventType = "run.started" | "run.checkpoint" | "run.completed" | "run.failed" | "run.cancelled" | "run.resumed" | "action.planned" | "action.started" | "action.succeeded" | "action.failed" | "action.verified";
/** What a call does to the world, from lax to strict. */
export declare const CLASSES: readonly ["read_only", "draft", "internal_update", "external_reversible", "external_irreversible"];
export type EffectClass = (typeof CLASSES)[number];
/** How much is at stake, from low to high. */
export declare const RISKS: readonly ["low", "medium", "high", "critical"];
export type Risk = (typeof RISKS)[number];
/** Classes of calls that leave nothing to undo. */
export declare const WITHOUT_EFFECT: ReadonlySet<string>;
export declare const RISK_OF_CLASS: Readonly<Record<EffectClass, Risk>>;
export declare function isClass(value: unknown): value is EffectClass;
/** `*` stands for any characters, `?` for one. */
export declare function globMatches(glob: string, tool: string): boolean;
/** The greater, the more specific: no wildcard first, then more letters, then fewer `*`. */
export declare function globSpecificity(glob: string): [number, number, number];
/** Which of two specificities is the greater, as for `Array.sort`. */
export declare function compareSpecificity(one: readonly number[], other: readonly number[]): number;
