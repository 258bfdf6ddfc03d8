/** Tools: functions whose every call is an action of the current run. */
import { AsyncLocalStorage } from "node:async_hooks";
import { AmendsError, ApprovalTimeout, ArgumentsChanged, Compensated, Denied, DeskUnreachable, hasPassed, InDoubt, InProgress, isAnothers, KeyRefused, KeyReused, moment, NoEffect, Refused, SpoolFull, Stopped, TooLarge, Unfit, } from "./errors.js";
import { bitByBit, signalWithin } from "./plans.js";
import { cataloguedClass } from "./policy.js";
import { canonical } from "./protocol/canonical.js";
import { sha256 } from "./protocol/digests.js";
import { masked } from "./protocol/masking.js";
import { WITHOUT_EFFECT } from "./protocol/vocabulary.js";
import { currentRun, stoppedBy } from "./runs.js";
import { asTargets, plain, plainObject } from "./values.js";
/** One action of a run, asked for as it is declared. */
export async function beginDeclared(run, name, declared, args, how = {}) {
    const { target, before, after, verify, undo, undoOfResult, ...plan } = declared;
    return run.begin(name, {
        acceptsChangedArguments: true,
        ...plan,
        ...how,
        args,
        target: targetOf(target, args),
        before: before ? ((await before(args)) ?? null) : undefined,
        undo: typeof undo === "function" ? undo(args) : undo,
    });
}
/**
 * The rest of it: call, read what is there now, and say it. Throws ArgumentsChanged where an
 * approver has changed the arguments so that the call would change something else.
 */
export function finishDeclared(act, { target, after, verify, undo, undoOfResult }, call) {
    const performed = act.within(async () => {
        const { args } = act;
        if (act.isChanged && !isSameTarget(act, target))
            throw new ArgumentsChanged(OTHER_TARGET);
        const answer = await making(act, call);
        if (act.replayed)
            return { answer, isFirst: false };
        const lazy = bitByBit(answer);
        if (lazy !== null)
            throw lazy;
        await told(act, answer, { after, undo, undoOfResult });
        if (verify)
            await act.verified(await verify(answer, args));
        return { answer, isFirst: true };
    });
    return performed.catch((error) => {
        act.run.failedAction = act.id; // also where only what is read after it threw
        throw error;
    });
}
const made = new AsyncLocalStorage();
async function making(act, call) {
    return during({ act, args: asText(act.args), isOver: false, isWithin: false }, () => act.perform(call));
}
async function madeWithin(outer, call) {
    outer.isWithin = true;
    const began = moment();
    try {
        return await during({ ...outer, isWithin: false }, call);
    }
    catch (error) {
        // Else an action within it says so, of itself.
        if (error instanceof NoEffect && !isAnothers(error, began))
            outer.isWithin = false;
        throw error;
    }
}
async function during(underWay, call) {
    try {
        return await made.run(underWay, call);
    }
    finally {
        underWay.isOver = true;
    }
}
/**
 * This very call where it is under way: a tool that was wrapped twice is asked for once, for two
 * actions of one call would be undone twice.
 */
function outerOf(run, name, args) {
    const outer = made.getStore();
    if (outer === undefined || outer.isOver || outer.isWithin)
        return null;
    if (outer.act.run !== run || outer.act.tool !== name)
        return null;
    return outer.args !== null && outer.args === asText(args) ? outer : null;
}
/** In JSON; null for what is none, which the desk is not asked about either. */
function asText(args) {
    try {
        return canonical(plain(args));
    }
    catch {
        return null;
    }
}
/** Say that the call was made, and what it left. It was, also where that cannot be told. */
async function told(act, answer, { after, undo, undoOfResult }) {
    const { args } = act;
    let seen, found;
    try {
        seen = after ? ((await after(answer, args)) ?? null) : undefined;
        found = undoOfResult?.(answer, args);
        // What was planned undoes another call than the one that an approver has made of it.
        if (act.isChanged)
            found ??= typeof undo === "function" ? undo(args) : undo;
    }
    catch (error) {
        await act.succeeded(answer);
        if (!(error instanceof NoEffect))
            throw error; // it says that of itself
        throw new AmendsError(`${act.tool} was called, and then: ${error.message}`, { cause: error });
    }
    await act.succeeded(answer, { after: seen, undo: found });
}
const OTHER_TARGET = "an approver changed the arguments, and with these the call would change something else than" +
    " was asked for: it is not made";
function isSameTarget(act, target) {
    try {
        return canonical(asTargets(targetOf(target, act.args))) === canonical(act.targets);
    }
    catch {
        return false;
    }
}
function targetOf(target, args) {
    return typeof target === "function" ? target(args) : filled(target, args);
}
/** A target whose id is made of the arguments. */
function filled(target, args) {
    if (target === undefined)
        return null;
    const [type, template] = target;
    const id = template.replace(/\{([^{}]+)\}/g, (_, name) => {
        const value = args[name];
        if (value === undefined || value === null) {
            throw new AmendsError(`the target ${type} ${template} needs the argument “${name}”`);
        }
        const told = String(plain(value, name));
        if (typeof value === "string" || !told.includes("[object "))
            return told;
        throw new AmendsError(`the target ${type} ${template} needs a text as “${name}”, no object`);
    });
    return [type, id];
}
/**
 * A tool whose every call is an action of the current run. A call that was made before gives its
 * first result and runs nothing. Of `tries`, only those that end in a retryable `NoEffect` are
 * followed by another.
 */
