/**
 * The gate: may this call be made now? Asked of the desk; of the spool while the desk is away.
 *
 * It fails closed. What needs the desk is not done without it, and what may be done without it is
 * on disk before it happens.
 */
import { type Statement } from "./events.ts";
import { type Json, type JsonObject } from "./protocol/canonical.ts";
import type { Log, Sender } from "./sender.ts";
import { type KeyRow, type Spool } from "./spool.ts";
import type { Wire } from "./wire.ts";
/** Hears once of each approval that is waited for: `approval`, `url` and `expires_at`. */
export type Waits = (answer: JsonObject) => unknown;
/** Is given what a person asks back before deciding; its answer is shown to them. */
export type Replies = (question: string) => string | null | undefined | Promise<string | null | undefined>;
/** One call that wants to be made: what is planned, and one try at it. */
export type BeginRequest = {
    planned: Statement;
    /** The statement of this try, kept in the spool if the desk is away. */
    started: Statement;
    key: string;
    asked: string;
    attempt: string;
    retry: string | undefined;
    isGated: boolean;
    isComparable: boolean;
    isPivot: boolean;
    waitSeconds: number;
    signal: AbortSignal | undefined;
    /** What the spool knew of the key before the desk was told of it, and asked. */
    was?: KeyRow | null;
    /** When the desk was asked last. */
    askedAt?: Moment;
};
/** The yes that let a call proceed: its number, and the page that says whose it is. */
export type Approval = {
    id: string;
    url: string;
};
/** In milliseconds by a clock that nobody sets, and that goes on while the machine sleeps. */
type Moment = number;
/**
 * The row of the key, how long the desk has lent it to this try, the arguments where an approver
 * has changed them, the yes where people were asked, and what kept the row from being remembered:
 * then the call may not be made.
 */
export type Begun = {
    row: KeyRow;
    leaseUntil: Moment | null;
    changed?: Json;
    approval?: Approval | null;
    unkept?: Error | null;
};
export type Asked = Begun & {
    ask: BeginRequest;
};
/** Of who stood still for longer: a process that was stopped, a machine that slept. */
export declare function isLate({ leaseUntil }: Begun): boolean;
/**
 * What it gives; made again, TRIES times in all, where the desk does not answer or says “not now”:
 * it may be starting, or its database be changing places. Throws what the last try did.
 */
export declare function trying<T>(once: () => Promise<T>, signal?: AbortSignal): Promise<T>;
/** What it gives; where this agent asks faster than it may, made again when the desk says. */
export declare function inTurn<T>(once: () => Promise<T>, signal?: AbortSignal): Promise<T>;
/** Asks, waits and remembers. */
export declare class Gate {
    #private;
    constructor(spool: Spool, sender: Sender, wire: Wire, heard: {
        log: Log;
        onWait?: Waits | undefined;
        onQuestion?: Replies | undefined;
    });
    /**
     * The row of the key: `running` if the call is to be made now, `succeeded` if it was.
     *
     * Throws Denied, Stopped, ApprovalTimeout, InDoubt, InProgress, KeyReused, Compensated,
     * Throttled, NotTheDesk or DeskUnreachable.
     */
    begin(ask: BeginRequest): Promise<Begun>;
    /**
     * Keep the lease of a try for as long as its call is made, so that nobody takes it for lost. The
     * same question under the same attempt renews it. Stops when `over` does.
     */
    renewing(ask: BeginRequest, leaseUntil: Moment | null, over: AbortSignal): Promise<void>;
    /**
     * A call whose lease was over before it is made, asked for under the same try once more: the run
     * may be recovered by now, or another try have made it (`succeeded`). Throws NoEffect where it is
     * not lent any more.
     */
    renewed(begun: Asked): Promise<Asked>;
    /**
     * What the desk would answer now, and under `explain` why; it begins nothing. Throws Refused,
     * InProgress, KeyReused or DeskUnreachable.
     */
    explain(ask: BeginRequest): Promise<JsonObject>;
}
export {};
