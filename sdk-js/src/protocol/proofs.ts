/**
 * Proofs: what the ledger hands out can be checked by anybody, offline, with only its public key.
 *
 * Read are C2SP `tlog-proof@v1` files around C2SP checkpoints (signed notes, Ed25519), and the
 * downloads of Amends that carry one. docs/proofs.md says which bytes are hashed. Nothing is used
 * that only Node has: the verifier that people save (sdk-js/verifier) is made of this module.
 */

import { canonical, isObject, type Json, type JsonObject, parseJson } from "./canonical.ts";

const HEADER = "c2sp.org/tlog-proof@v1";
const ED25519 = 1;
export const FILE_BYTES_MAX = 16 * 1024 * 1024;
const PROOF_LENGTH_MAX = 63; // of a tree of 2^63 leaves: no honest proof is longer
const SIGNATURES_MAX = 32;
const HEAD_LINES_MIN = 3; // origin, size, root
const DIGITS_MAX = 19; // of a size or an index: 2^63
const DEPTH_MAX = 200; // of lists and objects, one in the other; no ledger takes half as much
const HASH_BYTES = 32;
const KEY_ID_BYTES = 4;
const SHOWN_CHARACTERS_MAX = 80;
// Names of keys have no blanks (C2SP signed-note), also none that only Unicode calls so.
const PUBLIC_KEY = /^([^\s\x1c-\x1f\x85+]+)\+([0-9a-f]{8})\+(.+)$/;
const SIGNATURE = /^— ([^\s\x1c-\x1f\x85]+) (\S+)$/;
// Members of a download that stand beside its event, which holds their digests.
const SALTED = ["facts", "words"] as const;

export type Bytes = Uint8Array<ArrayBuffer>;

/** What is wrong with a file, in one word, for whoever says it in the reader's own language. */
export type Reason =
  | "key" // what was given for a key is none
  | "form" // no proof and no download, or one that is damaged
  | "unsealed" // a download that holds no proof
  | "twice" // it says a thing twice
  | "signer" // none of the keys that were given is the log's
  | "signature" // the head, or the signature under it, was changed
  | "place" // the entry is not in the log where the proof says
  | "entry" // the entry is of no version that is known here
  | "person" // the decision was not signed by its person as the file says
  | "event" // this, or what stands beside it, is not what was recorded
  | "facts"
  | "words";

/**
 * We stopped because the file does not prove what it says; do not rely on it.
 *
 * No AmendsError, whose module the verifier does without.
 */
export class NotProven extends Error {
  readonly reason: Reason;

  constructor(reason: Reason, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "NotProven";
    this.reason = reason;
  }
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
  beside: { [name in (typeof SALTED)[number]]?: Json };
};

/** A log's public key, written `<name>+<key id in hex>+<base64 of 0x01 and 32 bytes>`. */
export class LogKey {
  readonly name: string;
  readonly keyId: Bytes;
  readonly bytes: Bytes;

  private constructor(name: string, keyId: Bytes, bytes: Bytes) {
    this.name = name;
    this.keyId = keyId;
    this.bytes = bytes;
  }

  static async parse(text: string): Promise<LogKey> {
    const found = PUBLIC_KEY.exec(text.trim());
    if (found === null) throw new NotProven("key", "this is not a public key of a log");
    const [name, keyId, raw] = [found[1]!, ofHex(found[2]!), base64(found[3]!, "key")];
    // The first four bytes of SHA-256 over name, newline, 0x01 and key (C2SP signed-note).
    const wanted = (await hash(utf8(`${name}\n`), raw)).subarray(0, KEY_ID_BYTES);
    if (raw[0] !== ED25519 || raw.length !== HASH_BYTES + 1 || !equal(keyId, wanted)) {
      throw new NotProven("key", "the public key is not Ed25519 or its id does not fit");
    }
    return new LogKey(name, keyId, raw.slice(1));
  }