export function tool(name, { tries = 1, ...declared }, call) {
    return async (args) => {
        const run = currentRun();
        const outer = outerOf(run, name, args);
        if (outer) {
            const options = { signal: signalWithin(declared.signal) };
            return madeWithin(outer, () => call(args, options));
        }
        for (let left = tries - 1, how = {};; left -= 1, how = { retry: "tool" }) {
            try {
                const act = await beginDeclared(run, name, declared, args, how);
                return (await finishDeclared(act, declared, call)).answer;
            }
            catch (error) {
                if (!(error instanceof NoEffect) || !error.retryable || left <= 0)
                    throw error;
                if (hasPassed(error))
                    throw error;
            }
        }
    };
}
/** The twin of an action: `connection.operation` and JSON arguments known before the call. */
export function undo(operation, args = {}) {
    const dot = operation.lastIndexOf(".");
    if (dot <= 0 || dot === operation.length - 1) {
        throw new AmendsError("name the twin as connection.operation");
    }
    const [connection, name] = [operation.slice(0, dot), operation.slice(dot + 1)];
    return { connection, operation: name, args: plainObject(args, "an argument of the undo") };
}
/** Say that nothing undoes this action, and why; people read it before they allow it. */
export function noUndo(reason) {
    return { none: reason };
}
// The tools of a framework.
const NOT_MADE = [
    ApprovalTimeout, ArgumentsChanged, Compensated, Denied, DeskUnreachable, InDoubt, InProgress,
    KeyRefused, KeyReused, Refused, SpoolFull, TooLarge, Unfit,
]; // prettier-ignore
/**
 * Whether the error means that this call was not made, and that the model may go on without it.
 * Stopped does not: the run is over, and no message to a model is of use.
 */
export function isNotMade(error) {
    return !(error instanceof Stopped) && NOT_MADE.some((kind) => error instanceof kind);
}
/** Whether the desk has stopped the run. */
export function isOver(error) {
    return stoppedBy(error) !== null;
}
/** For the model: that the call was not made, and why. */
export function notMade(error) {
    return `This call was NOT made: ${error.message}`;
}
/**
 * The tools of one framework, behind one desk.
 *
 * `declared` says of tools, by name, what the desk should know of them; a tool that is not declared
 * is asked for all the same, without a target. `repeatable` names tools that may be called twice
 * with the same arguments in one run and do it twice: of all others that have an effect the second
 * such call is answered with the first one's result, since a model that says it again is far more
 * often repeating itself.
 */
export class GatedTools {
    #desk;
    #declared;
    #repeatable;
    #waitSeconds;
    constructor(desk, declared = {}, { repeatable = [], waitSeconds } = {}) {
        this.#desk = desk;
        this.#declared = declared;
        this.#repeatable = new Set(repeatable);
        this.#waitSeconds = waitSeconds;
    }
    /**
     * One call of a tool in the current run. Throws what `isNotMade` knows, Stopped, NoRun, and
     * whatever the tool throws. `callId` is the framework's own name of the call.
     */
    async call(name, args, callId, call, how = {}) {
        return this.finish(await this.begin(name, args, callId, how), call);
    }
    /** The first half of it: ask whether the call may be made. */
    async begin(name, args, callId, how = {}) {
        const run = currentRun();
        const declared = this.#of(name);
        await this.#desk.meet(how.signal);
        const effectClass = declared.effectClass ?? cataloguedClass(this.#desk.policy, name) ?? "external_reversible";
        const isAnew = WITHOUT_EFFECT.has(effectClass) || this.#repeatable.has(name);
        const op = declared.op ?? `${name} ${isAnew ? callId : await digestOf(run, args)}`;
        const waitSeconds = this.#waitSeconds;
        const plan = { effectClass, op, waitSeconds, ...how };
        try {
            return await beginDeclared(run, name, declared, args, plan);
        }
        catch (error) {
            run.stopped ??= stoppedBy(error);
            throw error;
        }
    }
    /** The second half: make the call, and say how it went. */
    async finish(act, call) {
        try {
            return await finishDeclared(act, this.#of(act.tool), call);
        }
        catch (error) {
            // Of a call that this tool made, of what it asked of the desk, or of what was read after it.
            if (!isNotMade(error) || !hasPassed(error))
                throw error;
            const words = `${act.tool} was called, and then: ${error.message}`;
            throw new AmendsError(words, { cause: error });
        }
    }
    #of(name) {
        return Object.hasOwn(this.#declared, name) ? this.#declared[name] : {};
    }
}
const OP_HEX_DIGITS = 32;
const NEVER_REACHED = "The desk was never reached, and without its key no call is known again.";
/**
 * The same for the same arguments, whatever the policy masks meanwhile; under the workspace's key,
 * so that no value is to be found by trying all. Where that was never had nothing is called: such a
 * call would be another one from then on, and be made again.
 */
async function digestOf(run, args) {
    const away = await run.desk.needMaskingKey();
    const { maskingKey: key, agent } = run.desk;
    if (key === null && agent === null) {
        throw new DeskUnreachable(away ? `${away.message} ${NEVER_REACHED}` : NEVER_REACHED);
    }
    const told = masked(plainObject(args, "args"), [], key);
    return key?.mark("arguments", told) ?? sha256(canonical(told)).slice(0, OP_HEX_DIGITS);
}
