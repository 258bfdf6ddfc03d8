/**
 * The gate: may this call be made now? Asked of the desk; of the spool while the desk is away.
 *
 * It fails closed. What needs the desk is not done without it, and what may be done without it is
 * on disk before it happens.
 */
import { uptime } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { ApprovalTimeout, Compensated, Denied, DeskUnreachable, InDoubt, InProgress, inWords, KeyReused, NoEffect, NotTheDesk, Refused, Stopped, Throttled, } from "./errors.js";
import { newId } from "./events.js";
import { compact, isObject } from "./protocol/canonical.js";
import { CannotUse } from "./spool.js";
// How often a request is made in all that the desk does not answer, and what lies between two tries
// where it does not say.
const TRIES = 3;
const PAUSE_SECONDS = 0.2;
// So long a call waits where its agent asks faster than it may; then it is not made.
const THROTTLED_SECONDS_MAX = 60;
const POLL_SECONDS = 30;
const AWAY_PAUSE_SECONDS = 1;
// Reasons for a denial that mean: the whole run is over, not only this call.
const RUN_IS_OVER = new Set(["run_ended", "recovery"]);
// A lease is renewed when half of it is over. The two clocks may differ, so within these.
const RENEW_SECONDS_MIN = 1;
const RENEW_SECONDS_MAX = 300;
const NEEDED = "The call may not be made without it and was not made: try again when it is back.";
const NOT_TWICE = "The call was not made a second time: wait for the other try, or until its lease ends";
const REUSED = "this key was used with other arguments, so the call was not made. Where it is a second" +
    " operation, give it an `op` of its own";
const NOT_COMPARABLE = "this key was used before, and a masked value in its arguments cannot be compared while the" +
    " desk, whose masking key this client has not fetched yet, is away: the call was not made";
const MOMENT = /^\d{4}-\d{2}-\d{2}T.*(Z|[+-]\d{2}:\d{2})$/;
const NOT_THE_DESKS = "the answer is not the desk's";
/** What an answer names beside itself. */
const NAMES = new Map([
    ["proceed", "action"],
    ["wait", "approval"],
    ["compensated", "next_key"],
    ["replay", "action"],
    ["in_doubt", "action"],
]);
const leaseIsOver = (why) => "the lease of this call was over before it was made, and the desk does not lend it again" +
    ` (${why}): it was not made`;
const OVER_AGAIN = "or for so short that it was over when it came";
const UNDONE = "this call was made once and undone since; it was not made again. `nextKey` makes it anew";
const awakeOrNot = () => uptime() * 1000;
/** Of who stood still for longer: a process that was stopped, a machine that slept. */
export function isLate({ leaseUntil }) {
    return leaseUntil !== null && awakeOrNot() >= leaseUntil;
}
/**
 * What it gives; made again, TRIES times in all, where the desk does not answer or says “not now”:
 * it may be starting, or its database be changing places. Throws what the last try did.
 */
