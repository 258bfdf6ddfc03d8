/** Statements on their way to the ledger: given an id, masked, and made small enough to travel. */
import { type JsonObject } from "./protocol/canonical.ts";
import { type MaskingKey } from "./protocol/masking.ts";
import type { EventType } from "./protocol/vocabulary.ts";
export type Event = {
    id: string;
    type: EventType;
    time: string;
    run: string;
    action?: string;
    n?: number;
    trace?: JsonObject;
    data: JsonObject;
};
/** An event as it goes out, with the blobs that it names, by their SHA-256 in hex. */
export type Statement = {
    event: Event;
    blobs: Map<string, string>;
};
/** A UUID version 7 (RFC 9562): unique anywhere, and in order of time, which indexes like. */
export declare function newId(): string;
/**
 * Fourteen signs, 70 random bits: unique in a workspace, and people can read it to each other.
 *
 * Crockford's base 32 (https://www.crockford.com/base32.html), which has no i, l, o or u.
 */
export declare function shortId(): string;
/** What is said of an event beside its type, run and data. */
export type About = {
    n?: number | undefined;
    action?: string | undefined;
    trace?: JsonObject | null | undefined;
};
/** Build one event. Throws TooLarge where even references do not make it small enough. */
export declare function statement(type: EventType, run: string, data: object, { mask, maskingKey, withSnapshots, n, action, trace, }: About & {
    mask: Iterable<string>;
    maskingKey: MaskingKey | null;
    withSnapshots: boolean;
}): Statement;
/** An error's message, short enough for an event. */
export declare function cut(text: string): string;
/** An error as events tell it. */
export declare function said(error: unknown, retryable?: boolean): JsonObject;
