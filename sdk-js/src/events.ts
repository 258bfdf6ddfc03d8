/** Statements on their way to the ledger: given an id, masked, and made small enough to travel. */

import { randomBytes } from "node:crypto";

import { asError, TooLarge } from "./errors.ts";
import { canonical, isObject, type Json, type JsonObject } from "./protocol/canonical.ts";
import { sha256 } from "./protocol/digests.ts";
import { masked, type MaskingKey } from "./protocol/masking.ts";
import type { EventType } from "./protocol/vocabulary.ts";
import { plainObject, signedZeros } from "./values.ts";

// The wire's limit is 64 KiB per event; the rest is for the envelope and for `begin`'s own members.
const DATA_BYTES_MAX = 60 * 1024;
const BLOB_BYTES_MAX = 8 * 1024 * 1024;
const TEXT_CHARACTERS_MAX = 4000;
// Where a snapshot or a result may stand in `data`, and so may be named by reference.
const LARGE = ["result", "before", "after", "state"] as const;
const SHORT_ID_SIGNS = "0123456789abcdefghjkmnpqrstvwxyz";

export type Event = {
  id: string;
  type: EventType;
  time: string;
  run: string;
  action?: string;
  n?: number;
  trace?: JsonObject;
  data: JsonObject;
};

/** An event as it goes out, with the blobs that it names, by their SHA-256 in hex. */
export type Statement = { event: Event; blobs: Map<string, string> };

/** A UUID version 7 (RFC 9562): unique anywhere, and in order of time, which indexes like. */
export function newId(): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(Date.now(), 0, 6);
  bytes[6] = 0x70 | (bytes[6]! & 0x0f);
  bytes[8] = 0x80 | (bytes[8]! & 0x3f);
  return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/**
 * Fourteen signs, 70 random bits: unique in a workspace, and people can read it to each other.
 *
 * Crockford's base 32 (https://www.crockford.com/base32.html), which has no i, l, o or u.
 */
export function shortId(): string {
  return Array.from(randomBytes(14), (byte) => SHORT_ID_SIGNS[byte % 32]).join("");
}

/** What is said of an event beside its type, run and data. */
export type About = {
  n?: number | undefined;
  action?: string | undefined;
  trace?: JsonObject | null | undefined;
};

/** Build one event. Throws TooLarge where even references do not make it small enough. */
export function statement(
  type: EventType,
  run: string,
  data: object,
  {
    mask,
    maskingKey,
    withSnapshots,
    n,
    action,
    trace,
  }: About & { mask: Iterable<string>; maskingKey: MaskingKey | null; withSnapshots: boolean },
): Statement {
  const blobs = new Map<string, string>();
  const told = masked(recorded(plainObject(data, "data"), withSnapshots), mask, maskingKey);
  const event: Event = {
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
export function cut(text: string): string {
  const isShort = text.length <= TEXT_CHARACTERS_MAX;
  return isShort ? text : `${text.slice(0, TEXT_CHARACTERS_MAX - 1)}…`;
}

/**
 * The data, with its snapshots as a database can be given them back, or without them: a large one
 * goes ahead of its event, and the desk could not tell what it is.
 */
function recorded(data: JsonObject, withSnapshots: boolean): JsonObject {
  for (const holder of holders(data)) {
    for (const name of ["before", "after"]) {
      const told = holder[name];
      if (!withSnapshots) delete holder[name];
      else if (Array.isArray(told)) holder[name] = told.map(signedZeros);
      else if (told !== undefined) holder[name] = signedZeros(told);
    }
  }
  return data;
}

/** Name the largest snapshots by reference until the rest fits. */
function small(data: JsonObject, blobs: Map<string, string>): JsonObject {
  for (;;) {
    const size = Buffer.byteLength(canonical(data));
    if (size <= DATA_BYTES_MAX) return data;
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

type Place = { name: string; value: Json; replace: (by: Json) => void };

/** Each place whose value may still be replaced by a reference. */
function places(data: JsonObject): Place[] {
  const found: Place[] = [];
  for (const holder of holders(data)) {
    for (const name of LARGE) {
      const value = holder[name];
      if (Array.isArray(value) && name !== "result") {
        const each = (one: Json, at: number): Place => ({
          name,
          value: one,
          replace: (by) => (value[at] = by),
        });
        found.push(...value.map(each));
      } else if (value !== undefined) {
        found.push({ name, value, replace: (by) => (holder[name] = by) });
      }
    }
  }
  return found.filter(({ value }) => value !== null && !isRef(value));
}

function holders(data: JsonObject): JsonObject[] {
  const effects = data["effects"];
  return [data, ...(Array.isArray(effects) ? effects.filter(isObject) : [])];
}

function isRef(value: Json): boolean {
  return isObject(value) && Object.keys(value).join() === "ref";
}

/** An error as events tell it. */
export function said(error: unknown, retryable?: boolean): JsonObject {
  const { name, message } = asError(error);
  return { type: name, message: cut(message), ...(retryable === undefined ? {} : { retryable }) };
}