export async function trying(once, signal) {
    for (let left = TRIES - 1;; left -= 1) {
        try {
            return await once();
        }
        catch (error) {
            if (!(error instanceof DeskUnreachable) || error instanceof Throttled)
                throw error;
            if (left === 0)
                throw error;
            await pause(error.retryAfterSeconds || PAUSE_SECONDS, signal);
        }
    }
}
/** What it gives; where this agent asks faster than it may, made again when the desk says. */
export async function inTurn(once, signal) {
    const end = performance.now() + THROTTLED_SECONDS_MAX * 1000;
    for (;;) {
        try {
            return await once();
        }
        catch (error) {
            if (!(error instanceof Throttled))
                throw error;
            const seconds = Math.max(error.retryAfterSeconds, PAUSE_SECONDS);
            if (performance.now() + seconds * 1000 > end)
                throw error;
            await pause(seconds, signal);
        }
    }
}
/** Asks, waits and remembers. */
export class Gate {
    #spool;
    #sender;
    #wire;
    #log;
    #onWait;
    #onQuestion;
    constructor(spool, sender, wire, heard) {
        this.#spool = spool;
        this.#sender = sender;
        this.#wire = wire;
        this.#log = heard.log;
        this.#onWait = heard.onWait;
        this.#onQuestion = heard.onQuestion;
    }
    /**
     * The row of the key: `running` if the call is to be made now, `succeeded` if it was.
     *
     * Throws Denied, Stopped, ApprovalTimeout, InDoubt, InProgress, KeyReused, Compensated,
     * Throttled, NotTheDesk or DeskUnreachable.
     */
    async begin(ask) {
        let answer;
        try {
            answer = await inTurn(() => this.#prepareAndAsk(ask), ask.signal);
        }
        catch (error) {
            // Throttled: the desk is there, so nothing is done without it.
            if (!(error instanceof DeskUnreachable) || error instanceof Throttled)
                throw error;
            // It may answer so to this call alone, and no other way is open.
            if (error instanceof NotTheDesk) {
                throw new NotTheDesk(`${error.message} ${NEEDED}`, { cause: error });
            }
            return { row: this.#alone(ask, error), leaseUntil: null };
        }
        if (answer["answer"] === "wait")
            answer = await this.#wait(ask, answer);
        return this.#heed(ask, answer);
    }
    /**
     * Keep the lease of a try for as long as its call is made, so that nobody takes it for lost. The
     * same question under the same attempt renews it. Stops when `over` does.
     */
    async renewing(ask, leaseUntil, over) {
        for (let until = leaseUntil; until !== null;) {
            const half = (until - awakeOrNot()) / 2000;
            const seconds = Math.min(Math.max(half, RENEW_SECONDS_MIN), RENEW_SECONDS_MAX);
            await sleep(seconds * 1000, undefined, { signal: over, ref: false }).catch(() => undefined);
            if (over.aborted)
                return;
            const asked = awakeOrNot();
            try {
                until = leaseOf(await this.#wire.post("actions/begin", body(ask), over), asked) ?? until;
            }
            catch (error) {
                if (!over.aborted)
                    this.#log("info", `a lease could not be renewed: ${String(error)}`);
            }
        }
    }
    /**
     * A call whose lease was over before it is made, asked for under the same try once more: the run
     * may be recovered by now, or another try have made it (`succeeded`). Throws NoEffect where it is
     * not lent any more.
     */
    async renewed(begun) {
        const { ask } = begun;
        let answer;
        try {
            answer = await inTurn(() => this.#ask(ask), ask.signal);
        }
        catch (no) {
            const isAway = no instanceof Error && no.constructor === DeskUnreachable;
            if (!isAway || ask.isGated)
                throw new NoEffect(leaseIsOver(String(no)), { cause: no });
            return { ...begun, leaseUntil: awakeOrNot() + RENEW_SECONDS_MAX * 1000 }; // made without it
        }
        const said = answer["answer"];
        if (said !== "proceed" && said !== "replay") {
            throw new NoEffect(leaseIsOver(String(answer["reason"] || said)));
        }
        const again = { ...begun, ...this.#heed(ask, answer) };
        if (isLate(again))
            throw new NoEffect(leaseIsOver(OVER_AGAIN));
        return again;
    }
    /**
     * What the desk would answer now, and under `explain` why; it begins nothing. Throws Refused,
     * InProgress, KeyReused or DeskUnreachable.
     */
    async explain(ask) {
        return inTurn(() => this.#tellAndExplain(ask), ask.signal);
    }
    /** What was said before may be what the answer depends on. */
    async #tellAndExplain(ask) {
        await trying(() => this.#tellBefore(ask), ask.signal);
        return this.#ask(ask, { explain: "1" });
    }
    /** What may go on without the desk does not wait for it; what needs it asks again. */
    async #prepareAndAsk(ask) {
        const makeReady = () => this.#makeReady(ask);
        await (ask.isGated ? trying(makeReady, ask.signal) : makeReady());
        return this.#ask(ask);
    }
    /** What was said before is there before the question is, and so are its snapshots. */
    async #makeReady(ask) {
        this.#spool.needRoom();
        await this.#tellBefore(ask);
        this.#spool.keep(ask.planned.blobs);
    }
    /** What waits of this run, and of the one that may have used the key while the desk was away. */
    async #tellBefore(ask) {
        const was = (ask.was = this.#spool.find(ask.key));
        const { run } = ask.planned.event;
        for (const one of new Set([run, was?.run ?? run]))
            await this.#sender.drain(one);
    }
    /** Send `begin`, again with the same attempt where the answer was lost. */
    async #ask(ask, params) {
        let answer;
        try {
            answer = await trying(async () => {
                await this.#sender.upload(ask.planned.blobs.keys());
                // Not given up half-way: who is lent the key and does not know it leaves it in doubt.
                ask.askedAt = awakeOrNot();
                return this.#wire.send("actions/begin", { method: "POST", body: body(ask), params });
            }, ask.signal);
        }
        catch (error) {
            if (error instanceof Refused)
                throw meaning(error) ?? error;
            throw error;
        }
        const isWhole = params ? isObject(answer["explain"]) : isTheDesks(answer);
        if (!isWhole)
            throw new NotTheDesk(NOT_THE_DESKS);
        return answer;
    }
    /**
     * Wait until people have decided; where they have changed the arguments meanwhile, also for the
     * approval that took the place of the first.
     */
    async #wait(ask, first) {
        const end = performance.now() + ask.waitSeconds * 1000;
        let answer = first;
        let told = "";
        while (answer["answer"] === "wait") {
            if (String(answer["approval"]) !== told) {
                told = String(answer["approval"]);
                const tool = String(ask.planned.event.data["tool"]);
                const words = `${tool} waits until people have decided: ${String(answer["url"] ?? told)}`;
                // Else a program would stand still for an hour, and nobody would know why.
                this.#log(this.#onWait === undefined ? "warn" : "info", words);
                await this.#onWait?.(answer);
            }
            answer = await this.#decided(ask, answer, end);
        }
        return answer;
    }
    /** Poll until an approval has ended, then ask anew: the answer to that decides. */
    async #decided(ask, answer, end) {
        const met = new Set();
        const approval = String(answer["approval"]);
        const path = `approvals/${encodeURIComponent(approval)}`;
        let heard = 0;
        let away = null; // where the last try was not answered
        for (;;) {
            const left = (end - performance.now()) / 1000;
            if (left <= 0)
                throw away ?? new ApprovalTimeout(approval, String(answer["url"] ?? ""));
            try {
                const seen = await this.#wire.get(path, {
                    waitSeconds: Math.max(1, Math.min(POLL_SECONDS, left)),
                    params: this.#onQuestion ? { heard: String(heard) } : {},
                    signal: ask.signal,
                });
                if (typeof seen["state"] !== "string")
                    throw new DeskUnreachable(NOT_THE_DESKS);
                if (seen["state"] !== "waiting")
                    return await this.#ask(ask);
                await this.#reply(path, seen, met);
                heard = Number(seen["asked"] ?? 0);
                away = null;
            }
            catch (error) {
                if (!(error instanceof DeskUnreachable) || performance.now() >= end)
                    throw error;
                away = error;
                await pause(Math.max(error.retryAfterSeconds, AWAY_PAUSE_SECONDS), ask.signal);
            }
        }
    }
    /** Answer what people asked back, once. Without an answer an operator may give one. */
    async #reply(path, seen, met) {
        const questions = Array.isArray(seen["questions"]) ? seen["questions"].filter(isObject) : [];
        for (const { id, question } of questions) {
            if (this.#onQuestion === undefined || met.has(String(id)))
                continue;
            met.add(String(id));
            const words = await this.#onQuestion(String(question));
            if (!words)
                continue;
            try {
                const said = compact({ question: Number(id), answer: words });
                await this.#wire.post(`${path}/answers`, said);
            }
            catch (error) {
                if (!(error instanceof Refused))
                    throw error; // else somebody was faster, or it is decided
                this.#log("info", `an answer was not taken: ${error.message}`);
            }
        }
    }
    #heed(ask, answer) {
        const said = String(answer["answer"]);
        switch (said) {
            case "proceed":
            case "replay": {
                const row = rowOf(ask, said === "proceed" ? "running" : "succeeded", answer);
                const unkept = this.#unkept(row, ask);
                const leaseUntil = leaseOf(answer, ask.askedAt);
                if (said === "replay")
                    return { row, leaseUntil, unkept };
                const { arguments: changed = null, approval: id, url } = answer;
                const approval = id ? { id: `${id}`, url: `${url ?? ""}` } : null;
                return { row, leaseUntil, changed, approval, unkept };
            }
            case "in_doubt":
                this.#unkept(rowOf(ask, "unknown", answer), ask);
                throw new InDoubt(String(answer["action"]));
            case "compensated":
                throw new Compensated(UNDONE, String(answer["next_key"]));
            case "denied": {
                const reason = String(answer["reason"] || "the desk does not allow it");
                const isOver = RUN_IS_OVER.has(answer["code"] ?? null);
                throw isOver ? new Stopped(reason, answer) : new Denied(reason, answer);
            }
            default: {
                const words = `the desk answers “${said}”, which this client does not know`;
                throw new DeskUnreachable(words);
            }
        }
    }
    /** Remember it; gives why not: the disk, or a call of which the desk did not know. */
    #unkept(row, { was = null, isPivot }) {
        try {
            const made = this.#spool.note(row, { was, isPivot });
            return made && new InDoubt(made.action);
        }
        catch (error) {
            if (!(error instanceof CannotUse))
                throw error;
            return error;
        }
    }
    /** The desk is away: answer from our own keys, and from the last policy. */
    #alone(ask, away) {
        const row = this.#spool.find(ask.key);
        const cause = { cause: away };
        if (row && row.state !== "no_effect") {
            if (!ask.isComparable)
                throw new KeyReused(NOT_COMPARABLE, cause);
            if (row.asked !== ask.asked)
                throw new KeyReused(REUSED, cause);
        }
        if (row?.state === "succeeded")
            return row;
        if (row?.state === "running" || row?.state === "unknown")
            throw new InDoubt(row.action, cause);
        if (ask.isGated) {
            const { retryAfterSeconds } = away;
            throw new DeskUnreachable(`${away.message} ${NEEDED}`, { retryAfterSeconds, ...cause });
        }
        const { planned, started, isPivot } = ask;
        const { data } = planned.event; // the desk may have it without what is said now
        if (isPivot && !data["saga"])
            [planned.event.id, data["saga"]] = [newId(), "pivot"];
        if (row && row.run === planned.event.run)
            for (const { event } of [planned, started])
                [event.action, event.n] = [row.action, row.n];
        const running = rowOf(ask, "running", {});
        const isMine = this.#spool.begin(planned, started, { key: running, was: row, isPivot });
        if (!isMine)
            return this.#alone(ask, away); // what another process has put there meanwhile
        this.#sender.wake();
        return running;
    }
}
/** Whether it is one of the desk's answers, with all that belongs to it: half a yes is none. */
function isTheDesks(answer) {
    const { answer: said, fence } = answer;
    if (typeof said !== "string")
        return false;
    const named = answer[NAMES.get(said) ?? "answer"];
    if (typeof named !== "string" || named === "")
        return false;
    return said !== "proceed" || (isFence(fence) && leaseOf(answer) !== null);
}
function isFence(fence) {
    return Number.isSafeInteger(fence) && Number(fence) > 0;
}
function body(ask) {
    const { planned, attempt, retry } = ask;
    return compact({ ...planned.event, attempt, ...(retry ? { retry } : {}) });
}
function rowOf(ask, state, known) {
    const { event } = ask.planned;
    const { action, fence, result } = known;
    return {
        key: ask.key,
        run: event.run,
        action: typeof action === "string" && action !== "" ? action : event.action,
        n: event.n,
        asked: ask.asked,
        attempt: ask.attempt,
        fence: typeof fence === "number" ? fence : null,
        state,
        result: result ?? null,
    };
}
/**
 * Until when the call is this try's; by our own clock where an older desk does not say for how
 * long, and where that clock is ahead of it, until it is renewed.
 */
function leaseOf(answer, asked = awakeOrNot()) {
    const { lease_until: until, lease_seconds: seconds } = answer;
    if (typeof until !== "string" || !MOMENT.test(until))
        return null;
    const found = new Date(until).getTime();
    if (Number.isNaN(found))
        return null;
    const isSaid = typeof seconds === "number" && seconds > 0;
    const left = found - Date.now();
    if (!isSaid)
        return asked + (left > 0 ? left : RENEW_SECONDS_MAX * 1000);
    return asked + seconds * 1000;
}
/** What a refusal says of the key, if it is about that. */
function meaning(refused) {
    const kind = String(refused.problem["type"] ?? "");
    if (kind.endsWith("in-progress")) {
        return new InProgress(`${inWords(refused.problem)}. ${NOT_TWICE}`, { cause: refused });
    }
    return kind.endsWith("key-reused") ? new KeyReused(REUSED, { cause: refused }) : null;
}
async function pause(seconds, signal) {
    signal?.throwIfAborted();
    await sleep(seconds * 1000, undefined, signal ? { signal } : {}).catch((error) => {
        signal?.throwIfAborted();
        throw error;
    });
}
