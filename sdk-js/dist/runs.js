/** A run: what one agent does for one request, from the first call to one of its endings. */
import { AsyncLocalStorage } from "node:async_hooks";
import { Action } from "./actions.js";
import { AmendsError, DeskUnreachable, MissingOutcome, NoRun, saidBy, Stopped, } from "./errors.js";
import { said } from "./events.js";
import { mustBePlan } from "./plans.js";
import { canonical } from "./protocol/canonical.js";
import { Record } from "./record.js";
import { asTargets, plainObject } from "./values.js";
const current = new AsyncLocalStorage();
const NO_REASON = "no reason is given";
/** The run that this code runs in. Throws NoRun outside any. */
export function currentRun() {
    const run = current.getStore();
    if (run === undefined)
        throw new NoRun("open a run first: desk.run(..., async (run) => ...)");
    return run;
}
/**
 * Made by `desk.run(request, about, body)`: completed at the end, failed by an error, cancelled by
 * `cancel` or as the desk says. Or by `desk.open`, and ended by `complete`, `fail` or `cancel`.
 *
 * `directive` is what the desk wants of a resumed run, `state` what its checkpoint held; both are
 * known once it is started.
 */
export class Run extends Record {
    state = null;
    /** The desk's word to stop, where a framework may have taken it for an error of a tool. */
    stopped = null;
    /** Told as the run is completed. */
    summary = "";
    #told;
    #directiveSeconds;
    /** `told` is what is said as the run begins; null for one that is resumed. */
    constructor(desk, id, told, { trace, directiveSeconds = 0 } = {}) {
        super(desk, id, trace ? plainObject(trace, "trace") : null);
        this.#told = told;
        this.#directiveSeconds = directiveSeconds;
    }
    /**
     * Say that the run begins, or that it goes on. `desk.run` and `desk.open` do it for you.
     *
     * Of a run that is resumed it throws Stopped where the desk wants it to stop, and AmendsError
     * where it wants nothing of it.
     */
    async start() {
        await this.desk.freshen();
        if (this.#told !== null) {
            const agent = this.desk.agent;
            await this.say("run.started", { ...(agent ? { agent } : {}), ...this.#told }, { n: 0 });
            return this;
        }
        const waitSeconds = this.#directiveSeconds;
        const directive = await this.desk.directive(this.id, { waitSeconds });
        if (directive === null)
            throw new AmendsError(`the desk wants nothing of ${this.id}`);
        if (directive["kind"] !== "resume")
            throw new Stopped(String(directive["reason"] || NO_REASON));
        this.directive = directive;
        this.state = directive["state"] ?? null;
        await this.say("run.resumed", { directive: directive["id"], from: directive["from"] });
        return this;
    }
    /** `body` with this run as the current one; the run ends as it ends. */
    async within(body) {
        let found;
        try {
            found = await current.run(this, async () => body(this));
        }
        catch (error) {
            await this.#leave(error);
            throw error;
        }
        if (this.stopped !== null) {
            await this.#leave(this.stopped);
            throw this.stopped;
        }
        if (!this.ended)
            await this.complete();
        return found;
    }
    /**
     * One call of a tool. The desk is asked, and `body` runs where the call may be made or was made
     * before: it makes it with `act.perform` and says how it went. What it throws is a failure.
     */
    async action(tool, plan, body) {
        if (typeof body !== "function") {
            throw new AmendsError("run.action(tool, plan, body): the body is missing; plan may be {}");
        }
        return (await this.begin(tool, plan)).within(body);
    }
    /** The same in two halves: `await using act = await run.begin(tool, plan)`. */
    async begin(tool, plan = {}) {
        this.#mustBeOpen();
        try {
            mustBePlan(plan, tool);
            return await new Action(this, tool, plan).begin();
        }
        catch (error) {
            saidBy(error, Infinity);
            throw error;
        }
    }
    /**
     * What the desk would answer to such a call now, and under `explain` why: the rule, each
     * condition with what it came to, the grants that do not cover it. Nothing is begun, and nobody
     * is asked.
     */
    async explain(tool, plan = {}) {
        this.#mustBeOpen();
        mustBePlan(plan, tool);
        return this.desk.spool.needed(() => new Action(this, tool, plan).explain());
    }
    /** Mark a safe place to pause and to come back to. Throws Stopped if the desk wants a stop. */
    async checkpoint(name, about = {}) {
        this.#mustBeOpen();
        const { recoveryMode, ...others } = about;
        const given = plainObject({ name, ...others, recovery_mode: recoveryMode }, "a checkpoint");
        const told = this.build("run.checkpoint", withoutEmpty(given), { n: this.nextN() });
        if (told.blobs.size > 0) {
            const { data } = told.event;
            data["state_ref"] = data["state"]["ref"];
            delete data["state"];
        }
        await this.desk.send(told);
        await this.heed();
    }
    /** Ask what the desk wants of this run. Throws Stopped; does nothing if it is away. */
    async heed() {
        try {
            const directive = await this.desk.directive(this.id);
            if (directive?.["kind"] === "stop") {
                throw new Stopped(String(directive["reason"] || NO_REASON));
            }
        }
        catch (error) {
            if (!(error instanceof DeskUnreachable))
                throw error;
        }
    }
    /** In a resumed run: whether the desk says that this call is done and to be skipped. */
    isDone(tool, { target } = {}) {
        const wanted = canonical(asTargets(target));
        return this.steps.some((step) => step["tool"] === tool &&
            step["label"] === "skip" &&
            (target === undefined || canonical(step["targets"] ?? null) === wanted));
    }
    /** End the run well. `desk.run` does it for you, with `run.summary`. */
    async complete(summary = "") {
        await this.#end("run.completed", { summary: summary || this.summary });
    }
    /**
     * End the run as failed. `desk.run` does it for you.
     *
     * A call is named where you name one, or where it failed, was refused, or is unknown.
     */
    async fail(error, { failedAction } = {}) {
        const action = failedAction ?? this.failedAction ?? this.lastAction;
        await this.#end("run.failed", { error: said(error), failed_action: action });
    }
    /** End the run because somebody wants it to end; no further call is made in it. */
    async cancel({ by, reason = "" }) {
        await this.#end("run.cancelled", { by, reason });
    }
    /**
     * Say that this run did wrong, ended or not, so that people look at it; the case's number.
     *
     * What is still to be sent goes first. Throws DeskUnreachable where the desk is away.
     */
    report(text) {
        return this.desk.report(this.id, text);
    }
    /** Make this the current run of what follows, for a run that `desk.open` has given. */
    enter() {
        current.enterWith(this);
        return this;
    }
    /**
     * For `await using run = await desk.open(...)`. What was thrown is not told to it, so a run that
     * was not ended by `complete`, `fail` or `cancel` has failed.
     */
    async [Symbol.asyncDispose]() {
        if (!this.ended)
            await this.fail(new MissingOutcome("the run was left without complete()"));
    }
    /** The process ends: say on disk, at once, that the run and its open calls are left. */
    abandon(why) {
        if (this.ended)
            return;
        for (const action of this.openActions)
            action.abandon(why);
        const data = { by: "the process", reason: why.name };
        const told = this.build("run.cancelled", data, { n: this.nextN() });
        this.desk.spool.write(told.event, {});
        this.ended = true;
    }
    async #leave(error) {
        if (this.ended)
            return;
        const stopped = stoppedBy(error);
        if (stopped)
            await this.cancel({ by: "the desk", reason: stopped.reason });
        else
            await this.fail(error);
    }
    async #end(type, data) {
        this.#mustBeOpen();
        for (const last of this.atEnd.splice(0))
            await last();
        this.ended = true;
        await this.say(type, withoutEmpty(data));
        await this.desk.deliver(this.id);
    }
    #mustBeOpen() {
        if (this.ended)
            throw new NoRun(`the run ${this.id} has ended`);
    }
}
/**
 * The desk's word to stop, also where a framework has wrapped it in an error of its own, or in one
 * of several.
 */
export function stoppedBy(error) {
    const seen = new Set(); // an error may be its own cause
    for (const left = [error]; left.length > 0;) {
        const one = left.pop();
        if (one instanceof Stopped)
            return one;
        if (!(one instanceof Error) || seen.has(one))
            continue;
        seen.add(one);
        left.push(one.cause, ...(one instanceof AggregateError ? one.errors : []));
    }
    return null;
}
/** What is worth saying: the members that say something. */
export function withoutEmpty(said) {
    const isEmpty = (value) => value === undefined ||
        value === null ||
        value === "" ||
        (typeof value === "object" && Object.keys(value).length === 0);
    return Object.fromEntries(Object.entries(said).filter(([, value]) => !isEmpty(value)));
}