  /** Throws NotProven unless this key has signed the text. */
  async check(text: Bytes, signature: Bytes): Promise<void> {
    const { subtle } = globalThis.crypto;
    const key = await subtle.importKey("raw", this.bytes, "Ed25519", false, ["verify"]);
    if (!(await subtle.verify("Ed25519", key, signature, text))) {
      throw new NotProven("signature", "the signature under the checkpoint is not of that key");
    }
  }
}

/** The lines of a key file that are to be keys: an empty one is none, nor a comment (`#`). */
export function linesOfKeys(text: string): string[] {
  return text.split("\n").filter((line) => !/^(#|$)/.test(line.trim()));
}

/**
 * Check a file and say what it proves, or throw NotProven.
 *
 * It is a tlog-proof, or a download: JSON with `event`, `salt` (hex) and `proof`.
 */
export async function verify(text: string, keys: readonly LogKey[]): Promise<Verified> {
  if (!text.trimStart().startsWith("{")) return await proven(text, keys, null);
  const document = download(text);
  const { event = null, salt, proof } = document;
  const isWhole = "event" in document && typeof salt === "string" && typeof proof === "string";
  if (!isWhole || !proof.isWellFormed()) {
    const reason = proof === null ? "unsealed" : "form";
    throw new NotProven(reason, "the download has no event, salt and proof");
  }
  const verified = await proven(proof, keys, event);
  const found = await saltedDigest(salt, event, "the salt");
  if (found !== verified.leaf["digest"]) throw notTheOne("event", "the event is not the one");
  const data = isObject(event) && isObject(event["data"]) ? event["data"] : {};
  for (const name of SALTED) {
    if (!(name in document)) continue;
    const [said, told] = [data[`${name}_digest`], document[name]!];
    if (said === undefined || typeof document["facts_salt"] !== "string") {
      const missing = `the event has no digest of the ${name}, or their salt is missing`;
      throw new NotProven(name, missing);
    }
    const salted = await saltedDigest(document["facts_salt"], told, `the salt of the ${name}`);
    if (salted !== said) throw notTheOne(name, `the ${name} are not the ones`);
    verified.beside[name] = told;
  }
  return verified;
}

/** A download as the value that it is; no member of it stands there twice. */
export function download(text: string): JsonObject {
  refuseNamesTwice(text);
  try {
    const document = parseJson(text);
    if (isObject(document)) return document;
  } catch {
    // told below
  }
  throw new NotProven("form", "the download has no event, salt and proof");
}

/** What stands twice is read one way and checked another; `JSON.parse` keeps the last of them. */
function refuseNamesTwice(text: string): void {
  const open: (Set<string> | null)[] = [];
  const mark = /["{}[\]]/g;
  for (let found = mark.exec(text); found !== null; found = mark.exec(text)) {
    const token = found[0];
    if (token === "{" || token === "[") {
      open.push(token === "{" ? new Set() : null);
      if (open.length > DEPTH_MAX) throw new NotProven("form", "the download is nested too deeply");
    } else if (token === "}" || token === "]") open.pop();
    else {
      const end = endOfText(text, found.index);
      mark.lastIndex = end;
      const names = open.at(-1);
      if (!names || !isFollowedByColon(text, end)) continue;
      const said = readName(text.slice(found.index, end));
      if (names.has(said)) {
        const shown = said.slice(0, SHOWN_CHARACTERS_MAX);
        throw new NotProven("twice", `“${shown}” stands twice in the download`);
      }
      names.add(said);
    }
  }
}

/** Step by step, for a regular expression has no room for a text of some millions of letters. */
function endOfText(text: string, start: number): number {
  let at = start + 1;
  while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
  return at + 1;
}

function isFollowedByColon(text: string, at: number): boolean {
  const colon = /\s*:/y;
  colon.lastIndex = at;
  return colon.test(text);
}

function readName(token: string): string {
  try {
    return String(JSON.parse(token));
  } catch {
    return token; // no JSON, which is found as it is parsed
  }
}

async function proven(
  text: string,
  keys: readonly LogKey[],
  event: Json | null,
): Promise<Verified> {
  const { index, path, note, extra } = parseProof(text);
  const { origin, size, root, signer } = await checkedHead(note, keys);
  const found = await rootOf(extra, index, size, path);
  if (found === null || !equal(found, root)) {
    throw new NotProven("place", "the entry is not in the log where the proof says");
  }
  const leaf = leafOf(extra);
  return { leaf, index, size, origin, signer, event, beside: {} };
}

/** The entry itself, which is trusted only because its hash leads to the signed root. */
function leafOf(extra: Bytes): JsonObject {
  try {
    const leaf = parseJson(new TextDecoder().decode(extra));
    if (isObject(leaf) && isKnown(leaf) && equal(utf8(canonical(leaf)), extra)) return leaf;
  } catch {
    // told below
  }
  throw new NotProven("entry", "the entry of the log is not one of Amends, version 1 or 2");
}

/** The second version says with which key its event came, and whether that key was trusted. */
function isKnown(leaf: JsonObject): boolean {
  const { v, key, trusted } = leaf;
  return v === 1 || (v === 2 && typeof key === "string" && typeof trusted === "boolean");
}

function parseProof(text: string): { index: bigint; path: Bytes[]; note: string; extra: Bytes } {
  const [head, note] = cutOnce(text, text.indexOf("\n\n"));
  const lines = head.split("\n");
  if (note === null || lines.shift() !== HEADER) {
    throw new NotProven("form", `the file does not start with ${HEADER}`);
  }
  const hasExtra = lines[0]?.startsWith("extra ");
  const extra = hasExtra ? base64(lines.shift()!.slice("extra ".length)) : new Uint8Array();
  const index = lines.shift();
  if (!index?.startsWith("index ")) {
    throw new NotProven("form", "the line with the index is missing");
  }
  const path = lines.map((line) => base64(line));
  if (path.some((node) => node.length !== HASH_BYTES)) {
    throw new NotProven("form", "a hash of the proof is not 32 bytes long");
  }
  return { index: number(index.slice("index ".length)), path, note, extra };
}

/** A signed head of a log: its name, how many entries it has and the root over all of them. */
async function checkedHead(
  note: string,
  keys: readonly LogKey[],
): Promise<{ origin: string; size: bigint; root: Bytes; signer: LogKey }> {
  const [text, tail] = cutOnce(note, note.lastIndexOf("\n\n"));
  const lines = text.split("\n");
  if (!tail?.endsWith("\n") || lines.length < HEAD_LINES_MIN || lines.includes("")) {
    throw new NotProven("form", "the checkpoint is not a signed note of at least three lines");
  }
  const signatures = tail.slice(0, -1).split("\n").map(signature);
  if (signatures.length > SIGNATURES_MAX) {
    throw new NotProven("form", "the checkpoint has too many signatures");
  }
  const [origin, size, root] = [lines[0]!, number(lines[1]!), base64(lines[2]!)];
  if (root.length !== HASH_BYTES) {
    throw new NotProven("form", "the root of the checkpoint is not 32 bytes long");
  }
  let signer: LogKey | null = null;
  for (const one of signatures) {
    for (const key of signersOf(one, keys)) {
      await key.check(utf8(`${text}\n`), one.bytes.slice(KEY_ID_BYTES)); // one bad spoils the note
      if (key.name === origin) signer ??= key;
    }
  }
  if (signer === null) {
    throw new NotProven("signer", "no known key of this log has signed the checkpoint");
  }
  return { origin, size, root, signer };
}

/** Throws NotProven unless a known key has signed this note, which is no checkpoint. */
export async function checkNote(note: string, keys: readonly LogKey[]): Promise<void> {
  const [text, tail] = cutOnce(note, note.lastIndexOf("\n\n"));
  const lines = (tail ?? "").replace(/\n+$/, "").split("\n").slice(0, SIGNATURES_MAX);
  for (const one of lines.map(signature)) {
    for (const key of signersOf(one, keys)) {
      await key.check(utf8(`${text}\n`), one.bytes.slice(KEY_ID_BYTES));
      return;
    }
  }
  throw new NotProven("signer", "no known key of this log has signed it");
}

type Signature = { name: string; bytes: Bytes };

/** The known keys that this signature says it is of. */
function signersOf({ name, bytes }: Signature, keys: readonly LogKey[]): LogKey[] {
  const keyId = bytes.subarray(0, KEY_ID_BYTES);
  return keys.filter((key) => key.name === name && equal(key.keyId, keyId));
}

/** The root that this proof leads to (RFC 9162, section 2.1.3.2); null if it leads nowhere. */
async function rootOf(
  leaf: Bytes,
  index: bigint,
  size: bigint,
  proof: readonly Bytes[],
): Promise<Bytes | null> {
  if (index >= size || proof.length > PROOF_LENGTH_MAX) return null;
  let [node, last] = [index, size - 1n];
  let root = await hash(Uint8Array.of(0), leaf);
  for (const sibling of proof) {
    if (last === 0n) return null; // longer than the tree is deep
    if (node % 2n === 1n || node === last) {
      root = await hash(Uint8Array.of(1), sibling, root);
      while (node % 2n === 0n && node !== 0n) [node, last] = [node >> 1n, last >> 1n];
    } else {
      root = await hash(Uint8Array.of(1), root, sibling);
    }
    [node, last] = [node >> 1n, last >> 1n];
  }
  return last === 0n ? root : null;
}

/** `sha256:<hex>` over the salt and the canonical JSON of what it covers, in its masked form. */
async function saltedDigest(salt: string, covered: Json, what: string): Promise<string> {
  if (!/^[0-9a-fA-F]{64}$/.test(salt)) throw new NotProven("form", `${what} is not 32 bytes long`);
  try {
    return `sha256:${hex(await hash(ofHex(salt), utf8(canonical(covered))))}`;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new NotProven("form", "the download holds what no ledger can hold", { cause: error });
  }
}

function notTheOne(reason: Reason, what: string): NotProven {
  return new NotProven(reason, `${what} whose digest is in the log`);
}

function signature(line: string): Signature {
  const found = SIGNATURE.exec(line);
  if (found === null) {
    throw new NotProven("form", "a signature line of the checkpoint is malformed");
  }
  return { name: found[1]!, bytes: base64(found[2]!) };
}

function cutOnce(text: string, at: number): [string, string | null] {
  return at < 0 ? [text, null] : [text.slice(0, at), text.slice(at + 2)];
}

function number(text: string): bigint {
  const isPlain = /^(0|[1-9][0-9]*)$/.test(text) && text.length <= DIGITS_MAX;
  if (!isPlain) throw new NotProven("form", "a number is malformed");
  return BigInt(text);
}

/** The bytes of base64 that is written in the one way that encoders write it. */
function base64(text: string, reason: Reason = "form"): Bytes {
  try {
    const found = atob(text);
    if (btoa(found) === text) return Uint8Array.from(found, (one) => one.charCodeAt(0));
  } catch {
    // told below
  }
  throw new NotProven(reason, "a line is not base64");
}

function ofHex(text: string): Bytes {
  return Uint8Array.from(text.match(/../g) ?? [], (byte) => Number.parseInt(byte, 16));
}

export function hex(bytes: Bytes): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function utf8(text: string): Bytes {
  return new TextEncoder().encode(text);
}

export function equal(one: Bytes, other: Bytes): boolean {
  return one.length === other.length && one.every((byte, place) => byte === other[place]);
}

/** SHA-256 over all parts, one behind the other. */
export async function hash(...parts: Bytes[]): Promise<Bytes> {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return new Uint8Array(await globalThis.crypto.subtle.digest("SHA-256", whole));
}
