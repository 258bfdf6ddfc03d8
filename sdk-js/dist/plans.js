/** What an agent says of a call: before it is made, and of what came of it. */
import { AsyncLocalStorage } from "node:async_hooks";
import { AmendsError, TimedOut } from "./errors.js";
import { canonical, isObject } from "./protocol/canonical.js";
import { sha256 } from "./protocol/digests.js";
import { WITHOUT_EFFECT } from "./protocol/vocabulary.js";
import { plainObject } from "./values.js";
// In the desk's own words, for it is said while the desk is away, too.
export const MASKED_KEY = {
    type: "/problems/masked",
    status: 422,
    title: "“key” reads like a secret or a card number",
    detail: "“key” reads like a secret or a card number. Send another, such as a UUID.",
};
const PLAN = {
    target: true, args: true, before: true, effectClass: true, op: true, key: true, undo: true,
    saga: true, risk: true, intent: true, retry: true, waitSeconds: true, timeLimitSeconds: true,
    acceptsChangedArguments: true, schema: true, signal: true,
};
/** Throws AmendsError where a plan says what nobody would read: a class that is misspelled, say. */
export function mustBePlan(plan, tool) {
    mustBeKnown(plan, `what is said of a call of ${tool}`, Object.keys(PLAN));
    const { undo } = plan;
    if (undo !== undefined && undo !== null && !isObject(undo)) {
        throw new AmendsError('undo is undo("connection.operation", {…}) or noUndo("why not")');
    }
}
/** Whoever misspells a member hears of it: the desk would keep it, and nobody read it. */
export function mustBeKnown(said, what, known) {
    const strange = Object.keys(said).find((name) => !known.includes(name));
    if (strange === undefined)
        return;
    throw new AmendsError(`${what} has no “${strange}”: it is ${known.join(", ")}`);
}
const EFFECT_WORDS = ["before", "after", "summary", "reversibility", "undo_until", "affects"];
/** Throws AmendsError where what is said of a success is nothing that anybody would read. */
export function mustBeTold(told) {
    mustBeKnown(told, "what is said of a success", [...EFFECT_WORDS, "effects", "undo"]);
    for (const effect of told.effects ?? []) {
        mustBeKnown(effect, "an effect", [...EFFECT_WORDS, "target"]);
    }
}
/**
 * Whether a call has effects on its targets: of a draft, where something is `said` of what it left
 * or of how that is put away.
 */
export function leavesSomething(effectClass, said) {
    if (effectClass !== "draft")
        return !WITHOUT_EFFECT.has(effectClass);
    return said.some((one) => one !== undefined);
}
const made = new AsyncLocalStorage();
/** The signal of the call that is made, for one within it that is the same; and `own`, if any. */
export function signalWithin(own) {
    const signals = [own, made.getStore()].filter((one) => one !== undefined);
    return AbortSignal.any(signals);
}
/** Call it; where it has a limit, it is left to itself when the time is over. */
export async function callWithin({ timeLimitSeconds: limit, signal: given }, args, call) {
    const timer = new AbortController();
    const signal = given ? AbortSignal.any([given, timer.signal]) : timer.signal;
    const making = () => made.run(signal, () => call(args, { signal }));
    if (limit === undefined)
        return making();
    const late = new TimedOut(`no end within ${limit} s; it may still happen`);
    return new Promise((resolve, reject) => {
        const bell = setTimeout(() => (reject(late), timer.abort(late)), limit * 1000);
        const done = () => clearTimeout(bell);
        (async () => making())().finally(done).then(resolve, reject);
    });
}
const SCHEMA_CHARACTERS_MAX = 8 * 1024;
/** The digest of a schema and itself; none that the desk would not show to anybody. */
export function shapeOf(schema) {
    if (schema === undefined)
        return null;
    try {
        const found = plainObject(schema, "a schema");
        const written = canonical(found);
        const isTold = Object.keys(found).length > 0 && written.length <= SCHEMA_CHARACTERS_MAX;
        return isTold ? { digest: sha256(written), schema: found } : null;
    }
    catch {
        return null;
    }
}
/** A read-back as it is told, with whether it holds. */
export function check(one) {
    const { name, expected, actual, ok } = "name" in one ? { ok: undefined, ...one } : { name: one[0], expected: one[1], actual: one[2] };
    const told = plainObject({ name, expected: expected ?? null, actual: actual ?? null }, "a check");
    return { ...told, ok: ok ?? canonical(told["expected"]) === canonical(told["actual"]) };
}
const BIT_BY_BIT = /(Generator(Function)?|Iterator Helper)\]$/;
/**
 * What is wrong with a generator function, and with the generator (or what `map` makes of one) that
 * a call answers: what it does would be done after it was told. null for all else.
 */
export function bitByBit(found) {
    if (!BIT_BY_BIT.test(Object.prototype.toString.call(found)))
        return null;
    return new TypeError("the call answers bit by bit, so that to call it does nothing yet: make it of a function" +
        " that goes through it and returns what came");
}
