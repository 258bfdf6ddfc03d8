/**
 * Masking: secrets never leave the process that holds them, and never enter the ledger.
 *
 * One rule, applied by the client before sending and once more when events come in. Masking what is
 * masked changes nothing, so that digests agree on both sides. The vectors that every client runs
 * are tests/data/masking.json.
 */
import { type Json } from "./canonical.ts";
export declare const DEPTH_MAX = 32;
/**
 * Makes placeholders that tell secrets apart without telling them (docs/decisions/masking.md).
 *
 * A placeholder carries 128 bits of HMAC-SHA-256 over the secret's normal form: the same card is
 * the same mark, however it is grouped; a number and a text are two. `showsLast4` adds the last
 * four characters of cards and IBANs, for people to read; they bind nothing.
 */
export declare class MaskingKey {
    #private;
    readonly showsLast4: boolean;
    constructor(secret: Uint8Array, { showsLast4 }?: {
        showsLast4?: boolean | undefined;
    });
    /** What stands for `value` of the kind that `tag` names. */
    placeholder(tag: string, value: Json): string;
    /** The mark alone, by which equal values are known and no value is found. */
    mark(tag: string, value: Json): string;
}
/** The kind of a placeholder that is the whole text; null of any other text. */
export declare function kindOf(text: string): string | null;
/** Whether something was masked without a mark: then nothing says which value it was. */
export declare function holdsBare(value: Json): boolean;
/** Whether a placeholder stands anywhere in a value: then it cannot be restored from here. */
export declare function holdsMask(value: Json | undefined): boolean;
/** JSON text as digests cover it: what is shown to people may differ, the marks may not. */
export declare function withoutLast4(text: string): string;
/**
 * A copy of `data` with names of the table, cards and policy paths replaced.
 *
 * A path is names joined by dots, `*` for any one name; lists are looked through. It starts at
 * `data`, and at each of `data.effects`, so that `before.ssn` finds every snapshot.
 */
export declare function masked<T extends Json>(data: T, paths?: Iterable<string>, key?: MaskingKey | null): T;
