/** What an agent says of a call: before it is made, and of what came of it. */

import { AsyncLocalStorage } from "node:async_hooks";

import { AmendsError, TimedOut } from "./errors.ts";
import { canonical, isObject, type JsonObject } from "./protocol/canonical.ts";
import { sha256 } from "./protocol/digests.ts";
import { type EffectClass, type Risk, WITHOUT_EFFECT } from "./protocol/vocabulary.ts";
import { plainObject, type Targets } from "./values.ts";

// In the desk's own words, for it is said while the desk is away, too.
export const MASKED_KEY: JsonObject = {
  type: "/problems/masked",
  status: 422,
  title: "“key” reads like a secret or a card number",
  detail: "“key” reads like a secret or a card number. Send another, such as a UUID.",
};

export type Args = { readonly [name: string]: unknown };
export type Outcome = "no_effect" | "unknown";
export type Retry = "model" | "tool" | "workflow" | "human";
export type Reversibility = "exact" | "compensable" | "irreversible" | "unknown";

/** What is said of a call before it is made. */
export type Plan<A extends object = Args> = {
  /** What the call changes: `["reservation", "XEHM4B"]`, or several of these. */
  target?: Targets | null | undefined;
  args?: A | undefined;
  /** The target as it was (null: it was not there; a list for several targets). */
  before?: unknown;
  effectClass?: EffectClass | undefined;
  /** The logical operation, where one tool does several on one target in one run. */
  op?: string | undefined;
  key?: string | undefined;
  /** `undo(...)` or `noUndo(...)`. */
  undo?: Undo | undefined;
  saga?: "pivot" | "retriable" | undefined;
  risk?: Risk | undefined;
  /** `goal`, `reason`, `confidence` and `model`: shown to approvers, apart from the facts. */
  intent?: Args | undefined;
  retry?: Retry | undefined;
  /** Bounds the wait for an approval. */
  waitSeconds?: number | undefined;
  /** Bounds the call: after it the outcome is unknown, and the call may still happen. */
  timeLimitSeconds?: number | undefined;
  /**
   * Whether an approver may correct arguments: then the call is made with those that it is handed,
   * which are `Action.args`.
   */
  acceptsChangedArguments?: boolean | undefined;
  /** The JSON Schema of the tool's arguments: the desk hears it once, and of each change. */
  schema?: object | undefined;
  /** Ends the wait for the desk, and is handed to the call. */
  signal?: AbortSignal | undefined;
};

const PLAN: Record<keyof Plan, true> = {
  target: true, args: true, before: true, effectClass: true, op: true, key: true, undo: true,
  saga: true, risk: true, intent: true, retry: true, waitSeconds: true, timeLimitSeconds: true,
  acceptsChangedArguments: true, schema: true, signal: true,
};

/** Throws AmendsError where a plan says what nobody would read: a class that is misspelled, say. */
export function mustBePlan(plan: object, tool: string): void {
  mustBeKnown(plan, `what is said of a call of ${tool}`, Object.keys(PLAN));
  const { undo } = plan as { undo?: unknown };
  if (undo !== undefined && undo !== null && !isObject(undo)) {
    throw new AmendsError('undo is undo("connection.operation", {…}) or noUndo("why not")');
  }
}

/** Whoever misspells a member hears of it: the desk would keep it, and nobody read it. */
export function mustBeKnown(said: object, what: string, known: readonly string[]): void {
  const strange = Object.keys(said).find((name) => !known.includes(name));
  if (strange === undefined) return;
  throw new AmendsError(`${what} has no “${strange}”: it is ${known.join(", ")}`);
}

export type Undo = { connection: string; operation: string; args: JsonObject } | { none: string };

/** What is said of each effect beside its snapshots. */
export type EffectWords = {
  summary?: string;
  reversibility?: Reversibility;
  undo_until?: string;
  affects?: unknown;
};
export type Effect = EffectWords & { target: Targets; before?: unknown; after?: unknown };
export type Told = EffectWords & {
  before?: unknown;
  after?: unknown;
  /** For effects that differ, instead of the others. */
  effects?: readonly Effect[] | undefined;
  /** What only the result tells how to undo; what was planned comes first. */
  undo?: Undo | undefined;
};

