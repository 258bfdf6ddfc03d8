/**
 * What the last policy says while the desk is away: is this call to be kept back?
 *
 * The desk judges; this is only the fallback, and where it cannot tell it keeps the call back. A
 * condition cannot be evaluated here: it counts as met where it asks or forbids, and not where it
 * allows.
 */
import { type Json, type JsonObject } from "./protocol/canonical.ts";
import { type EffectClass } from "./protocol/vocabulary.ts";
export type PolicyDocument = JsonObject | null | undefined;
/** Whether the call needs the desk. Without a policy every external class does. */
export declare function isGated(document: PolicyDocument, call: {
    tool: string;
    effectClass: string;
    risk: Json | undefined;
}): boolean;
/** The class that the workspace's catalogue has of a tool, by its most specific entry. */
export declare function cataloguedClass(document: PolicyDocument, tool: string): EffectClass | null;
/**
 * Whether a call that breaks the order of a saga needs the desk, too. Without a policy it does.
 *
 * The order is: what can be undone, one pivot, and then only what can be retried.
 */
export declare function keepsOrder(document: PolicyDocument): boolean;
/**
 * Whether there is no way back after this call: its agent says so, or says nothing, and it cannot
 * be undone and the order of a saga is kept.
 */
export declare function isPivot(document: PolicyDocument, call: {
    tool: string;
    effectClass: EffectClass;
}, saga: Json | undefined): boolean;
/** The paths that the workspace wants masked. */
export declare function maskPaths(document: PolicyDocument): string[];
/** Whether the workspace keeps how targets were, which it does where it does not say. */
export declare function keepsSnapshots(document: PolicyDocument): boolean;
/** Whether placeholders of cards and IBANs carry the last four characters. */
export declare function showsLast4(document: PolicyDocument): boolean;
