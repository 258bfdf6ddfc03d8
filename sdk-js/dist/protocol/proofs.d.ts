/**
 * Proofs: what the ledger hands out can be checked by anybody, offline, with only its public key.
 *
 * Read are C2SP `tlog-proof@v1` files around C2SP checkpoints (signed notes, Ed25519), and the
 * downloads of Amends that carry one. docs/proofs.md says which bytes are hashed. Nothing is used
 * that only Node has: the verifier that people save (sdk-js/verifier) is made of this module.
 */
import { type Json, type JsonObject } from "./canonical.ts";
export declare const FILE_BYTES_MAX: number;
declare const SALTED: readonly ["facts", "words"];
export type Bytes = Uint8Array<ArrayBuffer>;
/** What is wrong with a file, in one word, for whoever says it in the reader's own language. */
export type Reason = "key" | "form" | "unsealed" | "twice" | "signer" | "signature" | "place" | "entry" | "person" | "event" | "facts" | "words";
/**
 * We stopped because the file does not prove what it says; do not rely on it.
 *
 * No AmendsError, whose module the verifier does without.
 */
export declare class NotProven extends Error {
    readonly reason: Reason;
    constructor(reason: Reason, message: string, options?: ErrorOptions);
}
/**
 * What a file was found to prove: `signer` is the key of the log that signed its head, `beside`
 * are the facts and words that its event vouches for.
 */
export type Verified = {
    leaf: JsonObject;
    index: bigint;
    size: bigint;
    origin: string;
    signer: LogKey;
    event: Json | null;
    beside: {
        [name in (typeof SALTED)[number]]?: Json;
    };
};
/** A log's public key, written `<name>+<key id in hex>+<base64 of 0x01 and 32 bytes>`. */
export declare class LogKey {
    readonly name: string;
    readonly keyId: Bytes;
    readonly bytes: Bytes;
    private constructor();
    static parse(text: string): Promise<LogKey>;
    /** Throws NotProven unless this key has signed the text. */
    check(text: Bytes, signature: Bytes): Promise<void>;
}
/** The lines of a key file that are to be keys: an empty one is none, nor a comment (`#`). */
export declare function linesOfKeys(text: string): string[];
/**
 * Check a file and say what it proves, or throw NotProven.
 *
 * It is a tlog-proof, or a download: JSON with `event`, `salt` (hex) and `proof`.
 */
export declare function verify(text: string, keys: readonly LogKey[]): Promise<Verified>;
/** A download as the value that it is; no member of it stands there twice. */
export declare function download(text: string): JsonObject;
/** Throws NotProven unless a known key has signed this note, which is no checkpoint. */
export declare function checkNote(note: string, keys: readonly LogKey[]): Promise<void>;
export declare function hex(bytes: Bytes): string;
export declare function utf8(text: string): Bytes;
export declare function equal(one: Bytes, other: Bytes): boolean;
/** SHA-256 over all parts, one behind the other. */
export declare function hash(...parts: Bytes[]): Promise<Bytes>;
export {};