const EFFECT_WORDS = ["before", "after", "summary", "reversibility", "undo_until", "affects"];

/** Throws AmendsError where what is said of a success is nothing that anybody would read. */
export function mustBeTold(told: Told): void {
  mustBeKnown(told, "what is said of a success", [...EFFECT_WORDS, "effects", "undo"]);
  for (const effect of told.effects ?? []) {
    mustBeKnown(effect, "an effect", [...EFFECT_WORDS, "target"]);
  }
}

/**
 * Whether a call has effects on its targets: of a draft, where something is `said` of what it left
 * or of how that is put away.
 */
export function leavesSomething(effectClass: EffectClass, said: readonly unknown[]): boolean {
  if (effectClass !== "draft") return !WITHOUT_EFFECT.has(effectClass);
  return said.some((one) => one !== undefined);
}

/** A read-back: a triple of name, expected and actual, or an object of these. */
export type Check =
  | readonly [name: string, expected: unknown, actual: unknown]
  | { name: string; expected?: unknown; actual?: unknown; ok?: boolean };

/** What a call is handed beside the arguments. */
export type CallOptions = { signal: AbortSignal };

const made = new AsyncLocalStorage<AbortSignal>();

/** The signal of the call that is made, for one within it that is the same; and `own`, if any. */
export function signalWithin(own: AbortSignal | undefined): AbortSignal {
  const signals = [own, made.getStore()].filter((one) => one !== undefined);
  return AbortSignal.any(signals);
}

/** Call it; where it has a limit, it is left to itself when the time is over. */
export async function callWithin<A extends object, T>(
  { timeLimitSeconds: limit, signal: given }: Plan<A>,
  args: A,
  call: (args: A, options: CallOptions) => T | PromiseLike<T>,
): Promise<T> {
  const timer = new AbortController();
  const signal = given ? AbortSignal.any([given, timer.signal]) : timer.signal;
  const making = () => made.run(signal, () => call(args, { signal }));
  if (limit === undefined) return making();
  const late = new TimedOut(`no end within ${limit} s; it may still happen`);
  return new Promise<T>((resolve, reject) => {
    const bell = setTimeout(() => (reject(late), timer.abort(late)), limit * 1000);
    const done = () => clearTimeout(bell);
    (async () => making())().finally(done).then(resolve, reject);
  });
}

const SCHEMA_CHARACTERS_MAX = 8 * 1024;

/** The digest of a schema and itself; none that the desk would not show to anybody. */
export function shapeOf(schema: object | undefined): { digest: string; schema: JsonObject } | null {
  if (schema === undefined) return null;
  try {
    const found = plainObject(schema, "a schema");
    const written = canonical(found);
    const isTold = Object.keys(found).length > 0 && written.length <= SCHEMA_CHARACTERS_MAX;
    return isTold ? { digest: sha256(written), schema: found } : null;
  } catch {
    return null;
  }
}

/** A read-back as it is told, with whether it holds. */
export function check(one: Check): JsonObject {
  const { name, expected, actual, ok } =
    "name" in one ? { ok: undefined, ...one } : { name: one[0], expected: one[1], actual: one[2] };
  const told = plainObject({ name, expected: expected ?? null, actual: actual ?? null }, "a check");
  return { ...told, ok: ok ?? canonical(told["expected"]!) === canonical(told["actual"]!) };
}

const BIT_BY_BIT = /(Generator(Function)?|Iterator Helper)\]$/;

/**
 * What is wrong with a generator function, and with the generator (or what `map` makes of one) that
 * a call answers: what it does would be done after it was told. null for all else.
 */
export function bitByBit(found: unknown): TypeError | null {
  if (!BIT_BY_BIT.test(Object.prototype.toString.call(found))) return null;
  return new TypeError(
    "the call answers bit by bit, so that to call it does nothing yet: make it of a function" +
      " that goes through it and returns what came",
  );
}
