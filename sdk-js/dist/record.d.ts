/** A run's record: what it and its calls say to the desk, each statement numbered and masked. */
import type { About, Statement } from "./events.ts";
import type { Link } from "./link.ts";
import type { Effect } from "./plans.ts";
import { type Json, type JsonObject } from "./protocol/canonical.ts";
import type { EventType } from "./protocol/vocabulary.ts";
import { type KeyRow } from "./spool.ts";
/** What is open and says, as the process ends, that nobody knows how it goes on. */
export type Open = {
    abandon: (why: Error) => void;
};
/** What a run and its calls write together. */
export declare class Record {
    #private;
    readonly desk: Link;
    readonly id: string;
    /** What the desk wants of a resumed run. */
    directive: JsonObject | null;
    failedAction: string | null;
    lastAction: string | null;
    ended: boolean;
    readonly openActions: Set<Open>;
    /** What is still to be said before the run ends. */
    readonly atEnd: (() => Promise<void>)[];
    constructor(desk: Link, id: string, trace: JsonObject | null);
    /** Whether the desk has told this run to do an undone call anew, under a new key. */
    repeats(key: string): boolean;
    /** What the desk says of the calls of a resumed run. */
    get steps(): JsonObject[];
    /** Of a call that has succeeded: what fails after it is another's failure. */
    wentWell(action: string): void;
    /**
     * What this agent knows of a key from this run: in another one a call is another action, with a
     * number of its own.
     */
    known(key: string): KeyRow | null;
    /** Which arguments a tool takes, where the desk has not heard it from this process. */
    newsOf(tool: string, shape: {
        digest: string;
        schema: JsonObject;
    } | null): object;
    /** The next number in this run; a resumed one counts on from where the desk saw it. */
    nextN(): number;
    /** A statement about this run, masked and ready to be sent; `more` where it can be told, too. */
    build(type: EventType, data: object, about?: Omit<About, "trace">, more?: object): Statement;
    /**
     * The effect as it may be told: a state that holds a masked field cannot be restored exactly.
     * Where it does not say what was there before, the plan has.
     */
    honest(effect: Effect, planned: Json | undefined): Effect;
    /** Put a statement in the spool, under the run's next number if none is given. */
    say(type: EventType, data: object, about?: Omit<About, "trace">): Promise<void>;
}
