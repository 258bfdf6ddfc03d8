/** What an agent holds in its hands, as JSON that every part stores and hashes alike. */

import { AmendsError, ArgumentsChanged, TooLarge, Unfit } from "./errors.ts";
import { isObject, type Json, type JsonObject } from "./protocol/canonical.ts";
import {
  DEPTH_MAX,
  holdsBare,
  holdsMask,
  kindOf,
  type MaskingKey,
  withoutLast4,
} from "./protocol/masking.ts";

// As the ledger has it: more than any money, id or key has.
const INTEGER_DIGITS_MAX = 1_000;
const INTEGER_END = 10n ** BigInt(INTEGER_DIGITS_MAX);
const ROUNDED =
  " is a number of JavaScript above 2^53, which may have been another one before it was read:" +
  " give it as a BigInt or a text";
const NOTHING_TOLD =
  " is an object of a class that shows nothing of what it holds, so nobody could tell two of them" +
  " apart: give what it holds as plain values";
const IN_PART =
  " is an object of a class with private fields, which nobody sees who is asked: give what it" +
  " holds as plain values, or the class a toJSON";
const NO_VALUE = " is a function or a symbol, of which nobody could tell two apart: leave it out";
const NO_TEXT =
  " holds NUL or half a character, which no database keeps, so that another text would be" +
  " approved: encode it, as base64 perhaps";
const NO_NAME = " has a name that is an object, of which nobody could tell two apart";
const TOO_DEEP = ` is nested deeper than ${DEPTH_MAX} levels`;
const WRITTEN_ALIKE = " has two names that are written alike, and only one would be told";

/**
 * The value as plain JSON. What JSON does not know (a date, NaN, bytes) becomes its text; what is
 * `undefined` is left out.
 *
 * Throws Unfit for an integer that may have lost digits already, for what goes too deep and for
 * what tells nothing of itself (a Promise, a Blob, a class whose fields are all private); TooLarge
 * for a BigInt of more than 1,000 digits. `name` is what it is called in their words.
 */
export function plain(value: unknown, name = "it", depth = 0): Json {
  switch (typeof value) {
    case "string":
      return text(value);
    case "boolean":
      return value;
    case "number":
      if (Number.isInteger(value) && !Number.isSafeInteger(value)) throw new Unfit(name + ROUNDED);
      return Number.isFinite(value) ? value : String(value);
    case "bigint":
      return bigint(value, name);
    case "object":
      return value === null ? null : object(value, name, depth);
    default: // a function, a symbol
      return value === undefined ? null : text(String(value));
  }
}

/** An object as plain JSON. */
export function plainObject(value: object, name: string): JsonObject {
  return plain(value, name) as JsonObject;
}

/** Throws Unfit where people would approve something else than these arguments. */
export function mustBeShown(value: unknown, name: string, depth = 0): void {
  if (typeof value === "function" || typeof value === "symbol") throw new Unfit(name + NO_VALUE);
  if (typeof value === "string" && text(value) !== value) throw new Unfit(name + NO_TEXT);
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return;
  if (depth > DEPTH_MAX) throw new Unfit(name + TOO_DEEP); // as what holds itself, twice perhaps
  if ("toJSON" in value && typeof value.toJSON === "function") {
    if (!(value instanceof Date)) mustBeShown(value.toJSON(), name, depth + 1);
    return;
  }
  const items: unknown[] | null = Array.isArray(value) || value instanceof Set ? [...value] : null;
  const pairs = value instanceof Map ? [...value] : isForm(value) ? fields(value) : null;
  if (!items && !pairs && hasPrivateFields(value)) throw new Unfit(name + IN_PART);
  for (const [key, one] of items?.entries() ?? pairs ?? Object.entries(value)) {
    if (typeof key === "object" && key !== null) throw new Unfit(name + NO_NAME);
    mustBeShown(key, name);
    mustBeShown(one, `${name}.${String(key)}`, depth + 1);
  }
}

