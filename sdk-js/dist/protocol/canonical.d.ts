/**
 * Canonical JSON (RFC 8785), as a browser runs it, too: the verifier is made of this module.
 *
 * Two programs that mean the same value write the same bytes, so the same digest. An integer that
 * no double holds is a BigInt here, so that none is silently another number.
 */
export type Json = null | boolean | number | bigint | string | Json[] | {
    [name: string]: Json;
};
export type JsonObject = {
    [name: string]: Json;
};
/** The RFC 8785 text of a JSON value. RangeError for what is not JSON (NaN, a lone surrogate). */
export declare function canonical(value: Json): string;
/** JSON text, with the members in their own order. */
export declare function compact(value: Json): string;
/** JSON text as a value; an integer beyond 2^53 is a BigInt, digit by digit. SyntaxError else. */
export declare function parseJson(text: string): Json;
export declare function isObject(value: unknown): value is JsonObject;
