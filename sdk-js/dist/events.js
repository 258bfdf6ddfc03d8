/** Statements on their way to the ledger: given an id, masked, and made small enough to travel. */
import { randomBytes } from "node:crypto";
import { asError, TooLarge } from "./errors.js";
import { canonical, isObject } from "./protocol/canonical.js";
import { sha256 } from "./protocol/digests.js";
import { masked } from "./protocol/masking.js";
import { plainObject, signedZeros } from "./values.js";
// The wire's limit is 64 KiB per event; the rest is for the envelope and for `begin`'s own members.
const DATA_BYTES_MAX = 60 * 1024;
const BLOB_BYTES_MAX = 8 * 1024 * 1024;
const TEXT_CHARACTERS_MAX = 4000;
// Where a snapshot or a result may stand in `data`, and so may be named by reference.
const LARGE = ["result", "before", "after", "state"];
const SHORT_ID_SIGNS = "0123456789abcdefghjkmnpqrstvwxyz";
/** A UUID version 7 (RFC 9562): unique anywhere, and in order of time, which indexes like. */
export function newId() {
    const bytes = randomBytes(16);
    bytes.writeUIntBE(Date.now(), 0, 6);
    bytes[6] = 0x70 | (bytes[6] & 0x0f);
    bytes[8] = 0x80 | (bytes[8] & 0x3f);
    return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
/**
 * Fourteen signs, 70 random bits: unique in a workspace, and people can read it to each other.
 *
 * Crockford's base 32 (https://www.crockford.com/base32.html), which has no i, l, o or u.
 */
export function shortId() {
    return Array.from(randomBytes(14), (byte) => SHORT_ID_SIGNS[byte % 32]).join("");
}
/** Build one event. Throws TooLarge where even references do not make it small enough. */
export function statement(type, run, data, { mask, maskingKey, withSnapshots, n, action, trace, }) {
    const blobs = new Map();
    const told = masked(recorded(plainObject(data, "data"), withSnapshots), mask, maskingKey);
    const event = {
        id: newId(),
        type,
        time: new Date().toISOString(),
        run,
        ...(action === undefined ? {} : { action }),
        ...(n === undefined ? {} : { n }),
        ...(trace ? { trace } : {}),
        data: small(told, blobs),
    };
    return { event, blobs };
}
/** An error's message, short enough for an event. */
export function cut(text) {
    const isShort = text.length <= TEXT_CHARACTERS_MAX;
    return isShort ? text : `${text.slice(0, TEXT_CHARACTERS_MAX - 1)}…`;
}
/**
 * The data, with its snapshots as a database can be given them back, or without them: a large one
 * goes ahead of its event, and the desk could not tell what it is.
 */
function recorded(data, withSnapshots) {
    for (const holder of holders(data)) {
        for (const name of ["before", "after"]) {
            const told = holder[name];
            if (!withSnapshots)
                delete holder[name];
            else if (Array.isArray(told))
                holder[name] = told.map(signedZeros);
            else if (told !== undefined)
                holder[name] = signedZeros(told);
        }
    }
    return data;
}
/** Name the largest snapshots by reference until the rest fits. */
function small(data, blobs) {
    for (;;) {
        const size = Buffer.byteLength(canonical(data));
        if (size <= DATA_BYTES_MAX)
            return data;
        const [largest] = places(data)
            .map((place) => ({ ...place, body: canonical(place.value) }))
            .sort((one, other) => other.body.length - one.body.length);
        if (largest === undefined) {
            const most = `${size} bytes are more than the ${DATA_BYTES_MAX} that can be told of it`;
            throw new TooLarge(`${most}, arguments included; only snapshots and results may be larger`);
        }
        const bytes = Buffer.byteLength(largest.body);
        if (bytes > BLOB_BYTES_MAX) {
            throw new TooLarge(`${largest.name} has ${bytes} bytes, more than a blob may have`);
        }
        const name = sha256(largest.body);
        blobs.set(name, largest.body);
        largest.replace({ ref: `sha256:${name}` });
    }
}
/** Each place whose value may still be replaced by a reference. */
function places(data) {
    const found = [];
    for (const holder of holders(data)) {
        for (const name of LARGE) {
            const value = holder[name];
            if (Array.isArray(value) && name !== "result") {
                const each = (one, at) => ({
                    name,
                    value: one,
                    replace: (by) => (value[at] = by),
                });
                found.push(...value.map(each));
            }
            else if (value !== undefined) {
                found.push({ name, value, replace: (by) => (holder[name] = by) });
            }
        }
    }
    return found.filter(({ value }) => value !== null && !isRef(value));
}
function holders(data) {
    const effects = data["effects"];
    return [data, ...(Array.isArray(effects) ? effects.filter(isObject) : [])];
}
function isRef(value) {
    return isObject(value) && Object.keys(value).join() === "ref";
}
/** An error as events tell it. */
export function said(error, retryable) {
    const { name, message } = asError(error);
    return { type: name, message: cut(message), ...(retryable === undefined ? {} : { retryable }) };
}