/** As the source of its class has them: of the fields themselves nothing is to be seen. */
function hasPrivateFields(value: object): boolean {
  const kind: { constructor?: unknown } | null = Object.getPrototypeOf(value);
  if (kind === null) return false;
  const source = typeof kind.constructor === "function" ? String(kind.constructor) : "";
  return /\.#[\w$]+\b(?!\s*\()/.test(source) || hasPrivateFields(kind);
}

/** Whether the value is plain JSON as it stands, so that nothing is lost on its way. */
export function isJson(value: unknown): value is Json {
  if (typeof value === "number") return Number.isFinite(value);
  if (typeof value !== "object" || value === null) {
    return value === null || typeof value === "string" || typeof value === "boolean";
  }
  if (Array.isArray(value)) return value.every(isJson);
  const kind: unknown = Object.getPrototypeOf(value);
  const isPlain = kind === Object.prototype || kind === null;
  const members = Object.values(value).filter((one) => one !== undefined);
  return isPlain && !("toJSON" in value) && members.every(isJson);
}

// Arguments that an approver has changed, as the desk has them: what is secret in them is masked.

const NOT_OURS =
  "an approver changed the arguments, and one of them holds a masked value that this call did not" +
  " have there: it is not made";

/**
 * `changed` with our own values wherever it has what the desk knows of them, a placeholder.
 *
 * `own` are the arguments as they were given, `told` is what was told of them. Throws
 * ArgumentsChanged for a placeholder that is not known to stand for the value at its place.
 */
export function withOwnSecrets(
  changed: Json,
  own: Json | undefined,
  told: Json | undefined,
  key: MaskingKey | null,
): Json {
  if (Array.isArray(changed)) {
    const [has, said] = [own, told].map((one) => (Array.isArray(one) ? one : []));
    return changed.map((one, place) => withOwnSecrets(one, has![place], said![place], key));
  }
  if (isObject(changed)) {
    const [has, said] = [own, told].map((one) => (isObject(one) ? one : {}));
    const members = Object.entries(changed);
    const at = (of: JsonObject, name: string) => (Object.hasOwn(of, name) ? of[name] : undefined);
    return Object.fromEntries(
      members.map(([name, one]) => [
        name,
        withOwnSecrets(one, at(has!, name), at(said!, name), key),
      ]),
    );
  }
  if (typeof changed !== "string" || !holdsMask(changed)) return changed;
  if (own === undefined || holdsBare(changed)) throw new ArgumentsChanged(NOT_OURS);
  const kind = kindOf(changed);
  const ours = [told, kind && key ? key.placeholder(kind, own) : told];
  const isOurs = ours.some((one) => typeof one === "string" && isSame(one, changed));
  if (!isOurs) throw new ArgumentsChanged(NOT_OURS);
  return own;
}

function isSame(one: string, other: string): boolean {
  return withoutLast4(one) === withoutLast4(other);
}

function bigint(value: bigint, name: string): Json {
  if (value >= INTEGER_END || value <= -INTEGER_END) {
    throw new TooLarge(`${name} is an integer of more than ${INTEGER_DIGITS_MAX} digits`);
  }
  const small = Number(value);
  return Number.isSafeInteger(small) ? small : value;
}

function object(value: object, name: string, depth: number): Json {
  if (depth > DEPTH_MAX + 1) throw new Unfit(name + TOO_DEEP);
  if (value instanceof Date) return Number.isNaN(+value) ? String(value) : value.toISOString();
  if (value instanceof Error) return text(String(value));
  if (ArrayBuffer.isView(value)) {
    return Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64");
  }
  if (value instanceof ArrayBuffer) return Buffer.from(value).toString("base64");
  if (Array.isArray(value) || value instanceof Set) {
    return Array.from(value, (one, place) => plain(one, `${name}.${place}`, depth + 1));
  }
  if ("toJSON" in value && typeof value.toJSON === "function") {
    return plain(value.toJSON(), name, depth + 1);
  }
  if (value instanceof Number || value instanceof String || value instanceof Boolean) {
    return plain(value.valueOf(), name, depth);
  }
  const members: [unknown, unknown][] =
    value instanceof Map ? [...value] : isForm(value) ? fields(value) : Object.entries(value);
  if (members.length === 0 && isOpaque(value)) throw new Unfit(name + NOTHING_TOLD);
  const told = members.filter(([, one]) => one !== undefined);
  const found = Object.fromEntries(
    told.map(([key, one]) => [text(String(key)), plain(one, `${name}.${String(key)}`, depth + 1)]),
  );
  if (Object.keys(found).length < told.length) throw new Unfit(name + WRITTEN_ALIKE);
  return found;
}

