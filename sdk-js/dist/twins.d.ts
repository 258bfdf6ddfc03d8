/**
 * Twins: the undo of a tool, living in the engineer's own service and called by the desk.
 *
 * Serve `Twins.fetch` or `Twins.listener` under one address and give that address and the signing
 * secret to a `webhook` connection. Each key is done once, whatever the desk repeats.
 * docs/twins.md has the protocol.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { type Json, type JsonObject } from "./protocol/canonical.ts";
import { type Headers } from "./webhooks.ts";
/** What is known of a key: the digest of what was asked, and the answer once there is one. */
export type TwinKey = {
    asked: string;
    answer: JsonObject | null;
};
/** What `Twins` needs of a store. Each method must be durable when it returns. */
export type KeyStore = {
    /** Note that this key begins, and return null; or the row that is already there. */
    start(key: string, asked: string): TwinKey | null | PromiseLike<TwinKey | null>;
    /** The row of a key, or null if it never began. */
    find(key: string): TwinKey | null | PromiseLike<TwinKey | null>;
    /** Note how it ended. */
    finish(key: string, answer: JsonObject): void | PromiseLike<void>;
    /** Drop a key of which it is certain that nothing happened, so that it may be tried anew. */
    forget(key: string): void | PromiseLike<void>;
};
/** The default store: one SQLite file, for all processes of a service on one machine. */
export declare class SqliteKeys implements KeyStore {
    #private;
    constructor(path: string);
    start(key: string, asked: string): TwinKey | null;
    /** This process is no longer at it, however that went. */
    ended(key: string): void;
    /** Whether another process of this machine may still be at it. */
    isElsewhere(key: string): boolean;
    find(key: string): TwinKey | null;
    finish(key: string, answer: JsonObject): void;
    forget(key: string): void;
    close(): void;
}
export type TwinTarget = {
    type: string;
    id: string;
};
type State = {
    readonly [name: string]: unknown;
};
/**
 * What the desk has recorded: `before` is what is to be restored, `expected` how the agent left the
 * target. Null: it was not there; a member that is missing: nothing was recorded.
 */
export type Recorded = {
    readonly before?: Json;
    readonly expected?: Json;
};
/** One twin: what undoes, what looks, and what finds out whether a lost call took effect. */
export type Twin = {
    /**
     * Undo it. It may return the fields of the target as it left them. Where it knows that nothing
     * happened it throws NoEffect; any other error is an unknown outcome.
     */
    apply(args: JsonObject, target: TwinTarget, key: string, recorded: Recorded): unknown;
    /** Read the target: its fields, or null where it is not there. */
    observe?(args: JsonObject, target: TwinTarget): State | null | PromiseLike<State | null>;
    /** Find out whether a key took effect: true, false, or null where nobody can tell. */
    probe?(args: JsonObject, target: TwinTarget, key: string): boolean | null | PromiseLike<boolean | null>;
};
type Answer = [status: number, body: JsonObject];
/**
 * The twins of one service behind one address. `secrets` are `whsec_…`, several while they are
 * changed; `store` remembers keys: the path of a SQLite file, or a store for several machines.
 */
export declare class Twins {
    #private;
    constructor(secrets: string | readonly string[], { store }?: {
        store?: KeyStore | string;
    });
    /** Register the undo of this name. */
    undo(name: string, twin: Twin): this;
    /** The whole protocol: HTTP status and JSON answer for one signed request. */
    answer(headers: Headers, body: Uint8Array): Promise<Answer>;
    /** Serve it wherever requests are those of the web: Hono, Next, Deno, Bun. */
    readonly fetch: (request: Request) => Promise<Response>;
    /** Serve it with `node:http`, Express or whatever else has its requests; before any parser. */
    readonly listener: (request: IncomingMessage, response: ServerResponse) => Promise<void>;
}
export {};
