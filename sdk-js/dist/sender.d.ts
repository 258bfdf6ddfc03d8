/**
 * The sender: takes events from the spool to the desk, in order, until each is there.
 *
 * One bad event never holds up the others: it is set aside with the reason and reported, whether
 * the desk refuses it or something on the way does. What is set aside stays on disk and can be sent
 * again.
 */
import { type Problem } from "./errors.ts";
import type { Event, Statement } from "./events.ts";
import { type Spool } from "./spool.ts";
import type { Wire } from "./wire.ts";
export type Parked = (event: Event, problem: Problem) => void;
/** Who hears what an operator of the agent should know. */
export type Log = (level: "info" | "warn" | "error", text: string) => void;
/** Works in the background from the first event until `close`; a process may end meanwhile. */
export declare class Sender {
    #private;
    /** `before` is called before anything is sent, and throws where nothing may be. */
    constructor(spool: Spool, wire: Wire, how: {
        log: Log;
        onParked?: Parked | undefined;
        before: () => Promise<void>;
    });
    /** Say that something waits; returns at once. */
    wake(): void;
    /**
     * Send all that waits (of one run) now.
     *
     * Throws DeskUnreachable, KeyRefused, or Refused where the desk itself will not say whose spool
     * this is: then nothing is done as if it were away.
     */
    drain(run?: string): Promise<void>;
    /** Send one statement past the spool. Throws as `Wire` does; Refused if it is not taken. */
    tell(told: Statement): Promise<void>;
    /** Try for so long; whether everything (of one run) is sent. What is not stays in the spool. */
    flush(seconds: number, run?: string): Promise<boolean>;
    close(): void;
    /**
     * Send the blobs of these hashes that are not there yet.
     *
     * One that the desk will not take is dropped: what happened matters more than its snapshot.
     */
    upload(names: Iterable<string>): Promise<void>;
}
/** How many events are set aside, and what to do about it. */
export declare function setAside(spool: Spool): string;