type Form = URLSearchParams | Headers | FormData;

/** What a request is made of, which shows nothing of itself to who lists its members. */
function isForm(value: object): value is Form {
  return [URLSearchParams, Headers, FormData].some((kind) => value instanceof kind);
}

/** Its fields by name, so that secrets among them are masked; of one that repeats, all. */
function fields(form: Form): [string, unknown][] {
  const found = new Map<string, unknown[]>();
  for (const [name, one] of form) found.set(name, [...(found.get(name) ?? []), one]);
  return [...found].map(([name, all]) => [name, all.length === 1 ? all[0] : all]);
}

/** Whether it is of a class that keeps what it holds to itself: two of them would look alike. */
function isOpaque(value: object): boolean {
  if (value instanceof Map || isForm(value)) return false;
  const kind: object | null = Object.getPrototypeOf(value);
  return kind !== null && Object.getPrototypeOf(kind) !== null;
}

/** PostgreSQL stores no NUL, and UTF-8 has no half characters. */
function text(value: string): string {
  return value.toWellFormed().replaceAll("\0", "\ufffd");
}

/** A snapshot in which -0 is a text: a float column has its sign, a JSON number none. */
export function signedZeros(snapshot: Json): Json {
  if (typeof snapshot !== "object" || snapshot === null || Array.isArray(snapshot)) return snapshot;
  return Object.fromEntries(Object.entries(snapshot).map(([name, one]) => [name, signed(one)]));
}

function signed(value: Json): Json {
  if (Array.isArray(value)) return value.map(signed);
  return Object.is(value, -0) ? "-0.0" : value;
}

// Targets: what a call changes, and the snapshots of it.

export type Id = string | number | bigint;
/** A pair of type and id, such as `["reservation", "XEHM4B"]`, or an object of both. */
export type Target = readonly [type: string, id: Id] | { readonly type: string; readonly id: Id };
export type Targets = Target | readonly Target[];
export type NamedTarget = { type: string; id: string };

/** Targets by type and id; throws AmendsError for what is none. */
export function asTargets(target: Targets | null | undefined): NamedTarget[] {
  if (target === null || target === undefined) return [];
  if (!Array.isArray(target)) return [asTarget(target as Target)];
  return isPair(target) ? [asTarget(target)] : target.map((one) => asTarget(one));
}

function asTarget(target: Target): NamedTarget {
  const [type, id] = isPair(target)
    ? target
    : typeof target === "object" && target !== null && "type" in target
      ? [target.type, target.id]
      : [];
  if (typeof type !== "string" || !["string", "number", "bigint"].includes(typeof id)) {
    throw new AmendsError(
      `${JSON.stringify(plain(target))} is no target: give a pair of type and id, such as` +
        ' ["reservation", "XEHM4B"], an object of both, or a list of these',
    );
  }
  return { type, id: String(plain(id, "the id of a target")) };
}

function isPair(target: unknown): target is readonly [string, Id] {
  return Array.isArray(target) && target.length === 2 && typeof target[0] === "string";
}

/** Snapshots, one per target. Throws AmendsError if there are not as many. */
export function perTarget(snapshot: unknown, count: number, name: string): (Json | undefined)[] {
  if (snapshot === undefined || count === 0) return Array(count).fill(undefined);
  const snapshots = count === 1 && !Array.isArray(snapshot) ? [snapshot] : snapshot;
  if (!Array.isArray(snapshots) || snapshots.length !== count) {
    throw new AmendsError(`${count} targets need a list of ${count} snapshots`);
  }
  return snapshots.map((one) => plain(one, name));
}
