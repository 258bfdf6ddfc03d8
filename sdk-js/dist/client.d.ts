/** The desk as an agent sees it: one address, one key, one spool. */
import type { Replies, Waits } from "./gate.ts";
import { Link } from "./link.ts";
import { type Args } from "./plans.ts";
import { type About, Run } from "./runs.ts";
import type { Log, Parked } from "./sender.ts";
import { type Call, type Declaration } from "./tools.ts";
export type ConnectOptions = {
    /** Else AMENDS_URL and AMENDS_KEY: Settings → Agents and keys. */
    url?: string | undefined;
    key?: string | undefined;
    /** The file that keeps what is not sent yet; by default one per address and key. */
    spool?: string | undefined;
    /** Needed only where the very first call may come while the desk is away. */
    workspace?: string | undefined;
    waitSeconds?: number | undefined;
    /** Hears of approvals that are waited for. */
    onWait?: Waits | undefined;
    /** Is given what a person asks back before deciding, and returns an answer. */
    onQuestion?: Replies | undefined;
    /** Hears of events that were refused. */
    onParked?: Parked | undefined;
    /**
     * Where nobody else handles SIGTERM, it ends the process, and open calls and runs are told as
     * ended instead of falling silent. True unless said otherwise.
     */
    heedsSigterm?: boolean | undefined;
    /** By default warnings and errors go to the console. */
    log?: Log | undefined;
};
/** A connection to the recovery desk, for one agent. Make one per process, with `connect`. */
export declare class Desk extends Link {
    #private;
    readonly heedsSigterm: boolean;
    constructor(url: string, key: string, options?: Omit<ConnectOptions, "url" | "key">);
    /** A run of `body`, for what the user said in their words. Inside it is the current run. */
    run<T>(request: string, about: About, body: (run: Run) => T | PromiseLike<T>): Promise<T>;
    /** The same in two halves: `await using run = await desk.open(...)`, and end it yourself. */
    open(request: string, { run: id, trace, onBehalfOf, ...about }?: About): Promise<Run>;
    /**
     * Go on with a run as the desk says, from its `state`. Calls that are done answer their first
     * result, undone ones get a new key.
     *
     * Throws Stopped if the desk wants the run to stop, AmendsError if it wants nothing; it waits for
     * so long for the desk to want something.
     */
    resume<T>(id: string, { waitSeconds }: {
        waitSeconds?: number;
    }, body: (run: Run) => T | PromiseLike<T>): Promise<T>;
    /** A function whose every call is an action of the current run; see `Declaration`. */
    tool<A extends object = Args, R = unknown>(name: string, declared: Declaration<A, R> & {
        tries?: number;
    }, call: Call<A, R>): (args: A) => Promise<R>;
    /**
     * Send what waits if the desk is there, and let go. The spool keeps the rest.
     *
     * A process that ends without it does the same at its end. Twice is once.
     */
    close({ seconds }?: {
        seconds?: number | undefined;
    }): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
    /** The process ends: say on disk, at once, that what is open is left. */
    abandon(why: Error): void;
}
/** The desk at AMENDS_URL under AMENDS_KEY, or as the options say. */
export declare function connect(options?: ConnectOptions): Desk;
/** One file per address, however that is written, and key, which does not tell either. */
export declare function defaultSpool(url: string, key: string): string;
