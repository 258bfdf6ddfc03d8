/** The link to the desk: one address, one key, one spool, and the policy last fetched. */
import { type Problem } from "./errors.ts";
import { type About, type Event, type Statement } from "./events.ts";
import { Gate, type Replies, type Waits } from "./gate.ts";
import { type PolicyDocument } from "./policy.ts";
import { type JsonObject } from "./protocol/canonical.ts";
import { MaskingKey } from "./protocol/masking.ts";
import type { EventType } from "./protocol/vocabulary.ts";
import { type Log, type Parked, Sender } from "./sender.ts";
import { type KeyRow, Spool } from "./spool.ts";
import { Wire } from "./wire.ts";
export declare const FLUSH_SECONDS = 2;
/** How a desk is connected to; what the members mean is told at `connect`. */
export type LinkOptions = {
    spool: string;
    workspace?: string | undefined;
    waitSeconds: number;
    onWait?: Waits | undefined;
    onQuestion?: Replies | undefined;
    onParked?: Parked | undefined;
    log: Log;
};
/** What runs and their calls need of the desk: to ask, to say, and to know its policy. */
export declare class Link {
    #private;
    readonly waitSeconds: number;
    readonly spool: Spool;
    readonly wire: Wire;
    readonly sender: Sender;
    readonly gate: Gate;
    readonly log: Log;
    /** The shape of arguments that the desk has heard of each tool, by digest. */
    readonly announced: Map<string, string>;
    constructor(url: string, key: string, options: LinkOptions);
    /** The workspace of the key; fetched once and then known over restarts. */
    workspace(): Promise<string>;
    /** The agent of the key, or null before the desk was ever reached. */
    get agent(): string | null;
    /** The last policy document fetched, or null if there was never one. */
    get policy(): PolicyDocument;
    /** The workspace's, or null before the desk was ever reached. */
    get maskingKey(): MaskingKey | null;
    /**
     * Fetch the key with the policy where it never was: without it nothing can be compared. Gives
     * what kept it from being fetched.
     */
    needMaskingKey(): Promise<Error | null>;
    /**
     * Fetch the policy where there never was one, as patiently as a call is asked for.
     *
     * A client that is new knows neither its workspace nor the masking key. Whoever cannot go on
     * without them finds out next.
     */
    meet(signal?: AbortSignal): Promise<void>;
    /** Fetch the policy now, and keep it on disk. Throws DeskUnreachable or KeyRefused. */
    fetchPolicy(): Promise<void>;
    /**
     * Throw WrongSpool where another agent keeps this spool; its agent's new key may go on.
     *
     * Each would send what is the other's, and it would be set aside, or be taken for its own.
     */
    claim(): Promise<void>;
    /**
     * The policy decides what may be done while the desk is away, so it should be a new one. Gives
     * what kept it from being fetched.
     */
    freshen(): Promise<Error | null>;
    /** What the desk wants of a run: `stop`, or `resume` from a checkpoint; null for nothing. */
    directive(run: string, { waitSeconds }?: {
        waitSeconds?: number | undefined;
    }): Promise<JsonObject | null>;
    /** Say that a run of this agent did wrong; it opens a case, whose number is returned. */
    report(run: string, text: string): Promise<number>;
    build(type: EventType, run: string, data: object, about: About): Statement;
    /** The data of an event as it would be told, whole. */
    masked(data: object): JsonObject;
    /**
     * Put a statement in the spool; the sender does the rest.
     *
     * Where the disk is full it goes to the desk at once: what has happened must be told.
     */
    send(told: Statement, key?: KeyRow): Promise<void>;
    /** Events that were refused and are set aside, each with the problem that was named. */
    parked(): {
        event: Event;
        problem: Problem;
    }[];
    /** Send again what is set aside, or the events of these ids; how many are in line again. */
    retryParked(ids?: readonly string[]): number;
    /**
     * Send what a run has said, for so long at most: a process may end as soon as its run has, and
     * leave no time. What is not sent by then stays in the spool; nothing is thrown.
     */
    deliver(run: string, seconds?: number): Promise<void>;
    /** Try for so long to send what waits; whether all of it is sent. */
    flush(seconds?: number): Promise<boolean>;
}
