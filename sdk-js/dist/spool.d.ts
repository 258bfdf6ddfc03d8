/**
 * The spool: what happened is on disk before it is sent, and stays there until the desk has it.
 *
 * One SQLite file per API key, of the same form as the Python client's. Every write is durable when
 * it returns. Beside the events it keeps what this agent knows of its own keys, so that a call is
 * not made twice while the desk is away.
 */
import { AmendsError } from "./errors.ts";
import type { Event, Statement } from "./events.ts";
import { type Json, type JsonObject } from "./protocol/canonical.ts";
export type KeyState = "running" | "unknown" | "succeeded" | "no_effect";
/** What this agent knows of one of its keys. `asked` is the digest of tool, targets and args. */
export type KeyRow = {
    readonly key: string;
    readonly run: string;
    readonly action: string;
    readonly n: number;
    readonly asked: string;
    readonly attempt: string;
    readonly fence: number | null;
    readonly state: KeyState;
    readonly result: Json;
};
/** An event that the desk does not have yet. */
export type Waiting = {
    readonly place: number;
    readonly body: string;
    readonly blobs: string[];
};
/**
 * We stopped because the spool cannot be written or read: the disk is full, or fails. What was to
 * be kept is not.
 */
export declare class CannotUse extends AmendsError {
}
/** Safe to use from several processes that share the file. */
export declare class Spool {
    #private;
    readonly path: string;
    readonly bytesMax: number;
    constructor(path: string, { bytesMax }?: {
        bytesMax?: number | undefined;
    });
    /** Put an event in line, with its blobs and how it ended the try of `key`, in one transaction. */
    write(event: Event, { blobs, key }: {
        blobs?: ReadonlyMap<string, string>;
        key?: KeyRow | undefined;
    }): void;
    /**
     * Put both statements in line and lend the key, in one transaction; false where the key no longer
     * stands as it `was`: of all that share this file one may make the call.
     */
    begin(planned: Statement, started: Statement, { key, was, isPivot }: {
        key: KeyRow;
        was: KeyRow | null;
        isPivot: boolean;
    }): boolean;
    /** Keep blobs that are to be sent with a question instead of an event. */
    keep(blobs: ReadonlyMap<string, string>): void;
    /**
     * Remember what the desk says of a key. Gives, and leaves, a row of which the desk cannot have
     * known: of a call that was made without it, since the key stood as it `was`, or of which
     * something is set aside.
     */
    note(key: KeyRow, { was, isPivot }: {
        was: KeyRow | null;
        isPivot: boolean;
    }): KeyRow | null;
    /**
     * Whether a call of a run after which there is no way back may have been made, by whoever shares
     * this file; `but` the one of this key.
     */
    hasPivot(run: string, but: string): boolean;
    /** What this agent knows of a key. */
    find(key: string): KeyRow | null;
    /** The next number in a run: counted from 1, never given twice, also after a crash. */
    nextN(run: string, above?: number): number;
    /** The oldest events that the desk does not have, as many as one request may carry. */
    waiting(run?: string): Waiting[];
    /** Forget events that the desk has. */
    sent(places: Iterable<number>): void;
    /** Set an event aside that would hold up the others, with why; it stays on disk. */
    park(place: number, problem: JsonObject): void;
    /** How many events are set aside. */
    countParked(): number;
    /**
     * Put events that were set aside back in line, each in its old place; how many. All of them, or
     * those of these ids.
     */
    unpark(ids?: readonly string[]): number;
    /** Events set aside, each with the problem, oldest first, at most a thousand. */
    parked(): {
        event: Event;
        problem: JsonObject;
    }[];
    /** A blob that is still to be sent. */
    blob(sha256: string): string | null;
    blobSent(sha256: string): void;
    /** Keep a fact, such as the last policy fetched, over restarts. */
    remember(name: string, value: Json): void;
    recall(name: string): Json;
    /** Throw SpoolFull if so much waits that another call could not be recorded. */
    needRoom(): void;
    /** What `ask` gives; SpoolFull where the disk is to blame that it cannot be asked. */
    needed<T>(ask: () => Promise<T>): Promise<T>;
    close(): void;
}
