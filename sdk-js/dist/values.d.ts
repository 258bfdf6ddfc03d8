/** What an agent holds in its hands, as JSON that every part stores and hashes alike. */
import { type Json, type JsonObject } from "./protocol/canonical.ts";
import { type MaskingKey } from "./protocol/masking.ts";
/**
 * The value as plain JSON. What JSON does not know (a date, NaN, bytes) becomes its text; what is
 * `undefined` is left out.
 *
 * Throws Unfit for an integer that may have lost digits already, for what goes too deep and for
 * what tells nothing of itself (a Promise, a Blob, a class whose fields are all private); TooLarge
 * for a BigInt of more than 1,000 digits. `name` is what it is called in their words.
 */
export declare function plain(value: unknown, name?: string, depth?: number): Json;
/** An object as plain JSON. */
export declare function plainObject(value: object, name: string): JsonObject;
/** Throws Unfit where people would approve something else than these arguments. */
export declare function mustBeShown(value: unknown, name: string, depth?: number): void;
/** Whether the value is plain JSON as it stands, so that nothing is lost on its way. */
export declare function isJson(value: unknown): value is Json;
/**
 * `changed` with our own values wherever it has what the desk knows of them, a placeholder.
 *
 * `own` are the arguments as they were given, `told` is what was told of them. Throws
 * ArgumentsChanged for a placeholder that is not known to stand for the value at its place.
 */
export declare function withOwnSecrets(changed: Json, own: Json | undefined, told: Json | undefined, key: MaskingKey | null): Json;
/** A snapshot in which -0 is a text: a float column has its sign, a JSON number none. */
export declare function signedZeros(snapshot: Json): Json;
export type Id = string | number | bigint;
/** A pair of type and id, such as `["reservation", "XEHM4B"]`, or an object of both. */
export type Target = readonly [type: string, id: Id] | {
    readonly type: string;
    readonly id: Id;
};
export type Targets = Target | readonly Target[];
export type NamedTarget = {
    type: string;
    id: string;
};
/** Targets by type and id; throws AmendsError for what is none. */
export declare function asTargets(target: Targets | null | undefined): NamedTarget[];
/** Snapshots, one per target. Throws AmendsError if there are not as many. */
export declare function perTarget(snapshot: unknown, count: number, name: string): (Json | undefined)[];
